"""Ranks as threads of one process: `Peers` without a transport, and a record of what was sent.

Owns the meeting of W threads, of which one runs at a time, so that a run is the same each time.
What a real transport leaves to chance is an error here: two ranks that make different calls, a
send that nobody receives, sizes that differ, and a wait that cannot end.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from streamglm.kernels.arguments import Rows

T = TypeVar("T")


class Sent(NamedTuple):
    """One message: `call` is add, join, trade or spread."""

    call: str
    source: int
    target: int
    bytes: int


class Mismatch(AssertionError):
    """The ranks do not fit: a real transport would hang, or give one rank another's rows."""


@dataclass
class World:
    """W ranks. `record` is what was sent, in order; after `run` it is whole."""

    world: int
    record: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turn = threading.Condition()
        self.mail: dict[tuple[int, int], deque[torch.Tensor]] = {}
        self.live = 0
        self.waiting: dict[int, Callable[[], object]] = {}
        self.broken: BaseException | None = None
        self.round: dict[int, tuple[object, torch.Tensor]] = {}
        self.met: list[torch.Tensor] = []
        self.rounds = 0

    def run(self, body: Callable[[ThreadPeer], T]) -> list[T]:
        """`body` once a rank; what each returned, by rank. The first error of any ends all."""
        results: dict[int, T] = {}
        self.live = self.world
        self.broken = None

        def thread(rank: int) -> None:
            with self.turn:
                try:
                    results[rank] = body(ThreadPeer(self, rank))
                except BaseException as error:
                    self.broken = self.broken or error
                finally:
                    self.live -= 1
                    self.stuck()
                    self.turn.notify_all()

        threads = [threading.Thread(target=thread, args=(rank,)) for rank in range(self.world)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        left = {pair: len(mail) for pair, mail in self.mail.items() if mail}
        self.mail.clear()
        self.round.clear()
        self.waiting.clear()
        if self.broken is not None:
            raise self.broken
        if left:
            raise Mismatch(f"sent and never received, by (from, to): {left}")
        return [results[rank] for rank in range(self.world)]

    def wait(self, rank: int, ready: Callable[[], object]) -> None:
        """Let others run until `ready`."""
        self.waiting[rank] = ready
        self.stuck()
        self.turn.notify_all()
        self.turn.wait_for(lambda: bool(self.broken is not None or ready()))
        del self.waiting[rank]
        if self.broken is not None:
            raise Mismatch("another rank failed") from self.broken

    def stuck(self) -> None:
        """Every rank that is left waits, for something that cannot come."""
        ready = [one() for one in self.waiting.values()]
        if self.live and len(ready) == self.live and not any(ready) and self.broken is None:
            self.broken = Mismatch(f"ranks {sorted(self.waiting)} wait for what nobody sends")

    def meet(self, rank: int, call: object, mine: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's copy of what it brings, in the order of the ranks."""
        others = {other: made for other, (made, _) in self.round.items() if made != call}
        if others:
            raise Mismatch(f"rank {rank} calls {call}, and others {others}")
        self.round[rank] = call, mine.clone()
        number = self.rounds
        if len(self.round) == self.world:
            self.met = [self.round[other][1] for other in range(self.world)]
            self.round.clear()
            self.rounds += 1
            self.turn.notify_all()
            return self.met
        self.wait(rank, lambda: self.rounds > number)
        return self.met

    def sent(self, kind: str) -> list[Sent]:
        """The messages of one call, without those of nothing."""
        return [one for one in self.record if one.call == kind and one.bytes]


class ThreadPeer:
    """One rank of a `World`: `model.peers.Peers`."""

    def __init__(self, world: World, rank: int) -> None:
        self.rank = rank
        self.world = world.world
        self.sent: Counter[str] = Counter()
        self._world = world

    def add(self, partial: Rows, dtype: torch.dtype | None = None) -> Rows:
        mine = _tensor(partial)
        assert mine.dtype == torch.float32, f"partials are float32, not {mine.dtype}"
        parts = self._meet("add", tuple(mine.shape), mine)
        total = parts[0].clone()
        for part in parts[1:]:
            total += part
        return _like(partial, total if dtype is None else total.to(dtype))

    def join(self, part: Rows, widths: Sequence[int]) -> Rows:
        mine = _tensor(part)
        if mine.shape[1] != widths[self.rank]:
            raise Mismatch(f"rank {self.rank} joins {tuple(mine.shape)}, widths {tuple(widths)}")
        parts = self._meet("join", (mine.shape[0], *widths), mine)
        return _like(part, torch.cat(parts, 1))

    def trade(
        self,
        sends: Sequence[tuple[int, torch.Tensor]],
        receives: Sequence[tuple[int, torch.Tensor]],
    ) -> None:
        mail = self._world.mail
        for to, tensor in sends:
            if to == self.rank or not 0 <= to < self.world:
                raise Mismatch(f"rank {self.rank} sends to rank {to}")
            assert tensor.is_contiguous()
            mail.setdefault((self.rank, to), deque()).append(tensor.clone())
            self._log("trade", to, tensor.nbytes)
        for source, tensor in receives:
            box = mail.setdefault((source, self.rank), deque())
            if not box:
                self._world.wait(self.rank, box.__len__)
            found = box.popleft()
            if (found.shape, found.dtype) != (tensor.shape, tensor.dtype):
                raise Mismatch(
                    f"rank {source} sends {tuple(found.shape)} {found.dtype}; rank {self.rank}"
                    f" receives {tuple(tensor.shape)} {tensor.dtype}"
                )
            assert tensor.is_contiguous()
            tensor.copy_(found)

    def spread(self, tensor: torch.Tensor, source: int) -> None:
        parts = self._world.meet(self.rank, ("spread", source, tuple(tensor.shape)), tensor)
        if self.rank == source:
            for other in range(self.world):
                if other != source:
                    self._log("spread", other, tensor.nbytes)
        else:
            tensor.copy_(parts[source])

    def _meet(self, call: str, shape: tuple[int, ...], mine: torch.Tensor) -> list[torch.Tensor]:
        for other in range(self.world):
            if other != self.rank:
                self._log(call, other, mine.nbytes)
        return self._world.meet(self.rank, (call, shape), mine)

    def _log(self, call: str, target: int, size: int) -> None:
        self._world.record.append(Sent(call, self.rank, target, size))
        self.sent[call] += size


def _tensor(rows: Rows) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows)) if isinstance(rows, np.ndarray) else rows


def _like(given: Rows, result: torch.Tensor) -> Rows:
    if isinstance(given, np.ndarray):
        found: Rows = result.numpy()
        return found
    return result
