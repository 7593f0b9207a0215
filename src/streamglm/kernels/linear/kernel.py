"""Linear layers over weights of any format: one kernel for windows and prompts, in two tiles.

On plain weights there are others, whose blocks come by tensor descriptors: `prompt_kernel`, and
`window_kernel` for weights that are not very wide.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.blocks import cast
from streamglm.kernels.linear import window_kernel
from streamglm.kernels.matrix import Matrix
from streamglm.kernels.persistent import GROUP_R, place
from streamglm.kernels.product import Tile, head_tile, parts, product, prompt_tile, window_tile


@triton.jit(do_not_specialize=["R"])
def linear_kernel(
    p_x, p_w, p_scale, p_whole, p_y, stride_x, R,
    N: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr, GROUP_R: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    overlap.behind()
    i_n, i_r = place(tl.program_id(0), tl.cdiv(N, BLOCK_N), tl.cdiv(R, BLOCK_R), GROUP_R)
    o_rows = (i_r * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
    mask_rows = o_rows < R
    acc = product(p_x, o_rows, mask_rows, stride_x, p_w, p_scale, i_n * BLOCK_N,
                  N, K, FORMAT, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
    if FORMAT == 2:
        acc *= tl.load(p_whole)
    _store(p_y, acc, o_rows, mask_rows, i_n, N, N, BLOCK_N)


@triton.jit
def _store(p_y, acc, o_rows, mask_rows, i_n, stride_y, N: tl.constexpr, BLOCK_N: tl.constexpr):
    o_n = i_n * BLOCK_N + tl.arange(0, BLOCK_N)
    p_out = p_y + o_rows[:, None] * stride_y + o_n[None, :]
    mask = mask_rows[:, None] & (o_n < N)[None, :]
    tl.store(p_out, cast(tl.trans(acc), p_y.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["R"])
def head_kernel(
    p_x, p_w, p_y, stride_x, stride_head, R, HEADS,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows of head i_h of x [R, H, K] times that head's matrix."""
    overlap.behind()
    i_n, i_r, i_h = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    o_rows = (i_r * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
    mask_rows = o_rows < R
    acc = product(p_x + i_h * stride_head, o_rows, mask_rows, stride_x, p_w + i_h * N * K, p_w,
                  i_n * BLOCK_N, N, K, 0, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
    _store(p_y + i_h * N, acc, o_rows, mask_rows, i_n, HEADS * N, N, BLOCK_N)


def by_head(x: torch.Tensor, stack: Matrix, wide: bool) -> torch.Tensor:
    """x [R, H, K] with heads apart or not, stack [H, N, K] plain -> [R, H, N]."""
    rows, heads, depth = x.shape
    tile = head_tile(wide)
    y = torch.empty(rows, heads, stack.width, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(stack.width, tile.n), triton.cdiv(rows, tile.r), heads)
    head_kernel[grid](
        p_x=x, p_w=stack.numbers, p_y=y, stride_x=x.stride(0), stride_head=x.stride(1), R=rows,
        HEADS=heads, N=stack.width, K=depth,
        BLOCK_N=tile.n, BLOCK_R=tile.r, BLOCK_K=tile.k,
        num_warps=tile.warps, num_stages=tile.stages, **overlap.options(),
    )  # fmt: skip
    return y


def window(x: torch.Tensor, matrix: Matrix, dtype: torch.dtype) -> torch.Tensor:
    """x [R, K], R up to 32 -> [R, N]."""
    if window_kernel.described(x, matrix):
        return window_kernel.window(x, matrix, dtype)
    return _by_pointers(x, matrix, dtype, window_tile(matrix))


def prompt(x: torch.Tensor, matrix: Matrix, dtype: torch.dtype) -> torch.Tensor:
    """x [R, K] -> [R, N]."""
    return _by_pointers(x, matrix, dtype, prompt_tile(matrix))


def _by_pointers(x: torch.Tensor, matrix: Matrix, dtype: torch.dtype, tile: Tile) -> torch.Tensor:
    y = torch.empty(len(x), matrix.width, dtype=dtype, device=x.device)
    linear_kernel[_grid(len(x), matrix, tile)](
        p_x=x, **parts(matrix), p_y=y, stride_x=x.stride(0), R=len(x),
        N=matrix.width, K=matrix.depth, FORMAT=int(matrix.format), GROUP_R=GROUP_R,
        BLOCK_N=tile.n, BLOCK_R=tile.r, BLOCK_K=tile.k,
        num_warps=tile.warps, num_stages=tile.stages, **overlap.options(),
    )  # fmt: skip
    return y


def _grid(rows: int, matrix: Matrix, tile: Tile) -> tuple[int]:
    return (triton.cdiv(matrix.width, tile.n) * triton.cdiv(rows, tile.r),)
