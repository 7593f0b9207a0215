"""Packed: a folder's weights into the parameters of one rank, in the formats in which they lie.

Owns what a GPU holds: plain tensors keep their dtype, FP8 blocks and NVFP4 stay packed as `Matrix`.
`checkpoint` is the same for the CPU, which computes in float32. Invariant: a parameter is packed
only where its packing says its values to the bit: ranks that cut a block of FP8 in two, or parts
of a stack in several formats, make it plain bfloat16, rounded once.

    parameter          numbers from                        scales of all from
    [N, K]             its tensor's rows and columns       its tensor
    [E, 2 I, K]        rows [0, I) gate, [I, 2 I) up       [e, 0] gate, [e, 1] up
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from streamglm.kernels import matrix
from streamglm.kernels.matrix import Format, Matrix
from streamglm.model.spec import ModelSpec
from streamglm.weights.checkpoint import Progress, Reader, about
from streamglm.weights.fit import Job, plan, read_bytes, rows_read
from streamglm.weights.formats import GROUP, Form, tile
from streamglm.weights.headers import Stored, catalogue
from streamglm.weights.quantize import DTYPES, scale_blocks, unpack

Params = dict[str, torch.Tensor | Matrix]
_FORMATS = {Form.FP8: Format.FP8, Form.NVFP4: Format.NVFP4}


@dataclass(frozen=True, slots=True)
class Band:
    """One tensor's part of a rank as it lies: numbers [rows, columns], and scales for them."""

    numbers: torch.Tensor
    scales: torch.Tensor
    whole: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Held:
    """`checkpoint.Loaded` of parameters as they lie. The fingerprint is another one: bytes are read
    in another order."""

    params: Params
    mtp: bool
    skipped_vision: int
    fingerprint: str


class _Digesting(Reader):
    """A reader whose bytes pass through the digest of the tensor that is being read."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = hashlib.sha256()

    def read(self, file: Path, start: int, into: memoryview) -> None:
        super().read(file, start, into)
        self.digest.update(into)


def read(
    folder: Path,
    spec: ModelSpec,
    device: torch.device,
    *,
    rank: int = 0,
    world: int = 1,
    progress: Progress | None = None,
) -> Held:
    """The part of the checkpoint in `folder` that `rank` of `world` takes, on `device`.

    Peak on the host: the largest parameter and one tensor. Raises `CheckpointError`, one line
    naming the file or the tensor, before any data is read.
    """
    todo = plan(spec, catalogue(folder), rank=rank, world=world)
    stacks = {
        name: _Stack(shape, [job for job in todo.jobs if job.source.param == name], device)
        for name, shape in todo.params.items()
    }
    done = 0
    digests: dict[str, bytes] = {}
    with _Digesting() as reader:
        for job in todo.jobs:
            reader.digest = hashlib.sha256(about(job.stored))
            stacks[job.source.param].put(job, reader)
            digests[job.stored.name] = reader.digest.digest()
            done += read_bytes(job)
            if progress:
                progress(done, todo.total_bytes)
    whole = hashlib.sha256(b"".join(digests[name] for name in sorted(digests)))
    params = {name: stack.finished() for name, stack in stacks.items()}
    return Held(params, todo.mtp, todo.skipped_vision, whole.hexdigest())


class _Stack:
    """One parameter while its tensors come in; it goes to the device with the last of them."""

    def __init__(self, shape: tuple[int, ...], jobs: Sequence[Job], device: torch.device) -> None:
        self._left, self._device = len(jobs), device
        self._shape = shape
        self._dtype, self._format = _kept(jobs)
        self._firsts = sorted({job.source.into[-2].start for job in jobs if len(shape) > 1})
        self._parts: tuple[torch.Tensor | None, ...] | None = None
        self._done: torch.Tensor | Matrix | None = None

    def put(self, job: Job, reader: Reader) -> None:
        """Read one of its tensors into its place."""
        numbers, scales, whole = self._parts = self._parts or self._empty()
        assert numbers is not None
        if self._format is Format.PLAIN:
            into = tuple(slice(span.start, span.stop) for span in job.source.into)
            place = numbers[into]
            place.copy_(_values(job, reader).view(place.shape))
        else:
            band = _packed(job, reader)
            first, expert = job.source.into[-2].start, self._expert(job)
            assert scales is not None
            unit = matrix.BLOCK if self._format is Format.FP8 else 1
            for target, part, at in (
                (numbers, band.numbers, first),
                (scales, band.scales, first // unit),
            ):
                target[expert, at : at + len(part)].copy_(part)
            if whole is not None and band.whole is not None:
                value = 1.0 / band.whole if job.parts.divides else band.whole
                whole[expert, self._firsts.index(first)] = value.reshape(())
        self._left -= 1
        if not self._left:
            self._finish()

    def finished(self) -> torch.Tensor | Matrix:
        """The parameter on its device."""
        assert self._done is not None
        return self._done

    def _empty(self) -> tuple[torch.Tensor | None, ...]:
        if self._format is Format.PLAIN:
            return torch.empty(self._shape, dtype=self._dtype), None, None
        *stack, n, k = self._shape
        count = stack[0] if stack else 1
        if self._format is Format.FP8:
            grid = (-(-n // matrix.BLOCK), -(-k // matrix.BLOCK))
            numbers = torch.empty(count, n, k, dtype=torch.float8_e4m3fn)
            return numbers, torch.empty(count, *grid), None
        return (
            torch.empty(count, n, k // 2, dtype=torch.uint8),
            torch.empty(count, n, k // GROUP, dtype=torch.float8_e4m3fn),
            torch.empty(count, len(self._firsts)),
        )

    def _expert(self, job: Job) -> int:
        return job.source.into[0].start if len(self._shape) == 3 else 0

    def _finish(self) -> None:
        assert self._parts is not None
        numbers, scales, whole = self._parts
        self._parts = None
        assert numbers is not None
        if scales is None:
            self._done = numbers.to(self._device)
        elif whole is None:
            self._done = matrix.fp8(numbers.to(self._device), scales.to(self._device))
        else:
            parts = (part.to(self._device) for part in (numbers, scales, whole))
            self._done = matrix.nvfp4(*parts)


def _kept(jobs: Sequence[Job]) -> tuple[torch.dtype, Format]:
    """In which dtype, if plain, or else in which format a parameter stays."""
    forms = {job.parts.form for job in jobs}
    if forms == {Form.PLAIN}:
        half = all(job.stored.dtype == "BF16" for job in jobs)
        return (torch.bfloat16 if half else torch.float32), Format.PLAIN
    if len(forms) == 1 and all(map(_whole_blocks, jobs)):
        return torch.bfloat16, _FORMATS[forms.pop()]
    return torch.bfloat16, Format.PLAIN


def _whole_blocks(job: Job) -> bool:
    """Whether a rank's part begins and ends where scales do, and lies so in its parameter."""
    source, form = job.source, job.parts.form
    if form is Form.NVFP4:
        return source.cut != 1 or source.part.start % GROUP == source.part.size % GROUP == 0
    assert job.parts.scale
    grid = job.parts.scale.shape
    blocks = all(_in_blocks(size, count) for size, count in zip(source.shape, grid, strict=True))
    if source.cut is not None:
        size, part = source.shape[source.cut], source.part
        ends = part.stop == size or part.stop % matrix.BLOCK == 0
        blocks = blocks and part.start % matrix.BLOCK == 0 and ends
    return blocks and source.into[-2].start % matrix.BLOCK == 0


