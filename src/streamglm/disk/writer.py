"""Records on their way to the disk: behind the rounds, in threads of their own.

Owns the threads and what waits for them. Knows no lanes and no index: a record becomes a whole file
in a temporary folder, and who asked for it is told. Invariant: `submit` never waits; how much may
wait is bounded by whoever submits. A file that is told of lies on the disk whole.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamglm.disk.record import Label, Raw, encode
from streamglm.disk.system import SYSTEM, System

THREADS = 2


@dataclass(frozen=True, slots=True)
class Job:
    """One record to write, as the file `name`. Its sections are the writer's alone."""

    number: int
    name: str
    label: Label
    tokens: bytes
    sections: Sequence[Raw]
    items: Sequence[int]

    @property
    def raw(self) -> int:
        return sum(one.nbytes for one in self.sections)


Told = Callable[[Job, int, str], None]
"""A job, the bytes of its file, and what went wrong, or ""."""


class Writer:
    """Writes into `folder`; `told` is called in one of its threads. `close` it."""

    def __init__(
        self, folder: Path, told: Told, *, system: System = SYSTEM, threads: int = THREADS
    ) -> None:
        self._folder = folder
        self._told = told
        self._system = system
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"disk-writer-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Write `job` when its turn comes."""
        self._jobs.put(job)

    def close(self) -> None:
        """Return when all that was submitted is written, or has failed."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                size = write(job, self._folder, self._system)
            except OSError as error:
                self._told(job, 0, error.strerror or type(error).__name__)
            else:
                self._told(job, size, "")


def write(job: Job, folder: Path, system: System = SYSTEM) -> int:
    """Write one record and return its bytes. What an `OSError` leaves of it is removed."""
    data = encode(job.label, job.tokens, job.sections, job.items)
    path = folder / job.name
    file = system.create(path)
    try:
        try:
            system.write(file, data)
            system.sync(file)
        finally:
            system.close(file)
    except OSError:
        with contextlib.suppress(OSError):
            system.remove(path)
        raise
    return len(data)
