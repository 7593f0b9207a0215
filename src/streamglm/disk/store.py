"""The folder: records in place, and the SQLite index that says which of them count.

Owns the order of what is done to files, so that a crash at any point leaves either the old index
or the new one. Knows no prompts; one thread at a time calls it. Invariant: a row is committed after
its files are on the disk under their names, and deleted before they are removed; so what has no
row is a leftover, and what has a row is whole or damaged, never half written.

    FOLDER/lock                                 the writer's pid
    FOLDER/index.sqlite                         identities, pages, states
    FOLDER/tmp-<nonce>/                         records on their way
    FOLDER/<identity>/<first byte of key>/<key>.<kind>.<rank>-<world>
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamglm.disk.folder import (
    IDENTITY,
    INDEX,
    RECORD,
    SHARD,
    SUFFIXES,
    TEMPORARY,
    entries,
    folders,
    name_conversations,
    refuse_foreign,
)
from streamglm.disk.lock import Lock
from streamglm.disk.nouns import Gone, PageRow, StateRow
from streamglm.disk.record import HEADER_BYTES, Header, Kind, Label, read_header
from streamglm.disk.system import SYSTEM, System
from streamglm.errors import DiskError, RecordDamaged

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS identities (
    identity BLOB PRIMARY KEY, world INTEGER NOT NULL, parts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pages (
    key BLOB PRIMARY KEY, identity BLOB NOT NULL, parent BLOB NOT NULL, depth INTEGER NOT NULL,
    size INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS states (
    key BLOB PRIMARY KEY, identity BLOB NOT NULL, conversation TEXT NOT NULL,
    size INTEGER NOT NULL, created REAL NOT NULL, used REAL NOT NULL) WITHOUT ROWID;
"""
_PAGE_IN = "INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?)"
_STATE_IN = "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(slots=True)
class Opened:
    """What a folder holds, once it is repaired."""

    pages: list[PageRow] = field(default_factory=list)
    states: list[StateRow] = field(default_factory=list)
    leftovers: int = 0
    """Files of no row, half-written ones among them: removed."""
    damaged: list[str] = field(default_factory=list)
    """Records that a row promises and that are not there, or not whole, by name: removed."""
    rebuilt: bool = False
    """The index was lost, and made again from the records' headers."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Another identity whose records lie here: its parts by name."""

    identity: bytes
    world: int
    parts: Mapping[str, str]


Found = dict[tuple[bytes, bytes, Kind], dict[tuple[int, int], int]]
"""(identity, key, kind) -> (rank, world) -> bytes."""


