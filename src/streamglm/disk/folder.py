"""What lies in a folder of records, by name: what is ours, and what is not.

Owns the names. Changes nothing. `store.py` has the layout.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from streamglm.disk.lock import NAME as LOCK
from streamglm.disk.nouns import StateRow
from streamglm.errors import FolderForeign

INDEX = "index.sqlite"
TEMPORARY = "tmp-"
SUFFIXES = ("", "-wal", "-shm")
IDENTITY = re.compile(r"[0-9a-f]{32}")
SHARD = re.compile(r"[0-9a-f]{2}")
RECORD = re.compile(r"([0-9a-f]{32})\.(page|fixed)\.(\d+)-(\d+)")


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder, by name."""
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda one: one.name)


def folders(parent: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
    """The folders in `parent` whose whole name fits `pattern`."""
    for entry in entries(parent):
        if pattern.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)


def name_conversations(
    states: list[tuple[StateRow, int]], parents: Mapping[bytes, bytes]
) -> list[StateRow]:
    """Each state of the deepest one that stands on it and is not named yet; the deepest first."""
    names: dict[bytes, str] = {}
    for row, _ in sorted(states, key=lambda one: -one[1]):
        name, key = secrets.token_hex(8), row.key
        while key in parents:
            names.setdefault(key, name)
            key = parents[key]
        names.setdefault(row.key, name)
    return [
        StateRow(row.key, row.identity, names[row.key], row.size, row.created, row.used)
        for row, _ in states
    ]


def refuse_foreign(folder: Path) -> None:
    """A folder that has no index of ours must be empty: what lies in it is somebody else's."""
    names = set(os.listdir(folder))
    if INDEX in names:
        return
    strange = [
        name
        for name in names - {LOCK}
        if not (IDENTITY.fullmatch(name) or name.startswith((TEMPORARY, INDEX)))
    ]
    if strange:
        raise FolderForeign(
            f"--learn-conversations {folder}: {len(strange)} files in that folder are no learned "
            "conversations; name an empty folder"
        )
