"""Headers: what the weight files of a checkpoint folder say they hold.

Owns the safetensors header and the index file. Reads no tensor data and imports no torch, so that
a server can refuse a checkpoint before it starts a rank. Invariant: a `Catalogue` names each
tensor once, and every byte range in it lies inside a file that is as long as its header says.

    file bytes                      content
    [0, 8)                          length n of the header, little-endian
    [8, 8 + n)                      the header, JSON: name -> dtype, shape, data offsets
    [8 + n, 8 + n + data)           tensor data; offsets count from 8 + n
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from streamglm.errors import CheckpointError
from streamglm.model.spec import read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}
_LONGEST_HEADER = 100_000_000  # the format's own limit


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as it lies: bytes [start, stop) of `file`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Every tensor of a checkpoint, in the order in which it lies: file by file, by offset."""

    tensors: dict[str, Stored]


def catalogue(folder: Path) -> Catalogue:
    """Read all headers of the checkpoint in `folder`: one file, or the shards of an index.

    Raises `CheckpointError`, one line that names the file or the tensor: no weights, a shard that
    is missing, cut or damaged, a tensor in two places, an index that disagrees with a header.
    """
    if (folder / SINGLE).is_file():
        return Catalogue(_joined([read_header(folder / SINGLE)]))
    if not (folder / INDEX).is_file():
        raise CheckpointError(f"the folder holds neither {SINGLE} nor {INDEX}")
    listed = _weight_map(folder)
    shards = sorted(set(listed.values()))
    for shard in shards:
        if not (folder / shard).is_file():
            raise CheckpointError(f"{shard}: the shard is named in {INDEX} and is not there")
    tensors = _joined([read_header(folder / shard) for shard in shards])
    _agree(listed, tensors)
    return Catalogue(tensors)


def _weight_map(folder: Path) -> dict[str, str]:
    listed = read_json(folder / INDEX).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise CheckpointError(f"{INDEX}: weight_map is missing or empty")
    for name, shard in listed.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise CheckpointError(f"{INDEX}: {name} names {shard!r}, not a file of the folder")
    return listed


def _joined(headers: Sequence[dict[str, Stored]]) -> dict[str, Stored]:
    tensors: dict[str, Stored] = {}
    for header in headers:
        for name, stored in header.items():
            if name in tensors:
                first = tensors[name].file.name
                raise CheckpointError(f"{name}: the tensor is in {first} and {stored.file.name}")
            tensors[name] = stored
    return tensors


def _agree(listed: dict[str, str], tensors: dict[str, Stored]) -> None:
    for name, shard in listed.items():
        if name not in tensors:
            raise CheckpointError(f"{name}: {INDEX} says it is in {shard}, and it is not")
        if tensors[name].file.name != shard:
            raise CheckpointError(
                f"{name}: {INDEX} says it is in {shard}, and it is in {tensors[name].file.name}"
            )
    for name, stored in tensors.items():
        if name not in listed:
            raise CheckpointError(f"{name}: it is in {stored.file.name} and not in {INDEX}")


def read_header(file: Path) -> dict[str, Stored]:
    """The tensors of one safetensors file, by offset; the file's length is checked."""
    try:
        size = file.stat().st_size
        with file.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if not 2 <= length <= min(_LONGEST_HEADER, size - 8):
                raise CheckpointError(
                    f"{file.name}: not a safetensors file, or cut inside its header "
                    f"({size} bytes, header of {length})"
                )
            raw = handle.read(length)
    except OSError as error:
        raise CheckpointError(f"{file.name}: cannot be read ({error.strerror})") from None
    entries = _entries(file, raw)
    tensors = [_stored(file, 8 + length, name, entry) for name, entry in entries.items()]
    tensors.sort(key=lambda stored: (stored.start, stored.stop))
    _check_length(file, size, 8 + length, tensors)
    return {stored.name: stored for stored in tensors}


def _entries(file: Path, raw: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise CheckpointError(f"{twice}: the tensor is twice in {file.name}")
        return found

    try:
        entries = json.loads(raw, object_pairs_hook=once)
    except ValueError as error:
        raise CheckpointError(f"{file.name}: its header is not JSON ({error})") from None
    if not isinstance(entries, dict):
        raise CheckpointError(f"{file.name}: its header is not an object")
    entries.pop("__metadata__", None)
    return entries


def _stored(file: Path, origin: int, name: str, entry: Any) -> Stored:
    try:
        dtype = str(entry["dtype"])
        shape = tuple(int(n) for n in entry["shape"])
        start, stop = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{name}: its entry in {file.name} is damaged") from None
    if dtype not in ITEM_BYTES:
        raise CheckpointError(f"{name}: {dtype} in {file.name} is not a known number format")
    need = prod(shape) * ITEM_BYTES[dtype]
    if start < 0 or stop - start != need:
        raise CheckpointError(
            f"{name}: {file.name} gives it {stop - start} bytes, and {list(shape)} of {dtype} "
            f"takes {need}"
        )
    return Stored(name, dtype, shape, file, origin + start, origin + stop)


def _check_length(file: Path, size: int, origin: int, tensors: list[Stored]) -> None:
    """Data must follow the header without gap or overlap, up to the end of the file."""
    end = origin
    for stored in tensors:
        if stored.start != end:
            raise CheckpointError(
                f"{stored.name}: its bytes in {file.name} start at {stored.start}, "
                f"and the bytes before it end at {end}"
            )
        end = stored.stop
    if size != end:
        raise CheckpointError(f"{file.name}: the file has {size} bytes, and its header says {end}")
