"""Routed experts over the many rows of a prompt and plain weights, by tensor descriptors.

Rows are copied once into the order of places, where those of an expert stand side by side, so a
block of them is a block of a descriptor; what it reads of the expert behind is left out when it is
given out. What descriptors do not take, `kernel` computes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from streamglm.kernels.blocks import cast, dot
from streamglm.kernels.experts.grouped import Grouped
from streamglm.kernels.matrix import Matrix
from streamglm.kernels.mlp.kernel import swiglu
from streamglm.kernels.persistent import (
    GROUP_R,
    aligned,
    depth,
    described,
    double_tile,
    halves,
    place,
    programs,
    stored,
    wide_tile,
)

BLOCK = double_tile().r
"""Rows of one expert in a block."""
_MOST = 1024
"""Blocks up to which one variant of a kernel serves any number of them."""


@triton.jit(do_not_specialize=["PAIRS"])
def count_kernel(p_chosen, p_counts, PAIRS, BLOCK_P: tl.constexpr):
    """An expert's program counts its pairs."""
    i_e, o_p = tl.program_id(0), tl.arange(0, BLOCK_P)
    mine = tl.zeros([BLOCK_P], tl.int32)
    for i in tl.range(0, PAIRS, BLOCK_P):
        b_e = tl.load(p_chosen + i + o_p, mask=i + o_p < PAIRS, other=-1)
        mine += (b_e == i_e).to(tl.int32)
    tl.store(p_counts + i_e, tl.sum(mine, 0))


