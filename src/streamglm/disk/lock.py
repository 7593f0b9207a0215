"""One writer a folder: a lock that the kernel lets go of when its holder dies.

Owns the lock file and its open descriptor. Knows no records. Invariant: while a `Lock` is held, no
other process holds one on the same folder; the pid in the file is only for people to read, so that
a number left by a dead server blocks nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from streamglm.errors import FolderInUse

NAME = "lock"


class Lock:
    """The folder's lock, held. `release` it."""

    def __init__(self, folder: Path) -> None:
        """Raises `FolderInUse` with the holder's pid."""
        path = folder / NAME
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise FolderInUse(
                f"the folder of learned conversations is in use by process {holder(folder)}; end "
                "it, or name another folder with --learn-conversations"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go. Safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def holder(folder: Path) -> str:
    """The pid in the lock file, as text; 'unknown' without one."""
    with contextlib.suppress(OSError):
        return (folder / NAME).read_text().strip() or "unknown"
    return "unknown"
