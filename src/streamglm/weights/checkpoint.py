"""Checkpoint: a folder's weights into the float32 parameters of one rank.

Owns the reading. Knows no model code: names and places come from `layout`, formats from
`quantize`, and `fit` has matched both with the files before the first byte is read. Invariant:
each byte that a rank needs is read once, in the order in which it lies, through one buffer of
`BAND_BYTES` at most (or one row, if that is longer), so that the peak is the finished parameters
and one band; no file is mapped or held whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from streamglm.errors import CheckpointError
from streamglm.model.spec import ModelSpec
from streamglm.weights.fit import Job, Plan, plan, rows_read
from streamglm.weights.formats import Form
from streamglm.weights.headers import Stored, catalogue
from streamglm.weights.layout import Source
from streamglm.weights.quantize import DTYPES, scale_blocks, unpack

BAND_BYTES = 16 * 2**20

Progress = Callable[[int, int], None]
"""Told (bytes done, bytes in all) after each band."""
Feed = Callable[[memoryview], None]
"""Takes bytes into a digest as they pass."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a rank holds after loading.

    `params`: float32, contiguous, one entry a parameter of `layout`. `mtp`: the next-token layer
    is among them; without it the model serves without drafts. `skipped_vision`: tensors left in
    the files. `fingerprint`: hex digest of names, shapes, formats and bytes of all that was read,
    whatever files it lay in; with several ranks each has that of its own part.
    """

    params: dict[str, torch.Tensor]
    mtp: bool
    skipped_vision: int
    fingerprint: str


def load(
    folder: Path,
    spec: ModelSpec,
    *,
    rank: int = 0,
    world: int = 1,
    progress: Progress | None = None,
) -> Loaded:
    """Load the part of the checkpoint in `folder` that `rank` of `world` takes.

    Raises `CheckpointError`, one line naming the file or the tensor, before any data is read.
    """
    todo = plan(spec, catalogue(folder), rank=rank, world=world)
    with Reader() as reader:
        params, fingerprint = fill(todo, reader, progress or (lambda done, total: None))
    return Loaded(params, todo.mtp, todo.skipped_vision, fingerprint)


class Reader:
    """Reads byte ranges of files, keeping the last file open."""

    def __init__(self) -> None:
        self._handle: FileIO | None = None
        self._file: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            self._handle.close()

    def read(self, file: Path, start: int, into: memoryview) -> None:
        """Fill `into` with the bytes of `file` from `start` on."""
        handle = self._open(file)
        handle.seek(start)
        done = 0
        while done < len(into):
            count = handle.readinto(into[done:])
            if not count:
                raise CheckpointError(f"{file.name}: the file ended early, at {start + done}")
            done += count

    def _open(self, file: Path) -> FileIO:
        if self._handle is None or file != self._file:
            if self._handle is not None:
                self._handle.close()
            self._handle, self._file = FileIO(file), file
        return self._handle


def fill(todo: Plan, reader: Reader, progress: Progress) -> tuple[dict[str, torch.Tensor], str]:
    """Do all jobs of a plan: the parameters, and the fingerprint of what was read."""
    buffer = bytearray(max((_band_bytes(job.stored) for job in todo.jobs), default=0))
    params: dict[str, torch.Tensor] = {}
    digests: dict[str, bytes] = {}
    done = 0
    for job in todo.jobs:
        param = job.source.param
        if param not in params:
            params[param] = torch.empty(todo.params[param], dtype=torch.float32)
        # SHA-256 since processors have instructions for it: 1.7 GiB/s where blake2b did 0.9, and
        # hashing is the largest part of a load from a warm cache.
        digest = hashlib.sha256(about(job.stored))
        for count in _read_job(job, reader, buffer, params[param], digest.update):
            done += count
            progress(done, todo.total_bytes)
        digests[job.stored.name] = digest.digest()
    whole = hashlib.sha256(b"".join(digests[name] for name in sorted(digests)))
    return {name: params[name] for name in todo.params}, whole.hexdigest()


def _row_bytes(stored: Stored) -> int:
    return (stored.stop - stored.start) // stored.shape[0]


def _band_bytes(stored: Stored) -> int:
    """Bytes of the largest band of a tensor: whole rows, at least one."""
    row = _row_bytes(stored)
    return min(row * max(1, BAND_BYTES // row), stored.stop - stored.start)


def _read_job(
    job: Job, reader: Reader, buffer: bytearray, param: torch.Tensor, feed: Feed
) -> Iterator[int]:
    """Read one tensor band by band into its place; yields the bytes of each band."""
    stored = job.stored
    scales, whole = (
        _read_whole(part, reader, feed) if part else None
        for part in (job.parts.scale, job.parts.whole)
    )
    place = _place(job.source, param)
    first, last = rows_read(job.source)
    step = _band_bytes(stored) // _row_bytes(stored)
    for row in range(first, last, step):
        count = min(step, last - row)
        raw = memoryview(buffer)[: count * _row_bytes(stored)]
        reader.read(stored.file, stored.start + row * _row_bytes(stored), raw)
        feed(raw)
        target = place[row - first : row - first + count]
        band = _band(raw, stored, count)
        if job.parts.form is Form.NVFP4:
            assert scales is not None
            assert whole is not None
            groups = scales[row : row + count]
            band = unpack(band, groups, whole, divides=job.parts.divides)
        target.copy_(_own_columns(band, job.source))
        if job.parts.form is Form.FP8:
            assert scales is not None
            column = job.source.part.start if job.source.cut == 1 else 0
            scale_blocks(target, scales, stored.shape, first_row=row, first_column=column)
        yield len(raw)


def _band(raw: memoryview, stored: Stored, rows: int) -> torch.Tensor:
    """`rows` rows of a tensor over the bytes in `raw`, in the format in which they are stored."""
    return torch.frombuffer(raw, dtype=DTYPES[stored.dtype]).view(rows, *stored.shape[1:])


def _own_columns(band: torch.Tensor, source: Source) -> torch.Tensor:
    """The columns that this rank keeps; all, unless columns are what ranks divide."""
    return band[:, source.part.start : source.part.stop] if source.cut == 1 else band


def _place(source: Source, param: torch.Tensor) -> torch.Tensor:
    """The region of `param` that the tensor's part fills, in the part's own shape."""
    shape = list(source.shape)
    if source.cut is not None:
        shape[source.cut] = source.part.size
    region = param[tuple(slice(span.start, span.stop) for span in source.into)]
    return region.view(shape)


def _read_whole(part: Stored, reader: Reader, feed: Feed) -> torch.Tensor:
    """All scales of a tensor, float32; they may lie in another file than its numbers."""
    raw = memoryview(bytearray(part.stop - part.start))
    reader.read(part.file, part.start, raw)
    feed(raw)
    return torch.frombuffer(raw, dtype=DTYPES[part.dtype]).view(part.shape).float()


def about(stored: Stored) -> bytes:
    """What a tensor is, for its digest."""
    return f"{stored.name}\n{stored.dtype}\n{list(stored.shape)}\n".encode()
