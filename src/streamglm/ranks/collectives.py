"""The other ranks over torch.distributed: gloo between CPUs, NCCL between GPUs, by the same calls.

Owns the process group of a rank, its life, the seconds that it waits for others, and a count of
the bytes that it sent. Knows no model and no pages. The one exact form of a sum is here for every
transport: the partials are gathered, and each rank adds them in the order of the ranks. Invariant:
a call either ends on every rank that takes part in it, or raises `PeerLost` within `timeout`.

All but `spread` is one all-to-all of flat values in which a rank sends itself nothing. Over gloo on
loopback that took the least time of the exact forms, at [8, 256] values 0.29 ms for two ranks and
0.49 ms for three, beside 0.27 and 0.83 ms of an all-gather, 0.26 and 0.75 ms of a broadcast a rank;
sends and receives cost 0.19 ms at best and 4 ms whenever their thread had to be woken. So a trade
between two ranks is an all-to-all of a group of those two.

Between GPUs whatever all ranks need whole is one all-gather: one kernel, which a CUDA graph takes
in, where an all-to-all is a group of sends and receives. In a graph on two H200s it took 8.5 us at
8 KiB, 9 us at 32 KiB and 94 us at 16 MiB.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._C._distributed_c10d import Store, TCPStore  # what torch.distributed exports untyped

from streamglm.errors import PeerLost
from streamglm.kernels.arguments import Rows

T = TypeVar("T")

TIMEOUT_SECONDS = 300.0
"""Until a rank that does not answer is given up; as long as the server waits for a step."""

PIECES_BYTES = 1 << 20
"""Of a partial, from which more than two ranks add it in pieces: each rank sends 2 (W - 1) / W of
it then, and W - 1 times all of it otherwise. On loopback, whole and in pieces: 1 MiB 6 and 8 ms
for three ranks, 28 and 19 ms for four; 8 MiB 52 and 34, 88 and 45 ms. For two the bytes are equal.
"""


def lead(host: str, timeout: float = TIMEOUT_SECONDS) -> tuple[Store, int]:
    """The store at which ranks find one another, in the process of the first of them: it listens
    on `host` and on no other address, at the port that comes with it, which the system has chosen.
    Raises `PeerLost` when `host` is no address of this host."""
    limit = timedelta(seconds=timeout)
    try:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, 0), family=family)
    except OSError as error:
        raise PeerLost(f"{host} is no address of rank 0's host: {error.strerror}") from None
    port = int(listener.getsockname()[1])
    store = TCPStore(
        host,
        port,
        is_master=True,
        timeout=limit,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return store, port


def follow(host: str, port: int, timeout: float = TIMEOUT_SECONDS) -> Store:
    """The same store from any other process. Raises `PeerLost` when nobody listens there."""
    limit = timedelta(seconds=timeout)
    try:
        return TCPStore(host, port, is_master=False, timeout=limit)
    except RuntimeError as error:
        raise PeerLost(f"no rank listens at {host}, port {port}: {_line(error)}") from None


class Group:
    """Rank `rank` of `world` over `store`: `model.peers.Peers`, one a process.

    Made by all ranks together. `device` is "cpu" or a GPU, "cuda:1"; GPUs do not trade. `interface`
    is the network interface that gloo listens on; without one it takes the one that the host's name
    belongs to. Raises `PeerLost` when the others do not come within `timeout` seconds.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        world: int,
        *,
        device: str = "cpu",
        interface: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self.rank = rank
        self.world = world
        self.sent: Counter[str] = Counter()
        """Bytes that this rank has sent to others, by call: add, join, trade, spread."""
        self._device = torch.device(device)
        self._gathers = self._device.type == "cuda"
        """Whether what all need is gathered, not sent from each to each."""
        self._timeout = timeout
        self._others = [other for other in range(world) if other != rank]
        self._pairs: dict[int, dist.ProcessGroup | None] = {}
        """By rank: the group of it and this one; None is the group of all."""
        if interface is not None:
            os.environ["GLOO_SOCKET_IFNAME"] = interface
        self._guarded("meet", lambda: self._meet(store))

    def _meet(self, store: Store) -> None:
        limit = timedelta(seconds=self._timeout)
        if self._device.type == "cuda":
            self._meet_on_gpus(store, limit)
            return
        dist.init_process_group(
            "gloo", store=store, rank=self.rank, world_size=self.world, timeout=limit
        )
        if self.world == 2:
            self._pairs = {1 - self.rank: None}
            return
        for pair in itertools.combinations(range(self.world), 2):
            group = dist.new_group(list(pair), timeout=limit)
            if self.rank in pair:
                self._pairs[sum(pair) - self.rank] = group

    def _meet_on_gpus(self, store: Store, limit: timedelta) -> None:
        """NCCL waits for ever for a rank that does not come, so that the store is asked first."""
        store.set(f"rank {self.rank}", "here")
        store.wait([f"rank {rank}" for rank in range(self.world)], limit)
        dist.init_process_group(
            "nccl",
            store=store,
            rank=self.rank,
            world_size=self.world,
            timeout=limit,
            device_id=self._device,  # so that ranks connect now, and not in the first sum
        )

    def close(self) -> None:
        """Leave; nothing is sent or received any more. Between GPUs that is left to the end of the
        process: CUDA graphs hold the communicator, and its end waits for theirs."""
        if self._device.type == "cpu" and dist.is_initialized():
            dist.destroy_process_group()

    def add(self, partial: Rows, dtype: torch.dtype | None = None) -> Rows:
        """partial [rows, n] float32 -> p_0 + p_1 + ... in the order of the ranks, on every rank,
        rounded once to `dtype` (float32)."""
        mine = self._tensor(partial)
        if self.world > 2 and mine.nbytes >= PIECES_BYTES:
            return self._like(partial, self._pieces(mine, dtype))
        parts = self._gather("add", mine, [mine.numel()] * self.world)
        return self._like(partial, _sum(parts, dtype).view(mine.shape))

    def join(self, part: Rows, widths: Sequence[int]) -> Rows:
        """part [rows, widths[rank]] -> [rows, sum(widths)]: the parts beside one another."""
        mine = self._tensor(part)
        rows = mine.shape[0]
        parts = self._gather("join", mine, [rows * width for width in widths])
        beside = [one.view(rows, width) for one, width in zip(parts, widths, strict=True)]
        return self._like(part, torch.cat(beside, 1))

    def trade(
        self,
        sends: Sequence[tuple[int, torch.Tensor]],
        receives: Sequence[tuple[int, torch.Tensor]],
    ) -> None:
        """One group of sends to, and receives from, other ranks: one exchange a pair of ranks, and
        none where nothing stands between them."""
        works = []
        for other in self._others:
            out = [_flat(tensor) for to, tensor in sends if to == other]
            into = [_flat(tensor) for source, tensor in receives if source == other]
            if out or into:
                works.append(self._post(other, out, into))
        for wait in works:
            wait()

    def spread(self, tensor: torch.Tensor, source: int) -> None:
        """`tensor` of `source` into `tensor` of every other rank, same shape."""
        flat = _flat(tensor)
        self._guarded("spread", lambda: dist.broadcast(flat, source))
        if source == self.rank:
            self.sent["spread"] += flat.numel() * (self.world - 1)

    def _gather(self, call: str, mine: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
        """What every rank has, flat, in the order of the ranks; `sizes` are their numbers."""
        flat = mine.reshape(-1)
        if self._gathers:
            return self._gathered(call, flat, sizes)
        out = flat if self.world == 2 else flat.repeat(self.world - 1)
        gives = [0 if other == self.rank else len(flat) for other in range(self.world)]
        takes = [0 if other == self.rank else size for other, size in enumerate(sizes)]
        into = flat.new_empty(sum(takes))
        self._all_to_all(call, out, into, gives, takes)
        parts = list(torch.split(into, takes))
        parts[self.rank] = flat
        return parts

    def _gathered(self, call: str, flat: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
        """`_gather` in one all-gather, of as many values from each as the largest has."""
        most = max(sizes)
        out = flat if len(flat) == most else F.pad(flat, (0, most - len(flat)))
        into = flat.new_empty(self.world * most)
        self._guarded(call, lambda: dist.all_gather_into_tensor(into, out))
        self.sent[call] += out.nbytes * (self.world - 1)
        rows = into.view(self.world, most)
        return [row[:size] for row, size in zip(rows, sizes, strict=True)]

    def _pieces(self, mine: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
        """The sum in pieces of rows: each rank adds the rows of one, and hands them to all."""
        rows, width = mine.shape
        bounds = [rows * rank // self.world for rank in range(self.world + 1)]
        sizes = [(stop - start) * width for start, stop in itertools.pairwise(bounds)]
        own = [sizes[self.rank]] * self.world
        partials = mine.new_empty(sum(own))
        self._all_to_all("add", mine.view(-1), partials, sizes, own)
        total = _sum(list(torch.split(partials, own)), dtype)
        found = torch.empty_like(mine, dtype=total.dtype)
        self._all_to_all("add", total.repeat(self.world), found.view(-1), own, sizes)
        return found

    def _all_to_all(
        self,
        call: str,
        out: torch.Tensor,
        into: torch.Tensor,
        gives: list[int],
        takes: list[int],
    ) -> None:
        """Values to each rank and from each, in the order of the ranks; those to itself are copied
        and not counted."""
        self._guarded(call, lambda: dist.all_to_all_single(into, out, takes, gives))
        self.sent[call] += (sum(gives) - gives[self.rank]) * out.itemsize

    def _post(
        self, other: int, out: Sequence[torch.Tensor], into: Sequence[torch.Tensor]
    ) -> Callable[[], None]:
        """Bytes to and from one rank; what is returned waits for both."""
        given, taken = self._joined(out), self._joined(into, copy=False)
        first = other < self.rank
        gives = [len(given), 0] if first else [0, len(given)]
        takes = [len(taken), 0] if first else [0, len(taken)]
        group = self._pairs[other]
        work = self._guarded(
            "trade",
            lambda: dist.all_to_all_single(taken, given, takes, gives, group, async_op=True),
        )
        self.sent["trade"] += len(given)

        def wait() -> None:
            self._guarded("trade", work.wait, other)
            if len(into) > 1:
                parts = torch.split(taken, [len(tensor) for tensor in into])
                for tensor, part in zip(into, parts, strict=True):
                    tensor.copy_(part)

        return wait

    def _guarded(self, call: str, run: Callable[[], T], other: int | None = None) -> T:
        """`run`, whose failure is somebody's absence."""
        try:
            return run()
        except RuntimeError as error:
            who = "another rank" if other is None else f"rank {other}"
            raise PeerLost(
                f"rank {self.rank} of {self.world}: {call}: {who} is gone, or did not answer"
                f" within {self._timeout:g} s ({_line(error)})"
            ) from None

    def _tensor(self, rows: Rows) -> torch.Tensor:
        """The same memory where rows are contiguous and on the device."""
        if isinstance(rows, np.ndarray):
            return torch.from_numpy(np.ascontiguousarray(rows)).to(self._device)
        return rows.contiguous()

    def _joined(self, parts: Sequence[torch.Tensor], *, copy: bool = True) -> torch.Tensor:
        """Bytes one behind another: of one part its own memory, else new memory, filled if
        `copy`."""
        if not parts:
            return torch.empty(0, dtype=torch.uint8, device=self._device)
        if len(parts) == 1:
            return parts[0]
        return torch.cat(list(parts)) if copy else parts[0].new_empty(sum(map(len, parts)))

    @staticmethod
    def _like(given: Rows, result: torch.Tensor) -> Rows:
        if isinstance(given, np.ndarray):
            found: Rows = result.cpu().numpy()
            return found
        return result


def _sum(parts: Sequence[torch.Tensor], dtype: torch.dtype | None) -> torch.Tensor:
    """In the order of the ranks; the last addition rounds to `dtype`, so that nothing else has
    to."""
    total = parts[0]
    for part in parts[1:-1]:
        total = total + part
    out = torch.empty_like(total, dtype=dtype or total.dtype)
    return torch.add(total, parts[-1], out=out)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor."""
    assert tensor.is_contiguous(), "what is sent lies in one piece"
    return tensor.view(-1).view(torch.uint8)


def _line(error: BaseException) -> str:
    """The first line of what a transport says, without its source file."""
    return str(error).partition("\n")[0].rpartition("] ")[2][:120]
