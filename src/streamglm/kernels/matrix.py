"""Weights as kernels read them: plain, in FP8 blocks, or in NVFP4, one matrix or a stack of them.

Owns the three formats in a GPU's memory and their values. Knows no files. A stack [E, N, K] holds
the experts of a layer; one linear layer is a stack of one. Invariants: packing loses no bit, and a
number of NVFP4 times its group's scale is exact in bfloat16, so a kernel multiplies it as such.

    format   numbers                       scales                          whole
    PLAIN    [E, N, K] bfloat16, float32
    FP8      [E, N, K] float8 e4m3         [E, N / 128, K / 128] float32
    NVFP4    [E, N, K' / 4] int16          [E, N, K' / 16] float8 e4m3     [E, 1 or 2] float32

K' is K in whole groups of 128 columns. Numbers of NVFP4 lie as the registers of a warp's matrix
instruction want them: unit t * 8 + w * 2 + p of a group, t, w < 4 and p < 2, has the four columns
w * 32 + j * 8 + t * 2 + p, j < 4, so that thread t of four reads 16 bytes of a group and need not
trade what it unpacks. A unit keeps its magnitudes, three bits each, at bit 3 j, and above them its
signs at bit 12 + (j ^ 1): where two of the four are in place for bfloat16 after one shift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import torch
import torch.nn.functional as F

from streamglm.kernels.arguments import ArgumentError

BLOCK = 128
"""Edge of a block of FP8, and columns that are packed together in NVFP4."""
SCALED = 16
"""Columns that share a scale in NVFP4."""


class Format(IntEnum):
    """How numbers are stored; kernels take it as a constant."""

    PLAIN = 0
    FP8 = 1
    NVFP4 = 2


@dataclass(frozen=True, slots=True)
class Matrix:
    """[E, N, K] in one format; `plain`, `fp8` and `nvfp4` build it."""

    format: Format
    numbers: torch.Tensor
    scales: torch.Tensor | None
    whole: torch.Tensor | None
    """Two of an expert where its first N / 2 rows and its others were quantised apart."""
    depth: int
    """K"""

    @property
    def count(self) -> int:
        """E."""
        return self.numbers.shape[0]

    @property
    def width(self) -> int:
        """N."""
        return self.numbers.shape[1]

    @property
    def halves(self) -> int:
        """Parts of a matrix's rows that have a scale of their own."""
        return 1 if self.whole is None else self.whole.shape[1]

    @property
    def bytes(self) -> int:
        """What reading all of it once reads."""
        parts = (self.numbers, self.scales, self.whole)
        return sum(part.nbytes for part in parts if part is not None)

    def to(self, device: torch.device) -> Matrix:
        """In the memory of a device."""
        return replace(
            self,
            numbers=self.numbers.to(device),
            scales=None if self.scales is None else self.scales.to(device),
            whole=None if self.whole is None else self.whole.to(device),
        )

    def values(self) -> torch.Tensor:
        """[E, N, K] float32."""
        if self.scales is None:
            return self.numbers.float()
        if self.format is Format.FP8:
            grown = self.scales.repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2)
            return self.numbers.float() * grown[:, : self.width, : self.depth]
        assert self.whole is not None
        values = _four_bits(self.numbers) * self.scales.float().repeat_interleave(SCALED, 2)
        per_row = self.whole.repeat_interleave(self.width // self.whole.shape[1], 1)
        return (values * per_row.unsqueeze(2))[:, :, : self.depth].contiguous()


def plain(values: torch.Tensor) -> Matrix:
    """values [N, K] or [E, N, K], bfloat16 or float32."""
    return Matrix(Format.PLAIN, _stack(values), None, None, values.shape[-1])


def fp8(numbers: torch.Tensor, scales: torch.Tensor) -> Matrix:
    """numbers [..., N, K] float8, scales [..., N / 128, K / 128] float32 (rounded up).

    Raises `ArgumentError` naming both shapes where the scales are not those of blocks of 128.
    """
    grid = tuple(-(-size // BLOCK) for size in numbers.shape[-2:])
    if tuple(scales.shape) != (*numbers.shape[:-2], *grid):
        raise ArgumentError(
            f"fp8: numbers {tuple(numbers.shape)} have scales {(*numbers.shape[:-2], *grid)} in "
            f"blocks of {BLOCK}, not {tuple(scales.shape)}"
        )
    return Matrix(Format.FP8, _stack(numbers), _stack(scales).float(), None, numbers.shape[-1])


def nvfp4(
    packed: torch.Tensor, scales: torch.Tensor, whole: torch.Tensor, *, divides: bool = False
) -> Matrix:
    """A checkpoint's packed [..., N, K / 2] uint8 (the lower half is the even column), scales
    [..., N, K / 16] float8, whole [E] or [E, 2] float32, which multiplies or divides.

    Raises `ArgumentError` naming the shapes that do not fit.
    """
    packed, scales = _stack(packed), _stack(scales)
    count, rows, half = packed.shape
    whole = whole.reshape(count, -1)
    if tuple(scales.shape) != (count, rows, 2 * half // SCALED) or 2 * half % SCALED:
        raise ArgumentError(
            f"nvfp4: packed {tuple(packed.shape)} has scales {(count, rows, 2 * half // SCALED)}, "
            f"not {tuple(scales.shape)}"
        )
    if whole.shape[1] not in (1, 2) or rows % whole.shape[1]:
        raise ArgumentError(f"nvfp4: {whole.shape[1]} scales of all for {rows} rows of an expert")
    padding = -2 * half % BLOCK
    numbers = packed.new_empty(count, rows, (2 * half + padding) // 4, dtype=torch.int16)
    for expert in range(count):
        numbers[expert] = _units(packed[expert])
    wide = F.pad(scales.view(torch.uint8), (0, padding // SCALED)).view(scales.dtype)
    whole = (1.0 / whole if divides else whole).float().contiguous()
    return Matrix(Format.NVFP4, numbers, wide.contiguous(), whole, 2 * half)


def packed_of(matrix: Matrix) -> torch.Tensor:
    """An NVFP4 matrix's numbers as a checkpoint packs them: [E, N, K / 2] uint8."""
    columns = _columns(matrix.numbers)[:, :, : matrix.depth]
    even, odd = columns.reshape(*columns.shape[:2], -1, 2).unbind(3)
    return even | (odd << 4)


def _stack(x: torch.Tensor) -> torch.Tensor:
    return (x if x.ndim == 3 else x.unsqueeze(0)).contiguous()


def _units(packed: torch.Tensor) -> torch.Tensor:
    """[N, K / 2] of a checkpoint, whose bytes hold neighbours -> [N, K' / 4] of a kernel."""
    padded = F.pad(packed, (0, -packed.shape[1] % (BLOCK // 2)))
    pairs = padded.view(len(packed), -1, 4, 4, 4)  # group, w, j, t
    both = torch.stack([pairs & 15, pairs >> 4], 5).short()
    magnitudes, signs = _shifts(packed.device)
    units = ((both & 7) << magnitudes) | ((both >> 3) << signs)
    return units.sum(3, dtype=torch.int16).transpose(2, 3).flatten(1)


def _columns(numbers: torch.Tensor) -> torch.Tensor:
    """[E, N, K' / 4] of a kernel -> [E, N, K'] half bytes in the order of columns, uint8."""
    units = numbers.view(*numbers.shape[:2], -1, 4, 4, 1, 2).transpose(3, 4).transpose(4, 5)
    magnitudes, signs = _shifts(numbers.device)
    found = ((units >> magnitudes) & 7) | (((units >> signs) & 1) << 3)
    return found.to(torch.uint8).flatten(2)


def _shifts(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Where a unit has the magnitudes and the signs of its four numbers: [4, 1, 1] each."""
    j = torch.arange(4, dtype=torch.int16, device=device).view(4, 1, 1)
    return 3 * j, 12 + (j ^ 1)


def _four_bits(numbers: torch.Tensor) -> torch.Tensor:
    """[E, N, K' / 4] of a kernel -> [E, N, K'] float32."""
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], device=numbers.device)
    columns = _columns(numbers).int()
    return torch.cat([values, -values])[columns]
