"""Records without ranks: what a rank would copy, made from the tokens, and a folder to learn into.

`Hands` stands for the ranks of a tier: it writes what it is sent with the real writer, and reads
with the real reader, in this thread.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from streamglm.disk.index import Index
from streamglm.disk.nouns import Missing
from streamglm.disk.reader import Wanted, read
from streamglm.disk.record import Kind, Label, Raw, Section, temporary_name
from streamglm.disk.store import Opened, Store
from streamglm.disk.system import SYSTEM, System
from streamglm.disk.tier import DiskTier
from streamglm.disk.writer import Job, write
from streamglm.errors import RecordDamaged
from streamglm.pool.prefix import chain, root
from streamglm.pool.spill import Draft, Part

IDENTITY = b"identity of test"
PAGE = 8
LAYOUT = (Section(96, 4), Section(24, 2))
FIXED = (Section(160, 4),)
ROOT = root(IDENTITY)


def records(folder: Path, world: int = 1) -> list[Path]:
    """The files of records in a folder, of `world` ranks."""
    suffixes = {f".{rank}-{world}" for rank in range(world)}
    return sorted(path for path in folder.rglob("*") if path.suffix in suffixes and path.is_file())


def tokens(count: int, seed: int = 1) -> array[int]:
    """A prompt of `count` tokens."""
    draw = random.Random(seed)
    return array("I", [draw.randrange(50) for _ in range(count)])


def keys_of(prompt: Sequence[int]) -> list[bytes]:
    return list(chain(IDENTITY, prompt, PAGE))


def sections_of(key: bytes, kind: Kind, rank: int = 0) -> list[Raw]:
    """What a rank holds of a record: a function of its key, half of it easy to pack."""
    layout = LAYOUT if kind is Kind.PAGE else FIXED
    draw = np.random.default_rng([*key, kind, rank])
    found = []
    for section in layout:
        items = np.zeros((section.size // section.item, section.item), np.uint8)
        items[:, 0] = draw.integers(0, 256, len(items))
        found.append(items.reshape(-1))
    return found


def label_of(part: Part, rank: int = 0, world: int = 1, identity: bytes = IDENTITY) -> Label:
    kind = Kind.FIXED if part.page < 0 else Kind.PAGE
    return Label(kind, identity, part.key, part.parent, part.depth, rank, world)


def job_of(part: Part, rank: int = 0, world: int = 1) -> Job:
    label = label_of(part, rank, world)
    layout = LAYOUT if label.kind is Kind.PAGE else FIXED
    items = [one.item for one in layout]
    name = temporary_name(part.number, rank)
    return Job(
        part.number, name, label, part.tokens, sections_of(part.key, label.kind, rank), items
    )


def wanted_of(
    store: Store, prompt: array[int], depth: int, rank: int = 0, world: int = 1
) -> list[Wanted]:
    """The records of the state of a prompt's first `depth` pages."""
    keys = keys_of(prompt)[:depth]
    above = [ROOT, *keys]
    found = []
    for place, key in enumerate(keys):
        label = Label(Kind.PAGE, IDENTITY, key, above[place], place + 1, rank, world)
        mine = prompt[place * PAGE : (place + 1) * PAGE].tobytes()
        found.append(Wanted(store.place(label), label, mine, LAYOUT))
    label = Label(Kind.FIXED, IDENTITY, keys[-1], above[-2], depth, rank, world)
    return [*found, Wanted(store.place(label), label, b"", FIXED)]


