"""The product of a tile of weights with rows of x, in every format.

Owns the loop over K and the way back from packed numbers. Knows no operator. The weights are the
left operand: for few rows they fill the tensor cores' long side, and packed ones come from
registers. Invariant: the bits of an output depend on its row, its weights and the tile's shape,
which a weight's shape alone decides; there is no split of K.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from streamglm.kernels.blocks import dot
from streamglm.kernels.matrix import Format, Matrix
from streamglm.kernels.unpack import SMALLER, eight_bits, four_bits


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows of the weight, rows of x and columns that a program multiplies at once; and how."""

    n: int
    r: int
    k: int
    warps: int
    stages: int


WINDOW_ROWS = 32
MANY = 16384
"""Rows of a weight from which on its programs, of 64 rows each, are two of a multiprocessor."""


def window_tile(matrix: Matrix) -> Tile:
    """For 1 to 32 rows; the fastest that were measured for the model's weights. But for NVFP4, one
    tile has all rows, so that the weights are read once. Of a very wide plain weight as many
    programs run at once as it has: two of a multiprocessor with four stages, three with three."""
    width, depth = matrix.width, matrix.depth
    if matrix.format is Format.NVFP4:
        return Tile(64, 16, 128, 4, 4)
    if matrix.format is Format.FP8:
        return Tile(64, WINDOW_ROWS, 128, 4, 4)
    if width >= MANY:
        return Tile(64, WINDOW_ROWS, 128, 4, 4 if width < MANY + MANY // 8 else 3)
    n = 32 if width >= 2048 else 16
    k = 512 if depth >= 16384 or n == 16 else 128 if depth < 2048 else 256
    stages = 3 if n == 16 else 5 if k == 256 else 4
    return Tile(n, WINDOW_ROWS, k, 4, stages)


def expert_window_tile(matrix: Matrix) -> Tile:
    """For the rows of a window that one expert has, mostly one to three of at most 32; also where
    half of a tile's rows are gate's and half are up's. Large tiles unpack in fewer instructions;
    one matrix has too few rows for them. Programs of plain experts are two to a multiprocessor, so
    that one begins while another ends."""
    if matrix.format is Format.PLAIN and matrix.count == 1:
        return Tile(64, 16, 256, 4, 5)
    if matrix.format is Format.NVFP4 and matrix.count > 1:
        return Tile(128, 16, 256, 4, 3)
    return Tile(64, 16, 128, 4, 4)


def prompt_tile(matrix: Matrix) -> Tile:
    """For any number of rows."""
    if matrix.format is not Format.PLAIN:
        return Tile(128, 128, 128, 8, 3 if matrix.format is Format.FP8 else 2)
    if matrix.width >= 16384:
        return Tile(128, 256, 64, 8, 3)
    return Tile(64, 256, 64, 4, 4)


def pair_tile(matrix: Matrix) -> Tile:
    """For any number of rows where a program multiplies two tiles of weights: gate and up."""
    if matrix.format is Format.NVFP4:
        return expert_tile(matrix)
    return Tile(64, 128, 128 if matrix.format is Format.FP8 else 64, 8, 3)


def expert_tile(matrix: Matrix) -> Tile:
    """For the rows of a prompt that one expert has, few of thousands."""
    return Tile(64, 64, 128 if matrix.format is not Format.PLAIN else 64, 4, 3)


def head_tile(wide: bool) -> Tile:
    """For a head's own matrix, of a few hundred rows and columns: of a prompt or of a window. One
    tile for each, so that bits do not depend on the number of rows; a window's has all of them, so
    that the weights are read once."""
    return Tile(128, 64, 64, 4, 3) if wide else Tile(64, WINDOW_ROWS, 128, 4, 3)


def parts(matrix: Matrix) -> dict[str, torch.Tensor]:
    """What a kernel is given of a matrix; numbers stand for the parts that its format lacks."""
    numbers = matrix.numbers
    return {
        "p_w": numbers,
        "p_scale": numbers if matrix.scales is None else matrix.scales,
        "p_whole": numbers if matrix.whole is None else matrix.whole,
    }


@triton.jit
def product(
    p_x, o_rows, mask_rows, stride_x, p_w, p_scale, i_n,
    N: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Weights' rows i_n.. [BLOCK_N] times x's rows o_rows [BLOCK_R] -> [BLOCK_N, BLOCK_R] float32.

    p_w and p_scale point at one matrix [N, K]. NVFP4's scale of all is left to the caller.
    """
    if FORMAT == 1:
        p_scale += i_n // 128 * ((K + 127) // 128)  # a tile lies in one row of blocks
    return product_of(p_x, o_rows, mask_rows, stride_x, p_w, p_scale, i_n + tl.arange(0, BLOCK_N),
                      N, K, FORMAT, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip


@triton.jit
def product_of(
    p_x, o_rows, mask_rows, stride_x, p_w, p_scale, o_n,
    N: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`product` for any rows o_n of the weight. Of FP8, p_scale points at the first scale of their
    row of blocks: one pointer, or one for each of them [BLOCK_N, 1]."""
    if FORMAT == 1:
        acc = _of_fp8(p_x, o_rows, mask_rows, stride_x, p_w, p_scale, o_n,
                      N, K, BLOCK_N, BLOCK_R)  # fmt: skip
    elif FORMAT == 2:
        acc = _of_nvfp4(p_x, o_rows, mask_rows, stride_x, p_w, p_scale, o_n,
                        N, K, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
    else:
        acc = _of_plain(p_x, o_rows, mask_rows, stride_x, p_w, o_n,
                        N, K, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
    return acc


@triton.jit
def _of_plain(
    p_x, o_rows, mask_rows, stride_x, p_w, o_n,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    o_k = tl.arange(0, BLOCK_K)
    p_weights = p_w + o_n[:, None].to(tl.int64) * K + o_k[None, :]
    p_rows = p_x + o_rows[:, None] * stride_x + o_k[None, :]
    acc = tl.zeros([BLOCK_N, BLOCK_R], tl.float32)
    for k in range(0, K, BLOCK_K):
        # a bound that is constant where whole steps make up K, so that no mask is computed
        mask_k = (o_k < (BLOCK_K if K % BLOCK_K == 0 else K - k))[None, :]
        b_w = tl.load(p_weights + k, mask=(o_n < N)[:, None] & mask_k, other=0.0)
        b_x = tl.load(p_rows + k, mask=mask_rows[:, None] & mask_k, other=0.0)
        acc = dot(b_w.to(b_x.dtype), tl.trans(b_x), acc)
    return acc


@triton.jit
def _of_fp8(
    p_x, o_rows, mask_rows, stride_x, p_w, p_scales, o_n,
    N: tl.constexpr, K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """A step of 128 columns has one scale, or one for each row."""
    o_k = tl.arange(0, 128)
    p_weights = p_w + o_n[:, None].to(tl.int64) * K + o_k[None, :]
    p_rows = p_x + o_rows[:, None] * stride_x + o_k[None, :]
    acc = tl.zeros([BLOCK_N, BLOCK_R], tl.float32)
    for k in range(0, K, 128):
        mask_k = (o_k < (128 if K % 128 == 0 else K - k))[None, :]
        b_w = tl.load(p_weights + k, mask=(o_n < N)[:, None] & mask_k, other=0.0)
        b_x = tl.load(p_rows + k, mask=mask_rows[:, None] & mask_k, other=0.0)
        part = dot(eight_bits(b_w, b_x.dtype), tl.trans(b_x),
                   tl.zeros([BLOCK_N, BLOCK_R], tl.float32))  # fmt: skip
        acc += part * tl.load(p_scales + k // 128)
    return acc


@triton.jit
def _of_nvfp4(
    p_x, o_rows, mask_rows, stride_x, p_w, p_scale, o_n,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows past the last one are taken for it. BLOCK_K is one group or several."""
    GROUPS: tl.constexpr = (K + 127) // 128
    WHOLE: tl.constexpr = GROUPS * 128 % BLOCK_K == 0
    o_k = tl.arange(0, BLOCK_K)
    o_unit = tl.arange(0, BLOCK_K // 4)[None, :]
    o_scale = tl.arange(0, BLOCK_K // 16)[None, :]
    o_wide = tl.minimum(o_n, N - 1)[:, None].to(tl.int64)
    p_units = p_w + o_wide * (GROUPS * 32) + o_unit
    p_scales = p_scale + o_wide * (GROUPS * 8) + o_scale
    p_rows = p_x + o_rows[:, None] * stride_x + o_k[None, :]
    acc = tl.zeros([BLOCK_N, BLOCK_R], tl.float32)
    for k in range(0, K, BLOCK_K):
        mask_k = (o_k < (BLOCK_K if K % BLOCK_K == 0 else K - k))[None, :]
        if WHOLE:
            b_units = tl.load(p_units + k // 4)
            b_scales = tl.load(p_scales + k // 16)
        else:
            left = GROUPS * 128 - k
            b_units = tl.load(p_units + k // 4, mask=o_unit < left // 4, other=0)
            b_scales = tl.load(p_scales + k // 16, mask=o_scale < left // 16, other=0.0)
        b_x = tl.load(p_rows + k, mask=mask_rows[:, None] & mask_k, other=0.0)
        b_w = four_bits(b_units, b_scales, BLOCK_N, BLOCK_K // 128)
        acc = dot(b_w.to(b_x.dtype), tl.trans(b_x), acc)
    return acc * SMALLER
