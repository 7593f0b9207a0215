"""Records on their way back: read, verified and held until they are taken.

Owns the threads, and what was read and not taken yet. Knows no lanes and no pool. Invariant: a
record that can be taken is what was written, byte for byte: its header, its checksum, its tokens
and its layout were compared. Of one job only so many records are held at a time, in their order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import numpy as np

from streamglm.disk.record import Label, Layout, Raw, decode
from streamglm.errors import RecordDamaged

THREADS = max(2, min(8, len(os.sched_getaffinity(0))))
"""Unpacking takes as long as a fast disk: a core each."""
HELD_BYTES = 256 << 20
"""Of one job, before they are taken."""
BATCH_BYTES = 4 << 20
"""As many are told of at once."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One record: where it lies, what it must be, and of which tokens."""

    path: Path
    label: Label
    tokens: bytes
    layout: Layout

    @property
    def raw(self) -> int:
        return sum(one.size for one in self.layout)


@dataclass(slots=True)
class Progress:
    """The first `count` records of a job are there, `size` bytes of files; or record `lost` is not,
    for the reason `error`."""

    job: int
    count: int
    size: int = 0
    lost: int = -1
    error: str = ""


@dataclass(eq=False, slots=True)
class _Job:
    number: int
    wanted: Sequence[Wanted]
    window: int
    """Records that may be held."""
    done: dict[int, list[Raw]] = field(default_factory=dict)
    asked: int = 0
    ready: int = 0
    """Records from the first on that are there."""
    told: int = 0
    taken: int = 0
    size: int = 0
    batch: int = 1
    over: bool = False


class Reader:
    """Reads jobs of records; `told` is called in one of its threads. `close` it."""

    def __init__(self, told: Callable[[Progress], None], *, threads: int = THREADS) -> None:
        self._told = told
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="disk-reader")
        self._lock = Lock()
        self._jobs: dict[int, _Job] = {}

    def fetch(self, number: int, wanted: Sequence[Wanted]) -> None:
        """Begin to read; `told` hears how it goes on."""
        most = max(one.raw for one in wanted)
        job = _Job(number, wanted, max(4, HELD_BYTES // most), batch=max(1, BATCH_BYTES // most))
        with self._lock:
            self._jobs[number] = job
            self._ask(job)

    def ready(self, number: int) -> int:
        """Records of a job, from the first on, that can be taken or were."""
        with self._lock:
            job = self._jobs.get(number)
            return 0 if job is None else job.ready

    def take(self, number: int, count: int) -> list[list[Raw]]:
        """The next `count` records of a job, which must be ready. Others are read in their place;
        after the last one the job is over."""
        with self._lock:
            job = self._jobs[number]
            assert job.taken + count <= job.ready, f"{count} records after {job.taken} are taken"
            found = [job.done.pop(place) for place in range(job.taken, job.taken + count)]
            job.taken += count
            if job.taken == len(job.wanted):
                del self._jobs[number]
            else:
                self._ask(job)
        return found

    def forget(self, number: int) -> None:
        """Nobody wants the job any more. Safe for one that is over."""
        with self._lock:
            job = self._jobs.pop(number, None)
            if job is not None:
                job.over = True

    def close(self) -> None:
        """End the threads; what is not read yet is not read."""
        with self._lock:
            for job in self._jobs.values():
                job.over = True
        self._pool.shutdown(cancel_futures=True)

    def _ask(self, job: _Job) -> None:
        """Let records be read as far as they may be held."""
        stop = min(len(job.wanted), job.taken + job.window)
        for place in range(job.asked, stop):
            self._pool.submit(self._read, job, place)
        job.asked = max(job.asked, stop)

    def _read(self, job: _Job, place: int) -> None:
        if job.over:
            return
        try:
            sections, size = read(job.wanted[place])
        except (OSError, RecordDamaged) as error:
            said = error.message if isinstance(error, RecordDamaged) else str(error.strerror)
            self._fail(job, place, said)
            return
        with self._lock:
            job.done[place] = sections
            job.size += size
            while job.ready in job.done or job.ready < job.taken:
                job.ready += 1
            progress = self._news(job)
        if progress is not None:
            self._told(progress)

    def _news(self, job: _Job) -> Progress | None:
        """What is worth telling: a batch, all that may be held, or the end."""
        whole = job.ready in (len(job.wanted), job.taken + job.window)
        if job.over or job.ready == job.told or not (whole or job.ready >= job.told + job.batch):
            return None
        job.told = job.ready
        return Progress(job.number, job.ready, job.size)

    def _fail(self, job: _Job, place: int, error: str) -> None:
        with self._lock:
            if job.over:
                return
            job.over = True
            self._jobs.pop(job.number, None)
        self._told(Progress(job.number, job.ready, job.size, place, error))


def read(wanted: Wanted) -> tuple[list[Raw], int]:
    """The sections of one record, and the bytes of its file. Raises `OSError`, `RecordDamaged`."""
    file = os.open(wanted.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(file).st_size
        data = np.empty(size, np.uint8)
        rest, got = data.data, 0
        while got < size and (count := os.readv(file, [rest[got:]])):
            got += count
    finally:
        os.close(file)
    return decode(rest[:got], wanted.label, wanted.tokens, wanted.layout), size
