"""Products of a prompt's many rows: programs that stay and take tile after tile by descriptors.

Owns what such kernels share: the order of tiles, how a tile is given out, and which weights they
can read. Knows no operator. The loop over tiles and that over K are one, so that the first blocks
of a tile arrive while the one before is given out. Rows of x are the left operand: a tile is stored
as it lies in registers. Invariant: the bits of an output depend on its row, its weights and the
tile's shape, which a weight's shape alone decides, and not on how many programs there are.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from streamglm.kernels.blocks import cast
from streamglm.kernels.matrix import Format, Matrix
from streamglm.kernels.product import Tile

GROUP_R = 8
"""Tiles of rows that are computed one after the other for each tile of weights, from a cache."""
_ALIGNED = 16
"""Bytes between rows that a descriptor takes."""
_FEW = 2
"""Programs where nothing runs side by side."""


@triton.jit
def place(i, tiles_n, tiles_r, GROUP_R: tl.constexpr):
    """Tile i of all: which of the weights' and which of the rows'."""
    first = i // (GROUP_R * tiles_n) * GROUP_R
    size = tl.minimum(tiles_r - first, GROUP_R)
    within = i % (GROUP_R * tiles_n)
    return within // size, first + within % size


@triton.jit
def halves(block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS] -> its left and its right half."""
    apart = tl.reshape(block, [ROWS, 2, COLUMNS // 2])
    return tl.split(tl.permute(apart, [0, 2, 1]))


@triton.jit
def store_tile(d_y, acc, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
               DTYPE: tl.constexpr):  # fmt: skip
    """acc [ROWS, COLUMNS] float32 to y from `row`, `column` on, in two parts by way of a small
    buffer; what lies outside of y is left out."""
    left, right = halves(acc, ROWS, COLUMNS)
    d_y.store([row, column], cast(left, DTYPE))
    d_y.store([row, column + COLUMNS // 2], cast(right, DTYPE))


def programs(tiles: int, device: torch.device) -> int:
    """Programs that take `tiles` tiles: one a processor of the GPU."""
    return min(tiles, _processors(device.index) if device.type == "cuda" else _FEW)


@functools.cache
def _processors(index: int | None) -> int:
    return torch.cuda.get_device_properties(index or 0).multi_processor_count


def described(matrix: Matrix, dtype: torch.dtype) -> bool:
    """Whether descriptors read the matrix beside rows of `dtype`."""
    plain = matrix.format is Format.PLAIN and matrix.numbers.dtype == dtype
    return plain and aligned(matrix.depth, dtype)


def aligned(columns: int, dtype: torch.dtype) -> bool:
    """Whether rows of so many columns lie as descriptors want them."""
    return columns * dtype.itemsize % _ALIGNED == 0


def readable(x: torch.Tensor) -> torch.Tensor:
    """x [R, K], or a copy of it where a descriptor would not take it as it lies."""
    apart = x.stride(0) * x.itemsize % _ALIGNED or x.data_ptr() % _ALIGNED
    return x.contiguous() if apart else x


def depth(tile: Tile, dtype: torch.dtype) -> int:
    """Columns of a step: a tile says those of two bytes each."""
    return tile.k * 2 // dtype.itemsize


def stored(dtype: torch.dtype) -> tl.dtype:
    """`dtype` as kernels name it."""
    return tl.bfloat16 if dtype == torch.bfloat16 else tl.float32


def wide_tile(width: int) -> Tile:
    """For a weight of so many rows, with any number of rows of x."""
    if width >= 4096:
        return Tile(256, 128, 64, 8, 4)
    if width > 1024:
        return Tile(128, 128, 64, 8, 5)
    # narrow weights: half tiles of either side, so that programs are as many as multiprocessors
    return Tile(128, 64, 128, 4, 4) if width >= 512 else Tile(64, 128, 128, 4, 4)


def head_tile() -> Tile:
    """For a head's own matrix, of a few hundred rows and columns."""
    return Tile(128, 128, 64, 8, 5)


def double_tile() -> Tile:
    """For gate and up: a program multiplies as many rows of each."""
    return Tile(128, 128, 64, 8, 4)
