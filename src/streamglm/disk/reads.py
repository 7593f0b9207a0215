"""States on their way back: which record is read for whom, and what happens when one is lost.

Owns the jobs. Knows files only through the ranks, who read and verify them. Invariant: a state is
borrowed while it is read, so that nobody removes its records, and given back when its job ends.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streamglm.disk.index import Index
from streamglm.disk.nouns import Gone, Stored
from streamglm.disk.record import Kind

_log = logging.getLogger(__name__)


class Courier(Protocol):
    """The way to the ranks. No method waits; what comes of a fetch is told to `fetched`."""

    def fetch(self, job: int, root: bytes, keys: Sequence[bytes], tokens: bytes) -> None: ...

    def forget(self, job: int) -> None: ...


@dataclass(eq=False, slots=True)
class _Read:
    stored: Stored
    keys: tuple[bytes, ...]
    counts: dict[int, int]
    """Records that each rank has verified."""
    sizes: dict[int, int]


@dataclass(slots=True)
class ReadTotals:
    """Since the start."""

    restored: int = 0
    bytes: int = 0
    """Of the files of states that were restored."""
    lost: Counter[str] = field(default_factory=Counter)
    """Records that could not be used, by kind: 'page' or 'fixed'."""


class Reads:
    """The jobs of one tier. `remove` takes records off the disk, `touched` hears of a use."""

    def __init__(
        self,
        index: Index,
        courier: Courier,
        world: int,
        *,
        remove: Callable[[list[Gone]], None],
        touched: Callable[[Stored], None],
    ) -> None:
        self.totals = ReadTotals()
        self._index = index
        self._courier = courier
        self._world = world
        self._remove = remove
        self._touched = touched
        self._jobs: dict[int, _Read] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def fetch(self, keys: Sequence[bytes], root: bytes, tokens: bytes) -> int:
        """Let every rank read the state with the chain `keys`, which must be there."""
        stored = self._index.find(keys, len(keys))
        assert stored is not None, "a fetch of what is not there"
        assert stored.depth == len(keys), f"a fetch of {len(keys)} pages, {stored.depth} are there"
        self._last += 1
        self._index.borrow(stored)
        ranks = range(self._world)
        counts, sizes = dict.fromkeys(ranks, 0), dict.fromkeys(ranks, 0)
        self._jobs[self._last] = _Read(stored, tuple(keys), counts, sizes)
        self._courier.fetch(self._last, root, keys, tokens)
        return self._last

    def arrived(self, job: int) -> int:
        """Records of a job that every rank has; below 0 when it is over."""
        read = self._jobs.get(job)
        return -1 if read is None else min(read.counts.values())

    def sealed(self, job: int) -> None:
        """All of a job is taken."""
        read = self._jobs.pop(job)
        self._index.unborrow(read.stored)
        self._touched(read.stored)
        self.totals.restored += 1
        self.totals.bytes += sum(read.sizes.values())

    def forget(self, job: int) -> None:
        """Nobody wants a job's records. Safe for one that is over."""
        read = self._jobs.pop(job, None)
        if read is not None:
            self._index.unborrow(read.stored)
            self._courier.forget(job)

    def fetched(self, rank: int, job: int, count: int, size: int, lost: int, error: str) -> None:
        """`rank` has read so much of a job, or could not use record `lost`."""
        read = self._jobs.get(job)
        if read is None:
            return
        read.counts[rank], read.sizes[rank] = count, size
        if lost >= 0:
            self.forget(job)
            self._lost(read, lost, error)

    def _lost(self, read: _Read, number: int, error: str) -> None:
        """Drop a record on every rank; what stands on it is found again once it is written."""
        pages = len(read.keys)
        kind = Kind.PAGE if number < pages else Kind.FIXED
        key = read.keys[min(number, pages - 1)]
        what = f"page {number + 1} of {pages}" if kind is Kind.PAGE else "fixed part"
        _log.warning(
            "conversation %s: its %s (%s) cannot be used: %s; it is removed and computed again",
            read.stored.conversation,
            what,
            key.hex()[:12],
            error,
        )
        self.totals.lost[kind.name.lower()] += 1
        self._remove(self._index.lose(key, kind))
