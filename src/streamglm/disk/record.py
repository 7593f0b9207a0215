"""A record: one page of one rank, or the fixed part of a kept state, as bytes and back.

Pure: bytes in, values out; opens no file. What a section holds is nobody's affair here: a page is
a list of byte arrays, and so is a fixed part. Half-open ranges of a record's bytes:

    [0, 104)                head: magic, version, kind, lengths, identity, keys, place, checksums
    [104, 104 + 16 * S)     table: of each section its raw and its stored length, item size, codec
    [.., header)            checksum of all before it
    [header, header + B)    body: the page's tokens, then the sections as they are stored

Invariant: `decode` returns what `encode` was given, or raises `RecordDamaged`. A flipped bit, a cut
or a byte too many anywhere is damage: the checksum of the header covers the one of the body.

Sections are stored by byte planes: the first bytes of all items, then the second bytes, and so on;
of floats, the plane with the exponents packs well and the others do not. A plane that does not
pack is stored as it is; so is a record whole that would shrink by less than a quarter, because
unpacking it costs more time than a fast disk needs for the bytes that it saves.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash
import zstandard

from streamglm.errors import RecordDamaged

VERSION = 1
MAGIC = b"\x89sglmrec"
PAYS = 1.3
"""Raw over stored bytes of a record, from which on it is packed: bf16 rows are (1.46), fp32 rows
and states are not (1.19)."""
HEADER_BYTES = 1024
"""The most that a header takes: more than fifty sections."""
_LEVEL = 1
_SAMPLE = 16384
_SAMPLE_PAYS = 1.05

_HEAD = struct.Struct("<8sHBBIQ16s16s16sIHHII16s")
_SECTION = struct.Struct("<QIHH")
_SUM = struct.Struct("<Q")
_LENGTH = struct.Struct("<Q")
_RAW, _PLANES = 0, 1

_WORDS: dict[int, np.dtype[np.unsignedinteger[Any]]] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}
_BLOCK = 32768
"""Items that are woven at a time: they stay in a core's own cache."""

Raw = npt.NDArray[np.uint8]


class Kind(IntEnum):
    """What a record holds."""

    PAGE = 1
    FIXED = 2


@dataclass(frozen=True, slots=True)
class Section:
    """One byte array of a record: how many bytes, in items of how many."""

    size: int
    item: int
    optional: bool = False
    """Or none at all, on a rank that does not have it."""

    def fits(self, size: int, item: int) -> bool:
        """Whether so many bytes of such items are this section."""
        return item == self.item and (size == self.size or (self.optional and not size))


Layout = tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """What a record is of. `key` stands for all tokens up to the end of page `depth - 1`, and
    `parent` for those before that page; a fixed part has the key of the page that it follows."""

    kind: Kind
    identity: bytes
    key: bytes
    parent: bytes
    depth: int
    rank: int
    world: int

    @property
    def name(self) -> str:
        """The record's file."""
        return f"{self.key.hex()}.{self.kind.name.lower()}.{self.rank}-{self.world}"

    @property
    def path(self) -> str:
        """Where it lies, below the folder of records."""
        return f"{self.identity.hex()}/{self.key.hex()[:2]}/{self.name}"


@dataclass(frozen=True, slots=True)
class Header:
    """A header that was checked. `body` bytes follow it; the sum covers them."""

    label: Label
    tokens: int
    table: tuple[tuple[int, int, int, int], ...]
    size: int
    body: int
    sum: bytes


def temporary_name(number: int, rank: int) -> str:
    """The file of record `number` on its way to the disk."""
    return f"{number}.{rank}"


def encode(label: Label, tokens: bytes, sections: Sequence[Raw], items: Sequence[int]) -> bytes:
    """The file's bytes. `tokens` are a page's, as little-endian uint32; `items` the item sizes."""
    stored = [_pack(one, item) for one, item in zip(sections, items, strict=True)]
    raw = sum(one.nbytes for one in sections)
    if raw < PAYS * sum(len(data) for data, _ in stored):
        stored = [(one.tobytes(), _RAW) for one in sections]
    body = tokens + b"".join(data for data, _ in stored)
    table = b"".join(
        _SECTION.pack(one.nbytes, len(data), item, codec)
        for one, item, (data, codec) in zip(sections, items, stored, strict=True)
    )
    size = _HEAD.size + len(table) + _SUM.size
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        label.kind,
        len(sections),
        size,
        len(body),
        label.identity,
        label.key,
        label.parent,
        label.depth,
        label.rank,
        label.world,
        len(tokens),
        0,
        xxhash.xxh3_128_digest(body),
    )
    head += table
    return head + _SUM.pack(xxhash.xxh3_64_intdigest(head)) + body


