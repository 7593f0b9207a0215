"""Quantize: stored numbers to float32, tensor by tensor.

Owns the meaning of each stored format. Knows no files and no names: which format a tensor has is
told in `formats`. Invariant: what is written is exactly the stored value, or the stored value times
its scale, rounded once: a number of NVFP4 times its group's scale has six significant bits.
"""

from __future__ import annotations

import torch

from streamglm.weights.formats import GROUP, tile

DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "U8": torch.uint8,
}

_FOUR_BITS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
"""By the lower three bits of a number; the highest is its sign."""
_PAIRS = torch.cat([_FOUR_BITS, -_FOUR_BITS])[
    torch.stack([torch.arange(256) & 15, torch.arange(256) >> 4], 1)
]
"""[256, 2]: both numbers of a byte, the lower half first, for it is the even column."""


def scale_blocks(
    values: torch.Tensor,
    scales: torch.Tensor,
    shape: tuple[int, ...],
    *,
    first_row: int,
    first_column: int,
) -> None:
    """Multiply `values` in place by their blocks' scales: W[r, c] = q[r, c] * s[r // e, c // e].

    `values` float32 [R, C] is the part of a tensor of `shape` that starts at (first_row,
    first_column); `scales` float32 [grid rows, grid columns] is the grid of the whole. The name
    `weight_scale_inv` notwithstanding, the official checkpoint's values come out by a product.
    """
    edge, width = (tile(size, grid) for size, grid in zip(shape, scales.shape, strict=True))
    rows = torch.arange(first_row, first_row + values.shape[0]) // edge
    by_row = scales.index_select(0, rows)  # [R, grid columns]
    last_column = first_column + values.shape[1]
    for block in range(first_column // width, -(-last_column // width)):
        start = max(block * width - first_column, 0)
        stop = min((block + 1) * width - first_column, values.shape[1])
        values[:, start:stop] *= by_row[:, block : block + 1]


def unpack(
    packed: torch.Tensor, scales: torch.Tensor, whole: torch.Tensor, *, divides: bool
) -> torch.Tensor:
    """NVFP4 to float32: packed [R, C / 2] uint8, scales [R, C / 16] of the same rows -> [R, C].

    `whole`, one float32, multiplies all, or divides all, as the quantiser spells it.
    """
    rows, columns = packed.shape[0], 2 * packed.shape[1]
    values = _PAIRS[packed.int()].view(rows, columns // GROUP, GROUP)
    values *= scales.float().unsqueeze(2)
    values = values.div_(whole) if divides else values.mul_(whole)
    return values.view(rows, columns)
