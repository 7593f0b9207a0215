"""The system calls that change a folder of records, one method each.

Owns nothing; knows no records. Everything that writes, renames or removes goes through here, so
that a test can stop after any call, fail it, or slow it down. Files are 0600 and folders 0700.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


class System:
    """The real one."""

    def make_folder(self, path: Path) -> None:
        """Make `path` if it is not there; its parent must be."""
        path.mkdir(mode=0o700, exist_ok=True)

    def create(self, path: Path) -> int:
        """A new file, open for writing. It must not exist."""
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def write(self, file: int, data: bytes | memoryview) -> None:
        """All of `data`, however many calls it takes."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]

    def sync(self, file: int) -> None:
        """Return once the file's bytes are on the disk."""
        os.fsync(file)

    def close(self, file: int) -> None:
        os.close(file)

    def rename(self, old: Path, new: Path) -> None:
        """`old` takes the place of `new`, whatever lay there."""
        os.replace(old, new)

    def sync_folder(self, path: Path) -> None:
        """Return once the folder's names are on the disk."""
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def remove(self, path: Path) -> None:
        """A file, if it is there; a folder of that name with all that is in it."""
        try:
            path.unlink(missing_ok=True)
        except (IsADirectoryError, PermissionError):
            if not path.is_dir():
                raise
            shutil.rmtree(path)

    def remove_folder(self, path: Path) -> None:
        """An empty folder; one that is not empty stays."""
        try:
            path.rmdir()
        except OSError:
            return

    def commit(self) -> None:
        """The index is about to be committed."""


SYSTEM = System()