def read_header(data: bytes | memoryview) -> Header:
    """The header at the start of `data`. Raises `RecordDamaged`."""
    if len(data) < _HEAD.size:
        raise RecordDamaged(f"it has {len(data)} bytes, less than a header")
    values = _HEAD.unpack_from(data)
    magic, version, kind, sections, size, body, *place, tokens, zero, total = values
    if magic != MAGIC or size != _HEAD.size + sections * _SECTION.size + _SUM.size:
        raise RecordDamaged("its first bytes are not a record's")
    if len(data) < size:
        raise RecordDamaged(f"it has {len(data)} bytes, and its header {size}")
    (checksum,) = _SUM.unpack_from(data, size - _SUM.size)
    if checksum != xxhash.xxh3_64_intdigest(bytes(data[: size - _SUM.size])) or zero:
        raise RecordDamaged("its header's checksum is another")
    if version != VERSION:
        raise RecordDamaged(f"its format is version {version}, and this release reads {VERSION}")
    table = tuple(
        _SECTION.unpack_from(data, _HEAD.size + place * _SECTION.size) for place in range(sections)
    )
    if kind not in set(Kind):
        raise RecordDamaged(f"it is of kind {kind}, which this release does not know")
    label = Label(Kind(kind), *place)
    return Header(label, tokens, table, size, body, total)


def decode(data: bytes | memoryview, wanted: Label, tokens: bytes, layout: Layout) -> list[Raw]:
    """The sections of the record `wanted`, whose page holds `tokens`. Raises `RecordDamaged` for
    anything else, whatever it is."""
    header = read_header(data)
    if header.label != wanted:
        raise RecordDamaged("it is the record of something else")
    body = memoryview(data)[header.size :]
    if len(body) != header.body:
        raise RecordDamaged(f"{len(body)} bytes follow its header, of {header.body}")
    if xxhash.xxh3_128_digest(body) != header.sum:
        raise RecordDamaged("its checksum is another")
    if body[: header.tokens] != tokens:
        raise RecordDamaged("it holds other tokens")
    found = [(raw, item) for raw, _, item, _ in header.table]
    if len(found) != len(layout) or not all(map(Section.fits, layout, *zip(*found, strict=True))):
        raise RecordDamaged("its layout is another")
    start, sections = header.tokens, []
    for raw, stored, item, codec in header.table:
        sections.append(_unpack(body[start : start + stored], raw, item, codec))
        start += stored
    if start != len(body):
        raise RecordDamaged("its sections do not fill it")
    return sections


def tokens_of(data: bytes, header: Header) -> bytes:
    """The tokens of a page's record, of which `data` is at least the beginning. They are covered by
    the body's checksum, and are right only as far as somebody compared it."""
    return bytes(data[header.size : header.size + header.tokens])


def _pack(section: Raw, item: int) -> tuple[bytes, int]:
    """Planes, each with its stored length in front; a length of the plane's own is unpacked."""
    flat = section.reshape(-1)
    parts = []
    for place in range(item):
        plane = np.ascontiguousarray(flat[place::item]).tobytes()
        packed = _shrunk(plane)
        parts += [_LENGTH.pack(len(packed)), packed]
    return b"".join(parts), _PLANES


def _shrunk(plane: bytes) -> bytes:
    """A plane packed, or itself when a sample of it, or all of it, does not pack."""
    packer = zstandard.ZstdCompressor(level=_LEVEL)
    sample = plane[:_SAMPLE]
    if len(packer.compress(sample)) * _SAMPLE_PAYS > len(sample):
        return plane
    packed = packer.compress(plane)
    return packed if len(packed) < len(plane) else plane


def _unpack(data: memoryview, raw: int, item: int, codec: int) -> Raw:
    """The bytes of a section. What follows a right checksum and does not unpack was written so by
    another program."""
    if codec == _RAW and len(data) == raw:
        return np.frombuffer(data, np.uint8)
    if codec != _PLANES or not item or raw % item:
        raise RecordDamaged("a section is stored in a way that this release does not know")
    count, planes = raw // item, []
    start = 0
    unpacker = zstandard.ZstdDecompressor()
    for _ in range(item):
        if len(data) < start + _LENGTH.size:
            raise RecordDamaged("a section ends inside a plane")
        (length,) = _LENGTH.unpack_from(data, start)
        start += _LENGTH.size
        plane: bytes | memoryview = data[start : start + length]
        if length != count:
            try:
                plane = unpacker.decompress(plane, max_output_size=count)
            except zstandard.ZstdError as error:
                raise RecordDamaged(f"a section does not unpack ({error})") from None
        if len(plane) != count:
            raise RecordDamaged(f"a section unpacks to {len(plane)} of {count} bytes")
        planes.append(np.frombuffer(plane, np.uint8))
        start += length
    return _woven(planes)


def _woven(planes: Sequence[Raw]) -> Raw:
    """Planes back to items: by whole words where there are such, which is twice as fast."""
    word = _WORDS.get(len(planes))
    if word is None:
        return np.stack(planes, axis=1).reshape(-1)
    items = np.empty(len(planes[0]), word)
    for start in range(0, len(items), _BLOCK):
        stop = start + _BLOCK
        block = items[start:stop]
        block[:] = planes[-1][start:stop]
        for plane in reversed(planes[:-1]):
            np.left_shift(block, 8, out=block)
            np.bitwise_or(block, plane[start:stop], out=block)
    return items.view(np.uint8)
