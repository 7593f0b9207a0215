"""A disk in memory behind the rounds, for tests in virtual time: the `Disk` of `pool/spill.py`, and
the shelf of a stub rank.

Written to be believed: dictionaries, and delays of the clock. What was staged is written
`write_seconds` later, a record is read `read_seconds` after the one before it.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streamglm.pool.spill import DiskStats, Draft, Part
from streamglm.step import Record


@dataclass(eq=False)
class Drafted:
    """A state on its way."""

    keys: tuple[bytes, ...]
    parts: list[Part]
    ready: bool = True
    over: bool = False
    staged: dict[int, array[int]] = field(default_factory=dict)


@dataclass(eq=False)
class Reading:
    """A job: what it reads, and how much of that is there."""

    rows: list[array[int]]
    count: int = 0
    taken: int = 0


class MemoryDisk:
    """Pages and fixed parts by key. What is `bad`, ("page" or "fixed", key), cannot be read: a read
    of it removes it."""

    def __init__(self, *, write_seconds: float = 0.01, read_seconds: float = 0.01) -> None:
        self.pages: dict[bytes, array[int]] = {}
        self.fixed: dict[bytes, array[int]] = {}
        self.bad: set[tuple[str, bytes]] = set()
        self.full = False
        """Nothing more can be copied for now."""
        self.written = 0
        """Records."""
        self.jobs: dict[int, Reading] = {}
        self.dropped: list[Draft] = []
        self.version = 0
        self.wake: Callable[[], None] = lambda: None
        self._write_seconds = write_seconds
        self._read_seconds = read_seconds
        self._drafts: dict[int, Drafted] = {}
        self._last = 0

    # -- the disk of the rounds

    def find(self, keys: Sequence[bytes], most: int) -> int:
        found = 0
        for depth, key in enumerate(keys[:most], 1):
            if key not in self.pages:
                break
            found = depth if key in self.fixed else found
        return found

    def fetch(self, keys: Sequence[bytes], root: bytes, tokens: bytes) -> int:
        self._last += 1
        self.jobs[self._last] = Reading([*(self.pages[key] for key in keys), self.fixed[keys[-1]]])
        job, chain = self._last, tuple(keys)
        self._later(self._read_seconds, lambda: self._read(job, chain))
        return job

    def arrived(self, job: int) -> int:
        return self.jobs[job].count if job in self.jobs else -1

    def sealed(self, job: int) -> None:
        reading = self.jobs.pop(job)
        assert reading.taken == len(reading.rows), "sealed before all of it was taken"

    def forget(self, job: int) -> None:
        self.jobs.pop(job, None)

    def draft(self, keys: Sequence[bytes], root: bytes, tokens: bytes) -> Draft | None:
        size = len(tokens) // len(keys)
        above = (root, *keys)
        parts = []
        for page, key in enumerate(keys):
            if key not in self.pages:
                mine = tokens[page * size : (page + 1) * size]
                parts.append(self._part(page, page + 1, key, above[page], mine))
        if keys[-1] not in self.fixed:
            parts.append(self._part(-1, len(keys), keys[-1], above[-2], b""))
        if not parts:
            return None
        draft = Drafted(tuple(keys), parts)
        self._drafts.update((part.number, draft) for part in parts)
        return draft

    def room(self) -> int:
        return 0 if self.full else 1 << 30

    def sent(self, draft: Draft, parts: Sequence[Part]) -> None:
        assert not draft.over

    def drop(self, draft: Draft) -> None:
        self.dropped.append(draft)
        for part in draft.parts:
            del self._drafts[part.number]

    async def settled(self) -> None:
        while self._drafts:  # noqa: ASYNC110 (virtual time: a poll costs nothing)
            await asyncio.sleep(self._write_seconds)

    def stats(self) -> DiskStats:
        return DiskStats(states=len(self.fixed), queue=len(self._drafts))

    # -- the shelf of the rank

    def stage(self, record: Record, rows: array[int]) -> None:
        draft = self._drafts[record.number]
        draft.staged[record.number] = rows
        if len(draft.staged) == len(draft.parts):
            self._later(self._write_seconds, lambda: self._write(draft))

    def take(self, job: int, count: int) -> list[array[int]]:
        reading = self.jobs[job]
        start = reading.taken
        assert start + count <= reading.count, "taken before it was read"
        reading.taken += count
        return reading.rows[start : start + count]

    # -- inside

    def _part(self, page: int, depth: int, key: bytes, parent: bytes, tokens: bytes) -> Part:
        self._last += 1
        return Part(self._last, page, depth, key, parent, tokens, 100)

    def _write(self, draft: Drafted) -> None:
        for part in draft.parts:
            where = self.fixed if part.page < 0 else self.pages
            where[part.key] = draft.staged[part.number]
            self.written += 1
            del self._drafts[part.number]
        self.version += 1
        self.wake()

    def _read(self, job: int, keys: tuple[bytes, ...]) -> None:
        reading = self.jobs.get(job)
        if reading is None:
            return
        key = (*keys, keys[-1])[reading.count]
        kind, where = ("fixed", self.fixed) if reading.count == len(keys) else ("page", self.pages)
        if (kind, key) in self.bad:
            self.bad.discard((kind, key))
            where.pop(key, None)
            self.version += 1
            del self.jobs[job]
        else:
            reading.count += 1
            if reading.count < len(reading.rows):
                self._later(self._read_seconds, lambda: self._read(job, keys))
        self.wake()

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, work)
