"""The grouped products of a window, where an expert is one block of up to 32 rows, mostly 1 to 3.

A program multiplies its tile of an expert's weights by all the rows of the expert, some at a time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.experts.grouped import Grouped
from streamglm.kernels.experts.kernel import weights
from streamglm.kernels.matrix import Matrix
from streamglm.kernels.mlp.kernel import glu_window, store_rows
from streamglm.kernels.product import Tile, product


@triton.jit
def window_gate_up_kernel(
    p_x, p_w, p_scale, p_whole, p_order, p_blocks, p_y, stride_x, BLOCKS, limit,
    stride_w, stride_scale,
    C: tl.constexpr, INNER: tl.constexpr, K: tl.constexpr,
    FORMAT: tl.constexpr, HALVES: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Hidden rows in the order of places, from x's rows, which are pairs over C."""
    overlap.behind()
    i_b = tl.program_id(1)
    count = tl.load(p_blocks + 2 * BLOCKS + i_b)
    i_e = tl.load(p_blocks + i_b).to(tl.int64)
    i_first = tl.load(p_blocks + BLOCKS + i_b)
    i_n = tl.program_id(0) * (BLOCK_N // 2)
    for i_r in range(0, count, BLOCK_R):
        o_r = i_r + tl.arange(0, BLOCK_R)
        mask = o_r < count
        o_place = (i_first + o_r).to(tl.int64)
        o_rows = (tl.load(p_order + o_place, mask=mask, other=0) // C).to(tl.int64)
        b_y = glu_window(p_x, o_rows, mask, stride_x, p_w + i_e * stride_w,
                         p_scale + i_e * stride_scale, p_whole + i_e * HALVES, i_n, limit,
                         INNER, K, FORMAT, HALVES, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
        store_rows(p_y, b_y, o_place, mask, i_n, INNER, INNER, BLOCK_N // 2)


@triton.jit
def window_down_kernel(
    p_x, p_w, p_scale, p_whole, p_order, p_blocks, p_y, BLOCKS, stride_w, stride_scale,
    N: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Results by pair, float32, from hidden rows in the order of places."""
    overlap.behind()
    i_b = tl.program_id(1)
    count = tl.load(p_blocks + 2 * BLOCKS + i_b)
    i_e = tl.load(p_blocks + i_b).to(tl.int64)
    i_first = tl.load(p_blocks + BLOCKS + i_b)
    i_n = tl.program_id(0) * BLOCK_N
    for i_r in range(0, count, BLOCK_R):
        o_r = i_r + tl.arange(0, BLOCK_R)
        mask = o_r < count
        o_place = (i_first + o_r).to(tl.int64)
        acc = product(p_x, o_place, mask, K, p_w + i_e * stride_w, p_scale + i_e * stride_scale,
                      i_n, N, K, FORMAT, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
        if FORMAT == 2:
            acc *= tl.load(p_whole + i_e)
        o_pair = tl.load(p_order + o_place, mask=mask, other=0).to(tl.int64)
        store_rows(p_y, acc, o_pair, mask, i_n, N, N, BLOCK_N)


def apply(
    x: torch.Tensor,
    grouped: Grouped,
    count: int,
    gate_up: Matrix,
    down: Matrix,
    limit: float,
    tiles: tuple[Tile, Tile],
) -> torch.Tensor:
    """Each row of x [R, K], R up to 32, through its `count` experts -> [R * count, D] float32."""
    pairs, inner, blocks = len(grouped.order), down.depth, grouped.table.shape[1]
    hidden = torch.empty(pairs, inner, dtype=x.dtype, device=x.device)
    first, second = tiles
    window_gate_up_kernel[(triton.cdiv(2 * inner, first.n), blocks)](
        p_x=x, **weights(gate_up), p_order=grouped.order, p_blocks=grouped.table, p_y=hidden,
        stride_x=x.stride(0), BLOCKS=blocks, limit=limit, C=count, INNER=inner, K=gate_up.depth,
        FORMAT=int(gate_up.format), HALVES=gate_up.halves,
        BLOCK_N=first.n, BLOCK_R=first.r, BLOCK_K=first.k,
        num_warps=first.warps, num_stages=first.stages, **overlap.options(),
    )  # fmt: skip
    found = torch.empty(pairs, down.width, device=x.device)
    window_down_kernel[(triton.cdiv(down.width, second.n), blocks)](
        p_x=hidden, **weights(down), p_order=grouped.order, p_blocks=grouped.table, p_y=found,
        BLOCKS=blocks, N=down.width, K=inner, FORMAT=int(down.format),
        BLOCK_N=second.n, BLOCK_R=second.r, BLOCK_K=second.k,
        num_warps=second.warps, num_stages=second.stages, **overlap.options(),
    )  # fmt: skip
    return found