def _in_blocks(size: int, count: int) -> bool:
    """Whether `count` blocks of `size` rows or columns are blocks of 128."""
    return tile(size, count) == matrix.BLOCK or (count == 1 and size <= matrix.BLOCK)


def _packed(job: Job, reader: Reader) -> Band:
    """The part of this rank, as it lies."""
    source = job.source
    first, last = rows_read(source)
    start, stop = (source.part.start, source.part.stop) if source.cut == 1 else (0, source.shape[1])
    assert job.parts.scale
    numbers, scale = _rows(job.stored, reader, first, last), _rows(job.parts.scale, reader)
    if job.parts.form is Form.NVFP4:
        assert job.parts.whole
        scale = scale[first:last, start // GROUP : stop // GROUP]
        whole = _rows(job.parts.whole, reader)
        return Band(numbers[:, start // 2 : stop // 2], scale, whole)
    rows, columns = (
        slice(at // matrix.BLOCK, -(-end // matrix.BLOCK))
        for at, end in ((first, last), (start, stop))
    )
    return Band(numbers[:, start:stop], scale[rows, columns], None)


def _values(job: Job, reader: Reader) -> torch.Tensor:
    """The part of this rank as values: as they lie, or float32."""
    source, parts = job.source, job.parts
    first, last = rows_read(source)
    numbers = _rows(job.stored, reader, first, last)
    part = slice(source.part.start, source.part.stop)
    if parts.form is Form.NVFP4:
        assert parts.scale
        assert parts.whole
        scale, whole = _rows(parts.scale, reader), _rows(parts.whole, reader)
        numbers = unpack(numbers, scale[first:last], whole, divides=parts.divides)
    own = numbers[:, part] if source.cut == 1 else numbers
    if parts.form is Form.FP8:
        assert parts.scale
        own = own.float()
        scales = _rows(parts.scale, reader).float()
        column = source.part.start if source.cut == 1 else 0
        scale_blocks(own, scales, source.shape, first_row=first, first_column=column)
    return own


def _rows(stored: Stored, reader: Reader, first: int = 0, last: int | None = None) -> torch.Tensor:
    """Rows [first, last) of a tensor, or all of it."""
    count = stored.shape[0] if stored.shape else 1
    last = count if last is None else last
    size = (stored.stop - stored.start) // count
    raw = memoryview(bytearray((last - first) * size))
    reader.read(stored.file, stored.start + first * size, raw)
    shape = (last - first, *stored.shape[1:]) if stored.shape else ()
    return torch.frombuffer(raw, dtype=DTYPES[stored.dtype]).view(shape)


def total_bytes(params: Iterable[torch.Tensor | Matrix]) -> int:
    """Bytes of parameters as they lie."""
    return sum(one.bytes if isinstance(one, Matrix) else one.nbytes for one in params)