@dataclass
class Desk:
    """A folder, its store and its index, without a tier: one thing after the other."""

    folder: Path
    system: System = SYSTEM
    store: Store = field(init=False)
    index: Index = field(init=False)
    opened: Opened = field(init=False)
    last: int = 0

    def __post_init__(self) -> None:
        self.store = Store(self.folder, system=self.system)
        self.opened = self.store.open()
        self.store.introduce(IDENTITY, 1, {"model": "test"})
        self.store.worlds()
        self.index = Index(IDENTITY)
        self.store.remove(self.index.load(self.opened.pages, self.opened.states))

    def learn(self, prompt: array[int], depth: int, now: float = 1.0) -> int:
        """Write what the state of `depth` pages misses; how many records that were."""
        keys = keys_of(prompt)[:depth]
        missing = self.index.plan(keys, ROOT)
        if missing is None:
            return 0
        parts = self._parts(missing, keys, prompt)
        sizes = [write(job_of(part), self.store.temporary, self.system) for part in parts]
        moved = [(temporary_name(part.number, 0), label_of(part)) for part in parts]
        fixed = sizes.pop() if missing.fixed else 0
        rows = self.index.rows(missing, sizes, fixed, now)
        self.store.publish(moved, *rows, {})
        self.index.arrive(missing, *rows)
        return len(parts)

    def forget(self, prompt: array[int], depth: int) -> None:
        """Remove the state of `depth` pages."""
        stored = self.index.find(keys_of(prompt), depth)
        assert stored is not None
        self.store.remove(self.index.remove(stored))

    def found(self, prompt: array[int]) -> int:
        """Pages that a prompt finds, every record of them read and compared."""
        stored = self.index.find(keys_of(prompt), len(prompt) // PAGE)
        if stored is None:
            return 0
        for one in wanted_of(self.store, prompt, stored.depth):
            sections, _ = read(one)
            want = sections_of(one.label.key, one.label.kind)
            assert all(np.array_equal(a, b) for a, b in zip(sections, want, strict=True))
        return stored.depth

    def die(self) -> None:
        """As a killed process leaves it: nothing is tidied, the kernel closes the files."""
        self.store._index.close()
        assert self.store._lock is not None
        self.store._lock.release()

    def _parts(self, missing: Missing, keys: list[bytes], prompt: array[int]) -> list[Part]:
        above = [ROOT, *keys]
        parts = []
        for page in (*missing.pages, *([-1] if missing.fixed else [])):
            self.last += 1
            place = page if page >= 0 else len(keys) - 1
            mine = prompt[page * PAGE : (page + 1) * PAGE].tobytes() if page >= 0 else b""
            parts.append(Part(self.last, page, place + 1, keys[place], above[place], mine, 120))
        return parts


@dataclass
class Hands:
    """The ranks of a tier: a `Courier`, and whoever copies drafts."""

    store: Store
    world: int = 1
    system: System = SYSTEM
    forgotten: list[int] = field(default_factory=list)
    tier: DiskTier = field(init=False)
    asked: list[tuple[int, list[Wanted]]] = field(default_factory=list)

    def fetch(self, job: int, root: bytes, keys: Sequence[bytes], tokens: bytes) -> None:
        prompt = array("I")
        prompt.frombytes(tokens)
        self.asked.append((job, wanted_of(self.store, prompt, len(keys), 0, self.world)))

    def forget(self, job: int) -> None:
        self.forgotten.append(job)

    def read(self) -> int:
        """Do the next job that was asked; how many records were good."""
        job, wanted = self.asked.pop(0)
        size = 0
        for count, one in enumerate(wanted):
            try:
                size += read(one)[1]
            except (OSError, RecordDamaged) as error:
                for rank in range(self.world):
                    self.tier.fetched(rank, job, count, size, count, str(error))
                return count
        for rank in range(self.world):
            self.tier.fetched(rank, job, len(wanted), size, -1, "")
        return len(wanted)

    def copy(self, draft: Draft) -> None:
        """Copy and write all of a draft."""
        self.tier.sent(draft, draft.parts)
        for part in draft.parts:
            for rank in range(self.world):
                job = job_of(part, rank, self.world)
                try:
                    size = write(job, self.store.temporary, self.system)
                except OSError as error:
                    self.tier.wrote(part.number, 0, part.bytes, str(error))
                else:
                    self.tier.wrote(part.number, size, part.bytes, "")
