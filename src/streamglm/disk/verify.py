"""Reading a folder for its own sake: every checksum compared, and the tokens of a page.

Owns the walk over all records. Knows no layout: what a record must hold is what its header says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import xxhash

from streamglm.disk.index import Index
from streamglm.disk.nouns import Node
from streamglm.disk.record import Kind, Label, read_header, tokens_of
from streamglm.disk.store import Store
from streamglm.errors import DiskError, RecordDamaged


@dataclass(frozen=True, slots=True)
class Damage:
    """A record that is not what was written."""

    key: bytes
    kind: Kind
    why: str


@dataclass(slots=True)
class Verdict:
    """What a walk has found."""

    records: int = 0
    bytes: int = 0
    damaged: list[Damage] = field(default_factory=list)


def verify(store: Store, index: Index) -> Verdict:
    """Read every record that the index tells of. Changes nothing."""
    verdict = Verdict()
    for node, kind in _records(index):
        size = node.size
        if kind is Kind.FIXED:
            assert node.state is not None, "a fixed part without a state"
            size = node.state.size
        try:
            found = sum(len(data) for data in _files(store, node, kind))
            if found != size:
                raise RecordDamaged(f"it has {found} bytes, and the index says {size}")
        except (OSError, RecordDamaged) as error:
            why = error.message if isinstance(error, RecordDamaged) else str(error.strerror)
            verdict.damaged.append(Damage(node.key, kind, why))
            continue
        verdict.records += 1
        verdict.bytes += size
    return verdict


def tokens_on(store: Store, node: Node) -> bytes:
    """The tokens of a page, as little-endian uint32. Raises `DiskError` where they are not there
    whole."""
    try:
        data = next(_files(store, node, Kind.PAGE))
        return tokens_of(data, read_header(data))
    except (OSError, StopIteration) as error:
        raise DiskError(f"page {node.key.hex()[:12]} cannot be read: {error}") from None


def _records(index: Index) -> Iterator[tuple[Node, Kind]]:
    seen: set[bytes] = set()
    for stored in index.states():
        yield stored.node, Kind.FIXED
        for node in stored.node.path():
            if node.key not in seen and node.size:
                seen.add(node.key)
                yield node, Kind.PAGE


def _files(store: Store, node: Node, kind: Kind) -> Iterator[bytes]:
    """The whole files of a record, one a rank, each compared with its checksums."""
    world = store.worlds().get(node.identity, 0)
    for rank in range(world):
        label = Label(kind, node.identity, node.key, b"", 0, rank, world)
        data = store.place(label).read_bytes()
        header = read_header(data)
        body = data[header.size :]
        named = header.label
        if (named.kind, named.key, named.rank, named.world) != (kind, node.key, rank, world):
            raise RecordDamaged("it is the record of something else")
        if len(body) != header.body or xxhash.xxh3_128_digest(body) != header.sum:
            raise RecordDamaged("its checksum is another")
        yield data