class Store:
    """One folder, locked and open. `close` it."""

    def __init__(self, folder: Path, *, system: System = SYSTEM, write: bool = True) -> None:
        """Raises `FolderInUse`, `FolderForeign`, or `DiskError` for a folder that cannot be used.
        Without `write` the folder is read as it is, beside a server that writes."""
        self.folder = folder
        self.nonce = secrets.token_hex(4)
        self._system = system
        self._lock: Lock | None = None
        self._shards: dict[Path, int] = {}
        """Folders of records, and the bytes that their lists of names take."""
        self._worlds: dict[bytes, int] = {}
        if write:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                refuse_foreign(folder)
                self._lock = Lock(folder)
            except OSError as error:
                raise DiskError(f"{folder}: {error.strerror}") from None
        self._index = self._connect(write)

    def close(self) -> None:
        """Safe to call twice."""
        self._index.close()
        if self._lock is not None:
            self._system.remove_folder(self.temporary)
            self._lock.release()

    @property
    def temporary(self) -> Path:
        """Where records on their way lie."""
        return self.folder / (TEMPORARY + self.nonce)

    # -- opening

    def open(self) -> Opened:
        """Repair the folder and say what it holds."""
        opened = Opened()
        for name in sorted(os.listdir(self.folder)):
            if name.startswith(TEMPORARY):
                opened.leftovers += len(list((self.folder / name).iterdir()))
                self._system.remove(self.folder / name)
        self._system.make_folder(self.temporary)
        found = self._scan(opened)
        if self._is_lost():
            self._rebuild(found, opened)
        self._repair(found, opened)
        return opened

    def introduce(self, identity: bytes, world: int, parts: Mapping[str, str]) -> list[Foreign]:
        """From now on records of `identity` are written. Returns the others that lie here."""
        with self._index:
            self._index.execute(
                "DELETE FROM identities WHERE identity NOT IN "
                "(SELECT identity FROM pages UNION SELECT identity FROM states)"
            )
            self._index.execute(
                "INSERT OR REPLACE INTO identities VALUES (?, ?, ?)",
                (identity, world, json.dumps(dict(parts))),
            )
        self._worlds[identity] = world
        rows = self._index.execute(
            "SELECT identity, world, parts FROM identities WHERE identity != ?", (identity,)
        )
        return [Foreign(one, ranks, json.loads(text)) for one, ranks, text in rows]

    def rows(self) -> tuple[list[PageRow], list[StateRow]]:
        """What the index says."""
        pages = self._index.execute("SELECT key, identity, parent, depth, size FROM pages")
        states = self._index.execute(
            "SELECT key, identity, conversation, size, created, used FROM states"
        )
        return [PageRow(*row) for row in pages], [StateRow(*row) for row in states]

    def worlds(self) -> dict[bytes, int]:
        """The ranks of each identity."""
        rows = self._index.execute("SELECT identity, world FROM identities")
        self._worlds.update(dict(rows.fetchall()))
        return self._worlds

    # -- changing

    def publish(
        self,
        moved: Iterable[tuple[str, Label]],
        pages: Sequence[PageRow],
        state: StateRow | None,
        used: Mapping[bytes, float],
    ) -> None:
        """Records of `temporary` by name take their places, then their rows are committed. Raises
        `OSError` or `sqlite3.Error` with none of them in place."""
        placed: list[Path] = []
        try:
            self._place(moved, placed)
            self._system.commit()
            with self._index:
                self._index.executemany(_PAGE_IN, [_values(row) for row in pages])
                if state is not None:
                    self._index.execute(_STATE_IN, _values(state))
                self._save_used(used)
        except (OSError, sqlite3.Error):
            for path in placed:
                with contextlib.suppress(OSError):
                    self._system.remove(path)
            raise

    def _place(self, moved: Iterable[tuple[str, Label]], placed: list[Path]) -> None:
        """Give records their names, and bring the names to the disk."""
        changed: set[Path] = set()
        for name, label in moved:
            place = self.place(label)
            for folder in (place.parent.parent, place.parent):
                if folder not in self._shards:
                    self._system.make_folder(folder)
                    self._shards[folder] = 0
                    changed.add(folder.parent)
            self._system.rename(self.temporary / name, place)
            placed.append(place)
            changed.add(place.parent)
        for folder in sorted(changed, key=lambda one: -len(one.parts)):
            self._system.sync_folder(folder)
            self._measure(folder)

    def remove(self, gone: Sequence[Gone]) -> None:
        """Rows go first, then files: what a crash leaves of them has no row."""
        self._system.commit()
        with self._index:
            for kind, table in ((Kind.PAGE, "pages"), (Kind.FIXED, "states")):
                keys = [(one.key,) for one in gone if one.kind is kind]
                self._index.executemany(f"DELETE FROM {table} WHERE key = ?", keys)
        shards = set()
        for one in gone:
            world = self._worlds.get(one.identity, 0)
            for rank in range(world):
                label = Label(one.kind, one.identity, one.key, b"", 0, rank, world)
                self._system.remove(self.place(label))
                shards.add(self.place(label).parent)
        for folder in (*shards, *{shard.parent for shard in shards}):
            self._measure(folder)

    def discard(self, names: Iterable[str]) -> None:
        """Forget records on their way."""
        for name in names:
            self._system.remove(self.temporary / name)

    def save_used(self, used: Mapping[bytes, float]) -> None:
        """Remember when states were used."""
        with self._index:
            self._save_used(used)

    # -- telling

    def place(self, label: Label) -> Path:
        """Where a record lies."""
        return self.folder / label.path

    def overhead(self, *, names: bool = True) -> int:
        """Bytes beside records: the index, and lists of names, or the folder's own alone."""
        index = [self.folder / (INDEX + suffix) for suffix in SUFFIXES]
        sizes = [path.stat().st_size for path in (*index, self.folder) if path.exists()]
        return sum(sizes) + (sum(self._shards.values()) if names else 0)

    # -- inside

    def _connect(self, write: bool) -> sqlite3.Connection:
        path = self.folder / INDEX
        if not write:
            if not path.is_file():
                raise DiskError(f"{self.folder}: no conversations were learned there")
            return sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
        for attempt in (1, 2):
            index = sqlite3.connect(path, check_same_thread=False)
            try:
                self._prepare(index)
                path.chmod(0o600)
                return index
            except sqlite3.DatabaseError as error:
                index.close()
                if attempt == 2 or isinstance(error, sqlite3.OperationalError):
                    raise DiskError(f"{self.folder}: its index cannot be used ({error})") from None
                for suffix in SUFFIXES:
                    self._system.remove(self.folder / (INDEX + suffix))
        raise AssertionError("an index that was made anew cannot be used")

    def _prepare(self, index: sqlite3.Connection) -> None:
        """Pragmas and tables. Raises `DatabaseError` for a file that is no index of ours."""
        index.execute("PRAGMA journal_mode = WAL")
        index.execute("PRAGMA synchronous = FULL")
        index.execute("PRAGMA wal_autocheckpoint = 64")
        index.execute("PRAGMA journal_size_limit = 1048576")
        if index.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("it is damaged")
        (version,) = index.execute("PRAGMA user_version").fetchone()
        if version not in (0, _SCHEMA_VERSION):
            raise sqlite3.DatabaseError(f"it has version {version}")
        index.executescript(_SCHEMA)

    def _is_lost(self) -> bool:
        """The index was made just now. It is marked once its content is right."""
        (version,) = self._index.execute("PRAGMA user_version").fetchone()
        return bool(version == 0)

    def _scan(self, opened: Opened) -> Found:
        """The files that bear a record's name."""
        found: Found = {}
        for identity in folders(self.folder, IDENTITY):
            for shard in folders(identity, SHARD):
                for entry in entries(shard):
                    match = RECORD.fullmatch(entry.name)
                    if match is None or entry.is_dir(follow_symlinks=False):
                        opened.leftovers += match is None
                        self._system.remove(Path(entry.path))
                        continue
                    kind = Kind[match[2].upper()]
                    name = bytes.fromhex(identity.name), bytes.fromhex(match[1]), kind
                    size = entry.stat(follow_symlinks=False).st_size
                    found.setdefault(name, {})[int(match[3]), int(match[4])] = size
                self._measure(shard)
            self._measure(identity)
        return found

    def _rebuild(self, found: Found, opened: Opened) -> None:
        """Make rows from headers. Files that have none are left to the repair."""
        pages, states, worlds = [], [], {}
        for (identity, key, kind), files in found.items():
            header = self._header(identity, key, kind, files)
            if header is None:
                continue
            label, size = header.label, sum(files.values())
            worlds[identity] = label.world
            if kind is Kind.PAGE:
                pages.append(PageRow(key, identity, label.parent, label.depth, size))
            else:
                path = self.place(label)
                moment = path.stat().st_mtime
                states.append((StateRow(key, identity, "", size, moment, moment), label.depth))
        opened.rebuilt = bool(pages or states)
        parents = {row.key: row.parent for row in pages}
        with self._index:
            self._index.executemany(_PAGE_IN, [_values(row) for row in pages])
            named = name_conversations(states, parents)
            self._index.executemany(_STATE_IN, [_values(row) for row in named])
            for identity, world in worlds.items():
                self._index.execute(
                    "INSERT OR IGNORE INTO identities VALUES (?, ?, ?)", (identity, world, "{}")
                )
            self._index.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def _header(
        self, identity: bytes, key: bytes, kind: Kind, files: dict[tuple[int, int], int]
    ) -> Header | None:
        """The header that the files of all ranks have, but for the rank."""
        first = None
        for rank, world in files:
            label = Label(kind, identity, key, b"", 0, rank, world)
            try:
                with self.place(label).open("rb") as file:
                    header = read_header(file.read(HEADER_BYTES))
            except (OSError, RecordDamaged):
                return None
            if (header.label.kind, header.label.key) != (kind, key) or len(files) != world:
                return None
            if files[rank, world] != header.size + header.body:
                return None
            first = first or header
        return first

    def _repair(self, found: Found, opened: Opened) -> None:
        """Drop rows whose files are not whole, and files without a row."""
        pages, states = self.rows()
        worlds = self.worlds()
        wanted = {(one.identity, one.key, Kind.PAGE): one.size for one in pages}
        wanted |= {(one.identity, one.key, Kind.FIXED): one.size for one in states}
        bad: set[tuple[bytes, bytes, Kind]] = set()
        for name, size in wanted.items():
            files = found.get(name, {})
            world = worlds.get(name[0], 0)
            ranks = {(rank, world) for rank in range(world)}
            if files.keys() != ranks or sum(files.values()) != size:
                bad.add(name)
        opened.damaged = sorted(f"{key.hex()[:12]} ({kind.name.lower()})" for _, key, kind in bad)
        with self._index:
            for _, key, kind in bad:
                table = "pages" if kind is Kind.PAGE else "states"
                self._index.execute(f"DELETE FROM {table} WHERE key = ?", (key,))
        for name, files in found.items():
            if name in wanted and name not in bad:
                continue
            opened.leftovers += len(files) if name not in bad else 0
            identity, key, kind = name
            for rank, world in files:
                self._system.remove(self.place(Label(kind, identity, key, b"", 0, rank, world)))
        opened.pages = [one for one in pages if (one.identity, one.key, Kind.PAGE) not in bad]
        opened.states = [one for one in states if (one.identity, one.key, Kind.FIXED) not in bad]

    def _save_used(self, used: Mapping[bytes, float]) -> None:
        self._index.executemany(
            "UPDATE states SET used = ? WHERE key = ?", [(at, key) for key, at in used.items()]
        )

    def _measure(self, folder: Path) -> None:
        """What a folder's list of names takes; an empty one goes."""
        if folder == self.folder or not folder.is_dir():
            return
        if not os.listdir(folder):
            self._system.remove_folder(folder)
            self._shards.pop(folder, None)
        else:
            self._shards[folder] = folder.stat().st_size


def _values(row: PageRow | StateRow) -> tuple[object, ...]:
    if isinstance(row, PageRow):
        return row.key, row.identity, row.parent, row.depth, row.size
    return row.key, row.identity, row.conversation, row.size, row.created, row.used
