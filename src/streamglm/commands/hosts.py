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
from streamglm.weights.headers import catalogue


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


def settled(settings: Settings) -> Settings:
    """The settings with the device settled: `auto` is a GPU where torch finds one that runs the
    kernels and one rank is asked for. Raises `SettingError` for a GPU that is not there or does
    not."""
    device = settings.device
    if device == "auto":
        alone = settings.ranks == 1
        device = "cuda" if alone and any(one.capable for one in gpu.found()[:1]) else "cpu"
    elif device == "cuda":
        _need_capable(gpu.found(asked=True))
    return replace(settings, device=device)


def _need_capable(found: Sequence[gpu.Memory]) -> None:
    """The rank takes the first."""
    if not found:
        raise SettingError("--device is cuda, and torch finds no GPU here: --device cpu needs none")
    if not found[0].capable:
        have, need = (".".join(map(str, one)) for one in (found[0].capability, gpu.CAPABLE))
        raise SettingError(
            f"--device is cuda, and the first GPU has compute capability {have}: the kernels need "
            f"{need}; --device cpu needs none, CUDA_VISIBLE_DEVICES picks another"
        )


def room_of(checkpoint: Checkpoint, share: Share, device: str = "cpu") -> int:
    """Bytes for each rank of this host: of a GPU what is free beside its weights and the reserve;
    of the CPU half of what is free beside the weights of all of them.

    Raises `CheckpointError` when these do not fit.
    """
    if not share.local:
        return 0
    if device == "cuda":
        return _gpu_room(checkpoint)
    weights = sum(_weight_bytes(checkpoint, rank, share.world) for rank in share.local)
    free = available_bytes()
    if weights > free:
        raise CheckpointError(
            f"{checkpoint.folder.name}: its weights need {weights} bytes of memory as float32, "
            f"and {free} are available"
        )
    return (free - weights) // 2 // len(share.local)


def _gpu_room(checkpoint: Checkpoint) -> int:
    weights, memory = _packed_bytes(checkpoint.files), gpu.found(asked=True)[0]
    if weights > memory.free:
        raise CheckpointError(
            f"{checkpoint.folder.name}: its weights need {weights} bytes of the GPU as they lie, "
            f"and {memory.free} are free"
        )
    return memory.room(weights)


def _packed_bytes(files: fit.Plan) -> int:
    """Numbers and scales as they lie."""
    scales = (job.parts.scale for job in files.jobs)
    return files.total_bytes + sum(one.stop - one.start for one in scales if one)


def _weight_bytes(checkpoint: Checkpoint, rank: int, world: int) -> int:
    """What a rank holds: float32 on the CPU, whatever the files hold."""
    files = checkpoint.files
    if world > 1:
        files = fit.plan(checkpoint.spec, catalogue(checkpoint.folder), rank=rank, world=world)
    return sum(4 * math.prod(shape) for shape in files.params.values())


def available_bytes() -> int:
    """Memory that can be had without swapping, by the kernel's own estimate."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
