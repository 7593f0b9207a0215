"""The indexer on a GPU: pooled keys into pages, scores over pages, the best pools, their tokens.

Owns the order in which channels and heads are summed, and the levels of the selection. A prompt's
tile and a window take the same program: it holds a block of pools and goes through the rows that
share a page table, one after the other. Invariants: a row's scores depend on the row and the pool
alone; the selection is exact, and equal scores go to the lower pool; pools that a row does not see
are neither read nor written.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.arguments import ArgumentError
from streamglm.kernels.blocks import cast, dot, operand, ordered
from streamglm.kernels.pages import Pages

POOLS = 128
"""Pools of one program of the scores: the left operand of its product."""
SELECT = 4096
"""Candidates that one program of the selection takes; a power of two above the pools chosen."""


@triton.jit
def _pool_kernel(
    keys, gates, ape, members, slots, values,
    key_stride, gate_stride, page_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, PLACES: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """Pool i_p: the softmax over its tokens, channel by channel, weighs their keys."""
    overlap.behind()
    i_p = tl.program_id(0)
    slot = tl.load(slots + i_p)
    d = tl.arange(0, WIDTH)
    wanted = (d < D) & (tl.zeros_like(d) + slot >= 0)
    best = tl.full([WIDTH], float("-inf"), tl.float32)
    for token in tl.static_range(SIZE):
        row = tl.load(members + i_p * SIZE + token).to(tl.int64)
        gate = tl.load(gates + row * gate_stride + d, mask=wanted, other=0.0).to(tl.float32)
        best = tl.maximum(best, gate + tl.load(ape + token * D + d, mask=wanted, other=0.0))
    total = tl.zeros([WIDTH], tl.float32)
    pooled = tl.zeros([WIDTH], tl.float32)
    for token in tl.static_range(SIZE):
        row = tl.load(members + i_p * SIZE + token).to(tl.int64)
        gate = tl.load(gates + row * gate_stride + d, mask=wanted, other=0.0).to(tl.float32)
        gate += tl.load(ape + token * D + d, mask=wanted, other=0.0)
        share = tl.exp(gate - best)
        key = tl.load(keys + row * key_stride + d, mask=wanted, other=0.0).to(tl.float32)
        total += share
        pooled += tl.where(share > 0.0, share * key, 0.0)
    at = values + (slot // PLACES).to(tl.int64) * page_stride + slot % PLACES * D + d
    tl.store(at, cast(pooled / total, DTYPE), mask=wanted)


@triton.jit
def _scores_kernel(
    queries, weights, values, tables, lanes, visible, scores,
    rows, heads, table_stride, pools, page_stride, row_stride, head_stride, weight_stride,
    LANES: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    PLACES: tl.constexpr, GROUP: tl.constexpr, MEMBERS: tl.constexpr, KEYS: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """One block of pools against the GROUP rows that share table i_g, or that of their lane."""
    overlap.behind()
    i_g, i_p = tl.program_id(0), tl.program_id(1)
    i_t = tl.load(lanes + i_g) if LANES else i_g
    rest = tl.minimum(rows - i_g * GROUP, GROUP)
    member = tl.arange(0, MEMBERS)
    each = tl.load(visible + i_g * GROUP + member, mask=member < rest, other=0)
    most = tl.max(each, 0)
    pool = i_p * KEYS + tl.arange(0, KEYS)
    if i_p * KEYS < most:
        d, head = tl.arange(0, WIDTH), tl.arange(0, HEADS)
        there = pool < most
        page = tl.load(tables + i_t * table_stride + pool // PLACES, mask=there, other=0).to(
            tl.int64
        )
        start = page * page_stride + pool % PLACES * D
        wanted = there[:, None] & (d < D)[None, :]
        keys = tl.load(values + start[:, None] + d[None, :], mask=wanted, other=0.0)
        keys = operand(keys, DTYPE)
        for at in range(rest):
            row = i_g * GROUP + at
            real = (d < D)[:, None] & (head < heads)[None, :]
            at_head = queries + row.to(tl.int64) * row_stride + head[None, :] * head_stride
            query = tl.load(at_head + d[:, None], mask=real, other=0.0)
            product = dot(keys, operand(query, DTYPE))
            share = weights + row.to(tl.int64) * weight_stride + head
            weight = tl.load(share, mask=head < heads, other=0.0).to(tl.float32)
            found = tl.sum(tl.maximum(product, 0.0) * weight[None, :], 1)
            mine = tl.load(visible + row)
            tl.store(scores + row.to(tl.int64) * pools + pool, found, mask=pool < mine)


@triton.jit
def _select_kernel(
    scores, ids, counts, found_scores, found_ids, none, candidates, stride, width,
    COUNT: tl.constexpr, SPARE: tl.constexpr, BLOCK: tl.constexpr, FIRST: tl.constexpr,
    LAST: tl.constexpr,
):  # fmt: skip
    """The COUNT best of block i_b of row i_m, in the order in which they stand."""
    overlap.behind()
    i_m, i_b = tl.program_id(0), tl.program_id(1)
    at = i_b * BLOCK + tl.arange(0, BLOCK)
    start = i_m.to(tl.int64) * stride
    if FIRST:
        pool = at
        there = at < tl.load(counts + i_m)
    else:
        pool = tl.load(ids + start + at, mask=at < candidates, other=none)
        there = pool < none
    score = tl.load(scores + start + at, mask=there, other=0.0)
    key = tl.where(there, ordered(score), 0).to(tl.uint32)
    # The highest key that COUNT reach, or any that just COUNT do: halved between these two.
    least = tl.min(tl.where(there, key, 0xFFFFFFFF).to(tl.uint32), 0)
    most = tl.max(key, 0)
    reached = tl.sum(there.to(tl.int32), 0)
    while (least < most) & (reached > COUNT):
        middle = most - (most - least) // 2
        enough = tl.sum((key >= middle).to(tl.int32), 0)
        reached = tl.where(enough >= COUNT, enough, reached)
        most = tl.where(enough >= COUNT, most, middle - 1).to(tl.uint32)
        least = tl.where(enough >= COUNT, middle, least).to(tl.uint32)
    chosen = there & (key >= least)
    if reached > COUNT:  # equal keys, of which the lower pools are chosen
        ties = there & (key == least)
        room = COUNT - reached + tl.sum(ties.to(tl.int32), 0)
        chosen = chosen & ((key > least) | (tl.cumsum(ties.to(tl.int32), 0) <= room))
    if LAST:
        chosen = chosen & (score == score)
    rank = tl.cumsum(chosen.to(tl.int32), 0) - 1
    base = i_m.to(tl.int64) * width + i_b * COUNT
    tl.store(found_ids + base + rank, pool, mask=chosen)
    if not LAST:
        tl.store(found_scores + base + rank, score, mask=chosen)
    spare = tl.sum(chosen.to(tl.int32), 0) + tl.arange(0, SPARE)
    tl.store(found_ids + base + spare, tl.zeros_like(spare) + none, mask=spare < COUNT)


@triton.jit
def _lists_kernel(
    pools, lengths, tables, lanes, slots, table_stride, width, blank,
    LANES: tl.constexpr, COUNT: tl.constexpr, SIZE: tl.constexpr, PLACES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK places of row i_m's list: SIZE tokens a pool, then those of the incomplete pool."""
    overlap.behind()
    i_m = tl.program_id(0)
    i_t = tl.load(lanes + i_m) if LANES else i_m
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    length = tl.load(lengths + i_m)
    whole = length // SIZE
    place = at // SIZE
    pool = tl.load(pools + i_m * COUNT + place, mask=place < COUNT, other=whole)
    behind = at - COUNT * SIZE
    token = tl.where(place < COUNT, pool * SIZE + at % SIZE, whole * SIZE + behind)
    real = tl.where(place < COUNT, pool < whole, (behind < SIZE - 1) & (token < length))
    real = real & (token >= blank)
    page = tl.load(tables + i_t * table_stride + token // PLACES, mask=real, other=0)
    slot = tl.where(real, page * PLACES + token % PLACES, -1)
    tl.store(slots + i_m * width + at, slot, mask=at < width)


def pool_write(
    keys: torch.Tensor,
    gates: torch.Tensor,
    ape: torch.Tensor,
    members: torch.Tensor,
    pages: Pages,
    slots: torch.Tensor,
) -> None:
    """The keys of P whole pools into pages, each rounded once.

    keys and gates [rows, D] (rows may stand apart), ape [S, D] float32, members [P, S] int32 the
    rows of each pool, slots [P] int32, -1 for a pool that is none; pages float32 or bfloat16.
    Raises `ArgumentError` when the shapes do not fit.
    """
    count, size = members.shape
    d = keys.shape[1]
    if keys.shape != gates.shape or ape.shape != (size, d) or pages.dim != d:
        raise ArgumentError(
            f"pool_write: keys {keys.shape}, gates {gates.shape}, ape {ape.shape}, "
            f"members {members.shape}, pages of {pages.dim}"
        )
    if pages.scales is not None or slots.shape[0] != count:
        raise ArgumentError(
            f"pool_write: {count} pools, {slots.shape[0]} slots, {pages.values.dtype} pages"
        )
    _pool_kernel[(count,)](
        keys, gates, ape, members, slots, pages.values,
        keys.stride(0), gates.stride(0), pages.values.stride(0),
        D=d, WIDTH=triton.next_power_of_2(d), SIZE=size, PLACES=pages.rows,
        DTYPE=_dtype(pages.values), num_warps=1, **overlap.options(),
    )  # fmt: skip


def scores(
    queries: torch.Tensor,
    weights: torch.Tensor,
    keys: Pages,
    tables: torch.Tensor,
    visible: torch.Tensor,
    out: torch.Tensor,
    lanes: torch.Tensor | None = None,
) -> None:
    """sum_h w_h relu(q_h . k) of the pools that each row sees, into out [M, P] float32.

    queries [M, H, D], weights [M, H] with the two scales in them, keys pages of pools, tables
    [G, pages] int32, one for M / G rows of a lane each, visible [M] int32. With `lanes` [M] int32
    tables are those of all lanes, and row m reads that of lane m. Raises `ArgumentError` when the
    shapes do not fit.
    """
    m, h, d = queries.shape
    groups = len(tables) if lanes is None else len(lanes)
    if weights.shape != (m, h) or keys.dim != d or out.shape[0] != m or groups > m:
        raise ArgumentError(
            f"scores: queries {queries.shape}, weights {weights.shape}, keys of {keys.dim}, "
            f"out {out.shape}, tables {tables.shape}"
        )
    group = triton.cdiv(m, groups)
    _scores_kernel[(groups, triton.cdiv(out.shape[1], POOLS))](
        queries, weights, keys.values, tables, tables if lanes is None else lanes, visible, out,
        m, h, tables.stride(0), out.shape[1], keys.values.stride(0),
        queries.stride(0), queries.stride(1), weights.stride(0), LANES=lanes is not None,
        D=d, WIDTH=max(16, triton.next_power_of_2(d)), HEADS=max(16, triton.next_power_of_2(h)),
        PLACES=keys.rows, GROUP=group, MEMBERS=triton.next_power_of_2(group), KEYS=POOLS,
        DTYPE=_dtype(queries), num_warps=4, **overlap.options(),
    )  # fmt: skip


def select(
    scores: torch.Tensor, visible: torch.Tensor, count: int, block: int = SELECT
) -> torch.Tensor:
    """The `count` best of the first visible [M] int32 pools of scores [M, P] -> [M, count] int32.

    Ascending; P stands where fewer are visible, and for a score that is NaN, which takes the place
    of a best one. The best of every `block` come first, then the best of those; a block is at least
    twice `count`, so that every level is shorter. Raises `ArgumentError` when M does not fit.
    """
    m, none = scores.shape
    if visible.shape[0] != m:
        raise ArgumentError(f"select: scores {scores.shape}, visible {visible.shape}")
    block = max(block, 2 * triton.next_power_of_2(count))
    ids = visible
    first, left, stride = True, none, scores.stride(0)
    while True:
        blocks = triton.cdiv(left, block)
        last = blocks == 1
        found_ids = torch.empty(m, blocks * count, dtype=torch.int32, device=scores.device)
        found = scores if last else torch.empty(m, blocks * count, device=scores.device)
        _select_kernel[(m, blocks)](
            scores, ids, visible, found, found_ids, none, left, stride, blocks * count,
            COUNT=count, SPARE=triton.next_power_of_2(count),
            BLOCK=min(block, max(2, triton.next_power_of_2(left))), FIRST=first, LAST=last,
            num_warps=8, **overlap.options(),
        )  # fmt: skip
        if last:
            return found_ids
        scores, ids, first = found, found_ids, False
        left = stride = blocks * count


def token_lists(
    pools: torch.Tensor,
    lengths: torch.Tensor,
    tables: torch.Tensor,
    *,
    page: int,
    pool: int,
    blank: bool = False,
    lanes: torch.Tensor | None = None,
) -> torch.Tensor:
    """Slots of the tokens of pools [M, K] int32, and of the incomplete pool at the end.

    lengths [M] int32 visible tokens, tables [M, pages] int32 -> [M, L] int32, ascending in the
    token, -1 where there is none, L = K * pool + pool - 1 padded to 16. Token 0 is left out of a
    `blank` layer. With `lanes` [M] int32 tables are those of all lanes, and row m reads that of
    lane m. Raises `ArgumentError` when M does not fit.
    """
    m, k = pools.shape
    if not m == lengths.shape[0] == (len(tables) if lanes is None else len(lanes)):
        raise ArgumentError(f"token_lists: pools {pools.shape}, tables {tables.shape}")
    width = triton.cdiv((k + 1) * pool - 1, 16) * 16
    slots = torch.empty(m, width, dtype=torch.int32, device=pools.device)
    block = min(1024, triton.next_power_of_2(width))
    _lists_kernel[(m, triton.cdiv(width, block))](
        pools, lengths, tables, tables if lanes is None else lanes, slots, tables.stride(0), width,
        int(blank), LANES=lanes is not None, COUNT=k, SIZE=pool, PLACES=page, BLOCK=block,
        num_warps=4, **overlap.options(),
    )  # fmt: skip
    return slots


def _dtype(rows: torch.Tensor) -> tl.dtype:
    return tl.bfloat16 if rows.dtype == torch.bfloat16 else tl.float32