@triton.jit(do_not_specialize=["BLOCKS"])
def table_kernel(
    p_counts, p_starts, p_blocks, BLOCKS,
    E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """One program cuts the pairs of all experts into blocks."""
    o_e = tl.arange(0, BLOCK_E)
    counts = tl.load(p_counts + o_e, mask=o_e < E, other=0)
    starts = tl.cumsum(counts, 0) - counts
    blocks = (counts + BLOCK_R - 1) // BLOCK_R
    first = tl.cumsum(blocks, 0) - blocks
    tl.store(p_starts + o_e, starts, mask=o_e < E)
    for j in tl.range(0, tl.max(blocks, 0)):
        there = j < blocks
        tl.store(p_blocks + first + j, o_e, mask=there)
        tl.store(p_blocks + BLOCKS + first + j, starts + j * BLOCK_R, mask=there)
        left = tl.minimum(counts - j * BLOCK_R, BLOCK_R)
        tl.store(p_blocks + 2 * BLOCKS + first + j, left, mask=there)
    for b in tl.range(tl.sum(blocks, 0), BLOCKS, BLOCK_E):
        idle = b + o_e < BLOCKS
        for part in tl.static_range(3):
            tl.store(p_blocks + part * BLOCKS + b + o_e, tl.zeros([BLOCK_E], tl.int32), mask=idle)


@triton.jit(do_not_specialize=["PAIRS"])
def order_kernel(p_chosen, p_starts, p_order, PAIRS, BLOCK_P: tl.constexpr):
    """An expert's program finds its pairs, ascending."""
    i_e, o_p = tl.program_id(0), tl.arange(0, BLOCK_P)
    place = tl.load(p_starts + i_e)
    for i in tl.range(0, PAIRS, BLOCK_P):
        mine = tl.load(p_chosen + i + o_p, mask=i + o_p < PAIRS, other=-1) == i_e
        before = tl.cumsum(mine.to(tl.int32), 0)
        tl.store(p_order + place + before - 1, i + o_p, mask=mine)
        place += tl.sum(mine.to(tl.int32), 0)


@triton.jit
def gather_kernel(
    p_x, p_order, p_y, stride_x,
    C: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The row of place i, which is a pair over C, to row i."""
    i_place = tl.program_id(0).to(tl.int64)
    i_row = (tl.load(p_order + i_place) // C).to(tl.int64)
    for k in tl.static_range(0, K, BLOCK_K):
        o_k = k + tl.arange(0, BLOCK_K)
        b_x = tl.load(p_x + i_row * stride_x + o_k, mask=o_k < K)
        tl.store(p_y + i_place * K + o_k, b_x, mask=o_k < K)


@triton.jit
def blocks_of(p_blocks, BLOCKS, MOST: tl.constexpr):
    """Blocks that have rows; they stand first."""
    o_b = tl.arange(0, MOST)
    counts = tl.load(p_blocks + 2 * BLOCKS + o_b, mask=o_b < BLOCKS, other=0)
    return tl.sum((counts > 0).to(tl.int32), 0)


@triton.jit(do_not_specialize=["PROGRAMS", "BLOCKS"])
def gate_up_prompt_kernel(
    d_x, d_w, p_blocks, p_y, BLOCKS, limit, PROGRAMS,
    INNER: tl.constexpr, K: tl.constexpr, GROUP_R: tl.constexpr, MOST: tl.constexpr,
    DTYPE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Hidden rows from x's, both in the order of places; d_w stands on [2 E, INNER, K]."""
    tiles_n, used = tl.cdiv(INNER, BLOCK_N), blocks_of(p_blocks, BLOCKS, MOST)
    for i in tl.range(tl.program_id(0), tiles_n * used, PROGRAMS, flatten=True):
        i_n, i_b = place(i, tiles_n, used, GROUP_R)
        i_e = tl.load(p_blocks + i_b)
        first, count = tl.load(p_blocks + BLOCKS + i_b), tl.load(p_blocks + 2 * BLOCKS + i_b)
        acc = tl.zeros([BLOCK_R, 2 * BLOCK_N], tl.float32)
        for k in range(0, K, BLOCK_K):
            b_x = d_x.load([first, k])
            b_w = tl.reshape(d_w.load([2 * i_e, i_n * BLOCK_N, k]), [2 * BLOCK_N, BLOCK_K])
            acc = dot(b_x, tl.trans(b_w), acc)
        gate, up = halves(acc, BLOCK_R, 2 * BLOCK_N)
        b_y = cast(swiglu(gate, up, limit), DTYPE)
        o_r, o_n = tl.arange(0, BLOCK_R), i_n * BLOCK_N + tl.arange(0, BLOCK_N)
        mask = (o_r < count)[:, None] & (o_n < INNER)[None, :]
        o_place = (first + o_r).to(tl.int64)
        tl.store(p_y + o_place[:, None] * INNER + o_n[None, :], b_y, mask=mask)


@triton.jit(do_not_specialize=["PROGRAMS", "BLOCKS"])
def down_prompt_kernel(
    d_x, d_w, p_order, p_blocks, p_y, BLOCKS, PROGRAMS,
    N: tl.constexpr, K: tl.constexpr, GROUP_R: tl.constexpr, MOST: tl.constexpr,
    DTYPE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Results by pair from hidden rows in the order of places; d_w stands on [E N, K]."""
    tiles_n, used = tl.cdiv(N, BLOCK_N), blocks_of(p_blocks, BLOCKS, MOST)
    for i in tl.range(tl.program_id(0), tiles_n * used, PROGRAMS, flatten=True):
        i_n, i_b = place(i, tiles_n, used, GROUP_R)
        i_e = tl.load(p_blocks + i_b)
        first, count = tl.load(p_blocks + BLOCKS + i_b), tl.load(p_blocks + 2 * BLOCKS + i_b)
        acc = tl.zeros([BLOCK_R, BLOCK_N], tl.float32)
        for k in range(0, K, BLOCK_K):
            b_x = d_x.load([first, k])
            b_w = d_w.load([i_e * N + i_n * BLOCK_N, k])
            acc = dot(b_x, tl.trans(b_w), acc)
        o_r, o_n = tl.arange(0, BLOCK_R), i_n * BLOCK_N + tl.arange(0, BLOCK_N)
        here = o_r < count
        o_pair = tl.load(p_order + first + o_r, mask=here, other=0).to(tl.int64)
        mask = here[:, None] & (o_n < N)[None, :]
        tl.store(p_y + o_pair[:, None] * N + o_n[None, :], cast(acc, DTYPE), mask=mask)


def group(chosen: torch.Tensor, experts: int) -> Grouped:
    """`grouped.group` in three launches, in blocks of `BLOCK` rows; chosen [R, C] side by side."""
    pairs, there = chosen.numel(), chosen.device
    blocks = pairs // BLOCK + min(experts, pairs)
    order = torch.empty(pairs, dtype=torch.int32, device=there)
    counts, starts = torch.empty(2, experts, dtype=torch.int32, device=there)
    table = torch.empty(3, blocks, dtype=torch.int32, device=there)
    count_kernel[(experts,)](
        p_chosen=chosen, p_counts=counts, PAIRS=pairs, BLOCK_P=4096, num_warps=4
    )
    table_kernel[(1,)](
        p_counts=counts, p_starts=starts, p_blocks=table, BLOCKS=blocks, E=experts,
        BLOCK_E=triton.next_power_of_2(experts), BLOCK_R=BLOCK, num_warps=4,
    )  # fmt: skip
    order_kernel[(experts,)](
        p_chosen=chosen, p_starts=starts, p_order=order, PAIRS=pairs, BLOCK_P=1024, num_warps=4
    )
    return Grouped(order, table)


def takes(x: torch.Tensor, gate_up: Matrix, down: Matrix) -> bool:
    """Whether `apply` computes rows like x with the stacks."""
    both = described(gate_up, x.dtype) and described(down, x.dtype)
    return both and aligned(down.depth, x.dtype)


def apply(
    x: torch.Tensor, grouped: Grouped, count: int, gate_up: Matrix, down: Matrix, limit: float
) -> torch.Tensor:
    """Each row of x [R, K] through its `count` experts -> [R * count, D] of x's dtype; `grouped`
    in blocks of `BLOCK` rows."""
    pairs, inner, blocks = len(grouped.order), down.depth, grouped.table.shape[1]
    apart = torch.empty(pairs, x.shape[1], dtype=x.dtype, device=x.device)
    gather_kernel[(pairs,)](
        p_x=x, p_order=grouped.order, p_y=apart, stride_x=x.stride(0),
        C=count, K=x.shape[1], BLOCK_K=min(2048, triton.next_power_of_2(x.shape[1])), num_warps=4,
    )  # fmt: skip
    hidden = torch.empty(pairs, inner, dtype=x.dtype, device=x.device)
    shared = {
        "p_blocks": grouped.table, "BLOCKS": blocks, "GROUP_R": GROUP_R,
        "MOST": max(_MOST, triton.next_power_of_2(blocks)), "DTYPE": stored(x.dtype),
    }  # fmt: skip
    tile = double_tile()
    k, programs_ = depth(tile, x.dtype), programs(blocks * triton.cdiv(inner, tile.n), x.device)
    halves_of = gate_up.numbers.view(-1, inner, gate_up.depth)
    gate_up_prompt_kernel[(programs_,)](
        d_x=TensorDescriptor.from_tensor(apart, [tile.r, k]),
        d_w=TensorDescriptor.from_tensor(halves_of, [2, tile.n, k]), p_y=hidden, limit=limit,
        PROGRAMS=programs_, INNER=inner, K=gate_up.depth,
        BLOCK_N=tile.n, BLOCK_R=tile.r, BLOCK_K=k,
        num_warps=tile.warps, num_stages=tile.stages, **shared,
    )  # fmt: skip
    found = torch.empty(pairs, down.width, dtype=x.dtype, device=x.device)
    tile = wide_tile(down.width)
    programs_ = programs(blocks * triton.cdiv(down.width, tile.n), x.device)
    k = depth(tile, x.dtype)
    down_prompt_kernel[(programs_,)](
        d_x=TensorDescriptor.from_tensor(hidden, [tile.r, k]),
        d_w=TensorDescriptor.from_tensor(down.numbers.flatten(0, 1), [tile.n, k]),
        p_order=grouped.order, p_y=found,
        PROGRAMS=programs_, N=down.width, K=inner,
        BLOCK_N=tile.n, BLOCK_R=tile.r, BLOCK_K=k,
        num_warps=tile.warps, num_stages=tile.stages, **shared,
    )  # fmt: skip
    return found
