"""Quantize: stored numbers to float32, tensor by tensor.

Owns the meaning of each stored format. Knows no files and no names: the decision which format a
tensor has is its dtype and the presence of scales, made in `fit`. Invariant: what is written is
exactly the stored value, or the stored value times its block's scale, rounded once.
"""

from __future__ import annotations

import torch

from streamglm.weights.fit import tile

DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
}


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
