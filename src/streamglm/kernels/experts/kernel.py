"""Routed experts: the choice, rows grouped by expert, the grouped products, their sum in order.

A block is up to `Tile.r` rows of one expert. Nothing is added up by atomics: a row finds the
results of its experts side by side, ascending in the expert.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.blocks import cast, ordered, sigmoid
from streamglm.kernels.experts.grouped import Grouped
from streamglm.kernels.matrix import Matrix
from streamglm.kernels.mlp.kernel import glu, store_rows
from streamglm.kernels.product import Tile, parts, product

LEAST = tl.constexpr(-3.0e38)


@triton.jit
def choose_kernel(
    p_logits, p_bias, p_chosen, p_shares, stride_logits, factor,
    E: tl.constexpr, C: tl.constexpr, NORMALISE: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """A row: the C largest of score + bias, ties to the lower expert; NaN comes last."""
    i_row = tl.program_id(0).to(tl.int64)
    o_e = tl.arange(0, BLOCK_E)
    mask = o_e < E
    b_bias = tl.load(p_bias + o_e, mask=mask, other=0.0)
    overlap.behind()
    b_score = sigmoid(tl.load(p_logits + i_row * stride_logits + o_e, mask=mask, other=0.0))
    b_key = b_score + b_bias
    b_key = tl.where(b_key == b_key, tl.maximum(b_key, LEAST), LEAST)
    # As integers, of which a warp finds the largest in one instruction; 0 is no expert.
    b_left = tl.where(mask, ordered(b_key), 0).to(tl.uint32)
    for _ in range(C):
        best = tl.max(b_left, 0)
        i_best = tl.min(tl.where(b_left == best, o_e, BLOCK_E), 0)
        b_left = tl.where(o_e == i_best, 0, b_left).to(tl.uint32)
    chosen = mask & (b_left == 0)
    o_c = i_row * C + tl.cumsum(chosen.to(tl.int32), 0) - 1
    if NORMALISE:
        b_score = b_score / (tl.sum(tl.where(chosen, b_score, 0.0), 0) + 1e-20)
    tl.store(p_chosen + o_c, o_e, mask=chosen)
    tl.store(p_shares + o_c, b_score * factor, mask=chosen)


@triton.jit(do_not_specialize=["ROWS", "BLOCKS"])
def group_kernel(
    p_chosen, p_order, p_blocks, ROWS, BLOCKS,
    E: tl.constexpr, C: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """All pairs of a window, a block an expert. A thread has pairs and experts of its own and goes
    through all pairs: what it counts is added up in no other thread."""
    overlap.behind()
    o_i = tl.arange(0, BLOCK_P)
    o_e = tl.arange(0, BLOCK_E)
    mask = o_i < ROWS * C
    b_key = tl.load(p_chosen + o_i, mask=mask, other=0) * BLOCK_P + o_i
    b_place = tl.zeros([BLOCK_P], tl.int32)
    b_count = tl.zeros([BLOCK_E], tl.int32)
    for i_row in range(ROWS):
        p_row = p_chosen + i_row * C
        b_from = b_key - i_row * C
        for c in tl.static_range(C):
            i_e = tl.load(p_row + c)
            b_place -= (i_e * BLOCK_P + c - b_from) >> 31  # of a negative number -1
            b_count -= ((i_e ^ o_e) - 1) >> 31
    tl.store(p_order + b_place, o_i, mask=mask)
    # Pairs of the experts before, and above 16 bits those experts that have any.
    b_some = (b_count > 0).to(tl.int32)
    b_both = tl.cumsum(b_count + (b_some << 16), 0)
    b_first = (b_both & 0xFFFF) - b_count
    b_before = (b_both >> 16) - b_some
    # Experts without pairs fill the columns from the last one on, with zeros.
    o_b = tl.where(b_count > 0, b_before, E - 1 - (o_e - b_before))
    inside = (o_e < E) & (o_b < BLOCKS)
    tl.store(p_blocks + o_b, o_e * b_some, mask=inside)
    tl.store(p_blocks + BLOCKS + o_b, b_first * b_some, mask=inside)
    tl.store(p_blocks + 2 * BLOCKS + o_b, b_count, mask=inside)


@triton.jit
def gate_up_kernel(
    p_x, p_w, p_scale, p_whole, p_order, p_blocks, p_y, stride_x, BLOCKS, limit,
    stride_w, stride_scale,
    C: tl.constexpr, INNER: tl.constexpr, K: tl.constexpr,
    FORMAT: tl.constexpr, HALVES: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Hidden rows in the order of places, from x's rows, which are pairs over C."""
    i_b = tl.program_id(1)
    count = tl.load(p_blocks + 2 * BLOCKS + i_b)
    if count > 0:
        i_e = tl.load(p_blocks + i_b).to(tl.int64)
        o_r = tl.arange(0, BLOCK_R)
        o_place = (tl.load(p_blocks + BLOCKS + i_b) + o_r).to(tl.int64)
        mask = o_r < count
        o_rows = (tl.load(p_order + o_place, mask=mask, other=0) // C).to(tl.int64)
        i_n = tl.program_id(0) * BLOCK_N
        b_y = glu(p_x, o_rows, mask, stride_x, p_w + i_e * stride_w,
                  p_scale + i_e * stride_scale, p_whole + i_e * HALVES, i_n, limit,
                  INNER, K, FORMAT, HALVES, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
        store_rows(p_y, b_y, o_place, mask, i_n, INNER, INNER, BLOCK_N)


@triton.jit
def down_kernel(
    p_x, p_w, p_scale, p_whole, p_order, p_blocks, p_y, BLOCKS, stride_w, stride_scale,
    N: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Results by pair, float32, from hidden rows in the order of places."""
    i_b = tl.program_id(1)
    count = tl.load(p_blocks + 2 * BLOCKS + i_b)
    if count > 0:
        i_e = tl.load(p_blocks + i_b).to(tl.int64)
        o_r = tl.arange(0, BLOCK_R)
        o_place = (tl.load(p_blocks + BLOCKS + i_b) + o_r).to(tl.int64)
        mask = o_r < count
        i_n = tl.program_id(0) * BLOCK_N
        acc = product(p_x, o_place, mask, K, p_w + i_e * stride_w, p_scale + i_e * stride_scale,
                      i_n, N, K, FORMAT, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
        if FORMAT == 2:
            acc *= tl.load(p_whole + i_e)
        o_pair = tl.load(p_order + o_place, mask=mask, other=0).to(tl.int64)
        store_rows(p_y, acc, o_pair, mask, i_n, N, N, BLOCK_N)


@triton.jit
def combine_kernel(
    p_found, p_shares, p_shared, p_y, stride_shared, N,
    C: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    overlap.behind()
    i_row = tl.program_id(0).to(tl.int64)
    o_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = o_n < N
    acc = tl.zeros([BLOCK_N], tl.float32)
    for c in tl.static_range(C):  # so that all loads are on their way at once
        b_found = tl.load(p_found + (i_row * C + c) * N + o_n, mask=mask, other=0.0)
        acc += tl.load(p_shares + i_row * C + c) * b_found.to(tl.float32)
    acc += tl.load(p_shared + i_row * stride_shared + o_n, mask=mask, other=0.0).to(tl.float32)
    tl.store(p_y + i_row * N + o_n, cast(acc, p_y.dtype.element_ty), mask=mask)


def choose(
    logits: torch.Tensor, bias: torch.Tensor, count: int, normalise: bool, factor: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits [R, E] float32 -> experts [R, C] int32, ascending, and their shares [R, C]."""
    rows, experts = logits.shape
    chosen = torch.empty(rows, count, dtype=torch.int32, device=logits.device)
    shares = torch.empty(rows, count, device=logits.device)
    choose_kernel[(rows,)](
        p_logits=logits, p_bias=bias, p_chosen=chosen, p_shares=shares,
        stride_logits=logits.stride(0), factor=factor, E=experts, C=count, NORMALISE=normalise,
        BLOCK_E=triton.next_power_of_2(experts), num_warps=1, **overlap.options(),
    )  # fmt: skip
    return chosen, shares


def group_window(chosen: torch.Tensor, experts: int) -> Grouped:
    """`group` for the pairs of a window, in one launch: an expert has one block at most."""
    rows, count = chosen.shape
    pairs = rows * count
    blocks = min(pairs, experts)
    order = torch.empty(pairs, dtype=torch.int32, device=chosen.device)
    table = torch.empty(3, blocks, dtype=torch.int32, device=chosen.device)
    group_kernel[(1,)](
        p_chosen=chosen, p_order=order, p_blocks=table, ROWS=rows, BLOCKS=blocks,
        E=experts, C=count, BLOCK_P=triton.next_power_of_2(pairs),
        BLOCK_E=triton.next_power_of_2(experts), num_warps=8, **overlap.options(),
    )  # fmt: skip
    return Grouped(order, table)


def apply(
    x: torch.Tensor,
    grouped: Grouped,
    count: int,
    gate_up: Matrix,
    down: Matrix,
    limit: float,
    tiles: tuple[Tile, Tile],
) -> torch.Tensor:
    """Each row of x [R, K] through its `count` experts -> [R * count, D] float32."""
    pairs, inner, blocks = len(grouped.order), down.depth, grouped.table.shape[1]
    hidden = torch.empty(pairs, inner, dtype=x.dtype, device=x.device)
    first, second = tiles
    gate_up_kernel[(triton.cdiv(inner, first.n), blocks)](
        p_x=x, **weights(gate_up), p_order=grouped.order, p_blocks=grouped.table, p_y=hidden,
        stride_x=x.stride(0), BLOCKS=blocks, limit=limit, C=count, INNER=inner, K=gate_up.depth,
        FORMAT=int(gate_up.format), HALVES=gate_up.halves,
        BLOCK_N=first.n, BLOCK_R=first.r, BLOCK_K=first.k,
        num_warps=first.warps, num_stages=first.stages,
    )  # fmt: skip
    found = torch.empty(pairs, down.width, device=x.device)
    down_kernel[(triton.cdiv(down.width, second.n), blocks)](
        p_x=hidden, **weights(down), p_order=grouped.order, p_blocks=grouped.table, p_y=found,
        BLOCKS=blocks, N=down.width, K=inner, FORMAT=int(down.format),
        BLOCK_N=second.n, BLOCK_R=second.r, BLOCK_K=second.k,
        num_warps=second.warps, num_stages=second.stages,
    )  # fmt: skip
    return found


def combine(found: torch.Tensor, shares: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
    """found [R * C, D], shares [R, C], shared [R, D] -> [R, D] of shared's dtype."""
    rows, count = shares.shape
    width = found.shape[1]
    y = torch.empty(rows, width, dtype=shared.dtype, device=shared.device)
    block = min(512, max(128, triton.next_power_of_2(width)))
    combine_kernel[(rows, triton.cdiv(width, block))](
        p_found=found, p_shares=shares, p_shared=shared, p_y=y, stride_shared=shared.stride(0),
        N=width, C=count, BLOCK_N=block, num_warps=block // 128, **overlap.options(),
    )  # fmt: skip
    return y


def weights(stack: Matrix) -> dict[str, object]:
    """What a grouped product is told of its weights."""
    return {
        **parts(stack),
        "stride_w": stack.numbers.stride(0),
        "stride_scale": 0 if stack.scales is None else stack.scales.stride(0),
    }
