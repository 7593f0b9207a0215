"""Which ranks this host starts, with how many threads, and how much memory each may take.

Owns the division of ranks over hosts, and what this machine has. Knows no sockets and no
processes. Imports no torch. Invariant: every rank of a world is of exactly one host.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streamglm.commands.checkpoint import Checkpoint
from streamglm.config import Settings
from streamglm.errors import CheckpointError, SettingError
from streamglm.ranks import gpu
from streamglm.weights import fit


@dataclass(frozen=True, slots=True)
class Share:
    """The ranks that this host starts itself, of `world`; `serves`: and it has the server."""

    world: int
    local: range
    serves: bool

    @property
    def elsewhere(self) -> frozenset[int]:
        """The ranks that other hosts start."""
        return frozenset(range(self.world)) - frozenset(self.local)


def share_of(settings: Settings) -> Share:
    """This host's share: equal parts in the order of the hosts, larger ones first. With `--master`
    and one host, every rank is started by others. Raises `SettingError`."""
    world, hosts, host = settings.ranks, settings.nnodes, settings.node_rank
    if hosts > world:
        raise SettingError(
            f"--nnodes is {hosts} and --ranks is {world}: a host without a rank has nothing to "
            f"do; --ranks {hosts} is the least"
        )
    if host >= hosts:
        raise SettingError(
            f"--node-rank is {host} and --nnodes is {hosts}: hosts are 0 to {hosts - 1}"
        )
    if hosts > 1 and settings.master is None:
        raise SettingError(
            f"--nnodes is {hosts} and --master is none: hosts need an address to meet at, "
            "HOST:PORT of the one that serves"
        )
    if settings.master is not None and hosts == 1:
        return Share(world, range(0), serves=True)
    each, more = divmod(world, hosts)
    first = host * each + min(host, more)
    return Share(world, range(first, first + each + (host < more)), serves=host == 0)


def threads_of(settings: Settings, local: int) -> int:
    """Compute threads of each of `local` ranks: cores are shared, and one is the server's."""
    cores = len(os.sched_getaffinity(0))
    return settings.threads or max(1, (cores - 1) // max(1, local))


def settled(settings: Settings, local: int | None = None) -> Settings:
    """The settings with the device settled, for `local` ranks of this host (its share of them), of
    which each takes a GPU of its own: `auto` is a GPU where torch finds as many that run the
    kernels. Raises `SettingError` for GPUs that are not there or do not, and for what they do not
    do."""
    device = settings.device
    count = len(share_of(settings).local) if local is None else local
    if device == "auto":
        most = max(1, count)  # where others start every rank, what one would take
        capable = sum(one.capable for one in gpu.found()[:most])
        device = "cuda" if capable == most and not settings.kv_split else "cpu"
    elif device == "cuda":
        if settings.kv_split:
            raise SettingError(
                "--kv-split with --device cuda: GPUs hold the latent rows of every page so far; "
                "leave --kv-split out, or compute on --device cpu"
            )
        if count:
            _need_capable(gpu.found(asked=True), count)
    return replace(settings, device=device)


def _need_capable(found: Sequence[gpu.Memory], count: int) -> None:
    """The ranks of a host take its first GPUs."""
    if not found:
        raise SettingError("--device is cuda, and torch finds no GPU here: --device cpu needs none")
    if len(found) < count:
        raise SettingError(
            f"--ranks starts {count} ranks on this host, and torch finds {len(found)} "
            f"GPU{'s' * (len(found) > 1)} here, one for each rank: --ranks {len(found)} on one "
            "host is the most, and --device cpu needs none"
        )
    for place, one in enumerate(found[:count]):
        if not one.capable:
            have, need = (".".join(map(str, each)) for each in (one.capability, gpu.CAPABLE))
            raise SettingError(
                f"--device is cuda, and GPU {place} has compute capability {have}: the kernels "
                f"need {need}; --device cpu needs none, CUDA_VISIBLE_DEVICES picks others"
            )


def room_of(checkpoint: Checkpoint, share: Share, device: str = "cpu", *, gpu_of: int = 0) -> int:
    """Bytes for each rank of this host: of its GPU what is free beside its weights and the reserve,
    on the poorest of them; of the CPU half of what is free beside the weights of all of them.
    `gpu_of` is the GPU of the first of these ranks, and the others take those behind it.

    Raises `CheckpointError` when these do not fit.
    """
    if not share.local:
        return 0
    if device == "cuda":
        return min(
            _gpu_room(checkpoint, rank, share.world, gpu_of + place)
            for place, rank in enumerate(share.local)
        )
    weights = sum(_weight_bytes(checkpoint, rank, share.world) for rank in share.local)
    free = available_bytes()
    if weights > free:
        raise CheckpointError(
            f"{checkpoint.folder.name}: its weights need {weights} bytes of memory as float32, "
            f"and {free} are available"
        )
    return (free - weights) // 2 // len(share.local)


def _gpu_room(checkpoint: Checkpoint, rank: int, world: int, place: int) -> int:
    weights = _packed_bytes(checkpoint.of(rank, world))
    memory = gpu.found(asked=True)[place]
    if weights > memory.free:
        who = f"rank {rank}'s share of its weights needs" if world > 1 else "its weights need"
        raise CheckpointError(
            f"{checkpoint.folder.name}: {who} {weights} bytes of GPU {place} as they lie, and "
            f"{memory.free} are free"
        )
    return memory.room(weights)


def _packed_bytes(files: fit.Plan) -> int:
    """Numbers and scales as they lie, of what a rank keeps."""
    if not files.jobs:  # random weights
        return files.total_bytes
    return sum(_kept_bytes(job) for job in files.jobs)


def _kept_bytes(job: fit.Job) -> int:
    """Of a tensor that ranks divide, the part."""
    whole = sum(one.stop - one.start for one in (job.stored, job.parts.scale) if one)
    source = job.source
    if source.cut is None:
        return whole
    return -(-whole * source.part.size // source.shape[source.cut])


def _weight_bytes(checkpoint: Checkpoint, rank: int, world: int) -> int:
    """What a rank holds: float32 on the CPU, whatever the files hold."""
    files = checkpoint.of(rank, world)
    return sum(4 * math.prod(shape) for shape in files.params.values())


def available_bytes() -> int:
    """Memory that can be had without swapping, by the kernel's own estimate."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
