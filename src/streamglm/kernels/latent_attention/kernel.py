"""Attention in latent space on a GPU: dense over a prefix, or over each row's own list.

Owns both forms, the split of a list over programs and the merge of its pieces. A program holds
o [COLUMNS, D] of as many columns as the widest matrix instruction has rows; a column is one head
of one row. Invariants: a column's bits depend on its query and its keys in their order, `keys` of
its `Form` at a time, on the length of the list and of a piece; not on the columns beside it, the
number of heads or of rows, the pages, or how many blocks without a visible key come after. What a
row does not see is not read.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.arguments import ArgumentError
from streamglm.kernels.blocks import cast, dot, operand
from streamglm.kernels.overlap import behind
from streamglm.kernels.pages import Pages

COLUMNS = 64
"""Heads, or rows x heads, side by side in a program."""


class Form(NamedTuple):
    """How a program goes about its keys."""

    keys: int
    """Merged at a time: part of the bits."""
    stages: int
    """Blocks of keys that are held: all but one are fetched while that one is used."""
    warps: int
    """Two groups of four share the D values of o."""
    twice: bool
    """Each group computes all scores, and neither waits for the other's maximum."""


WINDOW = Form(keys=64, stages=2, warps=8, twice=False)
PROMPT = Form(keys=64, stages=2, warps=8, twice=False)
DENSE = Form(keys=64, stages=2, warps=8, twice=False)
PIECE = 128
"""Keys of a list that one program of the window form takes, a multiple of its form's."""
JOINED = True
"""What is left of a list behind its last whole piece is part of that piece, not one of its own."""
MERGED = 16
"""Pieces that the merge asks for at once."""

LOWEST = tl.constexpr(float("-inf"))


@triton.jit
def _merge_block(
    query, best, total, out, keys, scale, seen, first, end,
    KEYS: tl.constexpr, DTYPE: tl.constexpr, SCALED: tl.constexpr, TWICE: tl.constexpr,
):  # fmt: skip
    """The block of keys [N, D] from `first`, below `end`, into best [C], total [C, N] and
    out [C, D]; seen [1 or C, N]. What is in `total` is summed over its places after the last block:
    a sum over warps makes them wait for each other.

    The branches change no value, but what the compiler makes of it. A product in a branch of its
    own has its warps by its own shape, while one that leads to another product is computed by each
    group of warps anew (TWICE). What comes after a branch stands behind the loads of the next
    block, and not before them. And where both branches have a product, what changes its layout is
    the shares, once, and not the scores and all that is made of them.
    """
    if first < end:
        if TWICE:
            scores = dot(query, tl.trans(keys))
        elif first + KEYS <= end:
            scores = dot(query, tl.trans(keys))
        else:
            scores = dot(query, tl.trans(keys))
        if SCALED:
            scores *= scale[None, :]
        scores = tl.where(seen, scores, LOWEST)
        higher = tl.maximum(best, tl.max(scores, 1))
        base = tl.where(higher == LOWEST, 0.0, higher)
        shares = tl.exp(scores - base[:, None])
        shrink = tl.exp(best - base)
        total = total * shrink[:, None] + shares
        if SCALED:
            shares *= scale[None, :]
        out = dot(operand(shares, DTYPE), keys, out * shrink[:, None])
        best = higher
    return best, total, out


@triton.jit
def in_pairs(total, KEYS: tl.constexpr, HEADS: tl.constexpr):
    """total [C, KEYS] summed over its keys -> [C]: neighbours, neighbours of these sums, and so on,
    which is one order wherever the values lie. Neighbours are of one thread or one warp in layouts
    of products, so that only the last sums change hands, and no addresses lie ready for all."""
    for level in tl.static_range(1, 9):
        if KEYS >> level >= 1:
            total = tl.sum(tl.reshape(total, [HEADS, KEYS >> level, 2]), 2)
    return tl.reshape(total, [HEADS])


@triton.jit
def load_slots(slots, i_m, first, end, length, KEYS: tl.constexpr, LONG: tl.constexpr):
    """The block at `first` of row i_m's list, up to `end` -> slots [KEYS] uint32, which of them are
    there, and which count.

    The last block of a LONG list begins where it ends with the list, and leaves out what the block
    before has had: addresses of neighbours need no bound of their own then.
    """
    if LONG:
        at = tl.minimum(first, end - KEYS) + tl.arange(0, KEYS)
        slot = tl.load(slots + i_m.to(tl.int64) * length + at)
        there = slot >= 0
        seen = there & (at >= first)
    else:
        at = first + tl.arange(0, KEYS)
        slot = tl.load(slots + i_m.to(tl.int64) * length + tl.minimum(at, end - 1))
        there = slot >= 0
        seen = there & (at < end)
    return slot.to(tl.uint32, bitcast=True), there, seen


@triton.jit
def load_keys(
    values, scales, page, place, there, scale_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, UNIT: tl.constexpr, UNITS: tl.constexpr,
    DTYPE: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Rows [N, WIDTH] at (page, place) [N] as operands, and their scales; zeros unless there.

    Addresses are a good part of what a program computes: pages, UNITS from one to the next, and
    rows begin at whole UNITs of values, of which 32 bits count enough where they are large.
    """
    d = tl.arange(0, WIDTH)
    if UNIT < 64:
        page = page.to(tl.int64)
    start = (page * UNITS + place * (D // UNIT)).to(tl.int64) * UNIT
    wanted = there[:, None]
    if D < WIDTH:
        wanted &= (d < D)[None, :]
    keys = tl.load((values + d)[None, :] + start[:, None], mask=wanted, other=0.0)
    scale = there.to(tl.float32)
    if SCALED:
        scale = tl.load(scales + page.to(tl.int64) * scale_stride + place, mask=there, other=0.0)
    return operand(keys, DTYPE), scale


@triton.jit
def load_queries(
    queries, row, head, rows, heads, row_stride, head_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """queries [rows, heads, D] at (row, head) [C] -> [C, WIDTH] as an operand."""
    d = tl.arange(0, WIDTH)
    start = row.to(tl.int64) * row_stride + head * head_stride
    wanted = ((row < rows) & (head < heads))[:, None] & (d < D)[None, :]
    found = tl.load(queries + start[:, None] + d[None, :], mask=wanted, other=0.0)
    return operand(found, DTYPE)


@triton.jit
def store_out(
    outs, out, row, head, rows, heads, D: tl.constexpr, WIDTH: tl.constexpr, DTYPE: tl.constexpr
):
    """out [C, WIDTH] to outs [rows, heads, D] at (row, head) [C]."""
    d = tl.arange(0, WIDTH)
    start = (row * heads + head).to(tl.int64) * D
    wanted = ((row < rows) & (head < heads))[:, None] & (d < D)[None, :]
    tl.store(outs + start[:, None] + d[None, :], cast(out, DTYPE), mask=wanted)


@triton.jit
def _selected_kernel(
    queries, values, scales, slots, outs, bests, totals,
    rows, heads, length, pieces, row_stride, head_stride, scale_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, UNIT: tl.constexpr, UNITS: tl.constexpr,
    PLACES: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr, SPAN: tl.constexpr,
    WHOLE: tl.constexpr, LONG: tl.constexpr, SCALED: tl.constexpr, DTYPE: tl.constexpr,
    STAGES: tl.constexpr, TWICE: tl.constexpr,
):  # fmt: skip
    """Piece i_p of row i_m's list for one tile of heads. Pieces at the end come last."""
    behind()
    i_m, i_p, i_h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    head = i_h * HEADS + tl.arange(0, HEADS)
    row = tl.full([HEADS], 0, tl.int32) + i_m
    query = load_queries(queries, row, head, rows, heads, row_stride, head_stride, D, WIDTH, DTYPE)
    best = tl.full([HEADS], LOWEST, tl.float32)
    total = tl.zeros([HEADS, KEYS], tl.float32)
    out = tl.zeros([HEADS, WIDTH], tl.float32)
    end = length
    if i_p + 1 < pieces:
        end = (i_p + 1) * SPAN
    for first in tl.range(i_p * SPAN, end, KEYS, num_stages=STAGES):
        slot, there, seen = load_slots(slots, i_m, first, end, length, KEYS, LONG)
        keys, scale = load_keys(
            values, scales, (slot // PLACES).to(tl.int32), (slot % PLACES).to(tl.int32), there,
            scale_stride, D, WIDTH, UNIT, UNITS, DTYPE, SCALED,
        )  # fmt: skip
        best, total, out = _merge_block(
            query, best, total, out, keys, scale, seen[None, :], first, end, KEYS, DTYPE, SCALED,
            TWICE,
        )  # fmt: skip
    if WHOLE:
        total = in_pairs(total, KEYS, HEADS)
        out = out / tl.where(total == 0.0, 1.0, total)[:, None]
        store_out(outs, out, row, head, rows, heads, D, WIDTH, DTYPE)
    else:
        total = tl.sum(total, 1)
        piece = row * pieces + i_p
        store_out(outs, out, piece, head, rows * pieces, heads, D, WIDTH, tl.float32)
        wanted = head < heads
        tl.store(bests + piece * heads + head, best, mask=wanted)
        tl.store(totals + piece * heads + head, total, mask=wanted)


@triton.jit
def _merge_kernel(
    parts, bests, totals, outs, heads, pieces,
    D: tl.constexpr, WIDTH: tl.constexpr, PIECES: tl.constexpr, TOGETHER: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """The pieces of head i_h of row i_m, in order. Those behind the last have a share of 0."""
    behind()
    i_h, i_m = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, WIDTH)
    every = tl.arange(0, PIECES)
    at = (i_m * pieces + every) * heads + i_h
    best = tl.max(tl.load(bests + at, mask=every < pieces, other=LOWEST), 0)
    best = tl.where(best == LOWEST, 0.0, best)
    total = 0.0
    out = tl.zeros([WIDTH], tl.float32)
    for first in range(0, pieces, TOGETHER):
        for which in tl.static_range(TOGETHER):
            piece = first + which
            there = piece < pieces
            place = (i_m * pieces + piece) * heads + i_h
            share = tl.exp(tl.load(bests + place, mask=there, other=LOWEST) - best)
            wanted = d < tl.where(there, D, 0)
            part = tl.load(parts + place.to(tl.int64) * D + d, mask=wanted, other=0.0)
            total += share * tl.load(totals + place, mask=there, other=0.0)
            out += share * part
    out = out / tl.where(total == 0.0, 1.0, total)
    tl.store(outs + (i_m * heads + i_h).to(tl.int64) * D + d, cast(out, DTYPE), mask=d < D)


@triton.jit
def _dense_kernel(
    queries, values, scales, tables, starts, counts, outs,
    rows, heads, pages, row_stride, head_stride, scale_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, UNIT: tl.constexpr, UNITS: tl.constexpr,
    PLACES: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    SCALED: tl.constexpr, DTYPE: tl.constexpr, STAGES: tl.constexpr, TWICE: tl.constexpr,
):  # fmt: skip
    """ROWS rows of tile i_t over all keys up to their own, for one tile of heads."""
    behind()
    i_h, i_r, i_t = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    column = tl.arange(0, ROWS * HEADS)
    within = i_r * ROWS + column // HEADS
    head = i_h * HEADS + column % HEADS
    row, all_rows = i_t * rows + within, (i_t + 1) * rows
    query = load_queries(
        queries, row, head, all_rows, heads, row_stride, head_stride, D, WIDTH, DTYPE
    )
    start = tl.load(starts + i_t)
    position = start + within
    end = start + tl.minimum((i_r + 1) * ROWS, rows)
    written = start + tl.load(counts + i_t)
    best = tl.full([ROWS * HEADS], LOWEST, tl.float32)
    total = tl.zeros([ROWS * HEADS, KEYS], tl.float32)
    out = tl.zeros([ROWS * HEADS, WIDTH], tl.float32)
    for first in tl.range(0, end, KEYS, num_stages=STAGES):
        key = first + tl.arange(0, KEYS)
        there = key < tl.minimum(end, written)
        page = tl.load(tables + i_t * pages + key // PLACES, mask=there, other=0)
        keys, scale = load_keys(
            values, scales, page, key % PLACES, there, scale_stride,
            D, WIDTH, UNIT, UNITS, DTYPE, SCALED,
        )  # fmt: skip
        seen = key[None, :] <= position[:, None]
        best, total, out = _merge_block(
            query, best, total, out, keys, scale, seen, first, end, KEYS, DTYPE, SCALED, TWICE
        )
    total = tl.sum(total, 1)
    store_out(outs, out / total[:, None], row, head, all_rows, heads, D, WIDTH, DTYPE)


def selected_window(queries: torch.Tensor, latents: Pages, slots: torch.Tensor) -> torch.Tensor:
    """The few rows of a window, each over its own list, cut into pieces that are merged in order.

    queries [M, H, D] (absorbed and scaled, float32 or bfloat16), slots [M, L] int32 ascending in
    the token, -1 where there is none -> [M, H, D] in the dtype of the queries. Raises
    `ArgumentError` when the shapes do not fit.
    """
    m, h, d = queries.shape
    pieces = _pieces(slots.shape[1])
    parts = torch.empty(m, pieces, h, d, device=queries.device)
    bests = torch.empty(2, m, pieces, h, device=queries.device)
    launch_selected(queries, latents, slots, parts, bests, WINDOW)
    outs = queries.new_empty(m, h, d)
    most = triton.next_power_of_2(pieces)
    _merge_kernel[(h, m)](
        parts, bests[0], bests[1], outs, h, pieces,
        D=d, WIDTH=width(d), PIECES=most, TOGETHER=min(most, MERGED),
        DTYPE=_dtype(queries), num_warps=4, **overlap.options(),
    )  # fmt: skip
    return outs


def launch_selected(
    queries: torch.Tensor,
    latents: Pages,
    slots: torch.Tensor,
    outs: torch.Tensor,
    bests: torch.Tensor | None,
    form: Form,
) -> None:
    check_selected(queries, latents, slots)
    m, h, d = queries.shape
    length = slots.shape[1]
    pieces = 1 if bests is None else _pieces(length)
    values, scales, (unit, units), stride = addresses(latents)
    _selected_kernel[(m, pieces, triton.cdiv(h, COLUMNS))](
        queries, values, scales, slots, outs,
        outs if bests is None else bests[0], outs if bests is None else bests[1],
        m, h, length, pieces, queries.stride(0), queries.stride(1), stride,
        D=d, WIDTH=width(d), UNIT=unit, UNITS=units, PLACES=latents.rows,
        HEADS=COLUMNS, KEYS=form.keys, SPAN=PIECE, WHOLE=bests is None, LONG=length >= form.keys,
        SCALED=latents.scales is not None, DTYPE=_dtype(queries), STAGES=form.stages,
        TWICE=form.twice, num_warps=form.warps, **overlap.options(),
    )  # fmt: skip


def check_selected(queries: torch.Tensor, latents: Pages, slots: torch.Tensor) -> None:
    """Raises `ArgumentError` when the shapes of `selected_window` do not fit."""
    if queries.shape[2] != latents.dim or slots.shape[0] != queries.shape[0]:
        raise ArgumentError(
            f"selected: queries {queries.shape}, latents of {latents.dim}, slots {slots.shape}"
        )


def dense(
    queries: torch.Tensor,
    latents: Pages,
    tables: torch.Tensor,
    start: torch.Tensor,
    counts: torch.Tensor,
) -> torch.Tensor:
    """Tiles of rows over all keys up to their own.

    queries [T, M, H, D] (absorbed and scaled, float32 or bfloat16), tables [T, pages] int32 of
    each tile's lane, start [T] int32 the position of its first row, counts [T] int32 its rows that
    are no padding -> [T, M, H, D]. To rows of padding the keys that nobody wrote are zeros. Raises
    `ArgumentError` when the shapes do not fit.
    """
    t, m, h, d = queries.shape
    if d != latents.dim or not t == tables.shape[0] == start.shape[0] == counts.shape[0]:
        raise ArgumentError(
            f"dense: queries {queries.shape}, latents of {latents.dim}, tables {tables.shape}"
        )
    values, scales, (unit, units), stride = addresses(latents)
    if queries.stride(0) != m * queries.stride(1):  # tiles stand where rows end
        queries = queries.contiguous()
    outs = queries.new_empty(t, m, h, d)
    heads = min(COLUMNS, triton.next_power_of_2(h))
    together = COLUMNS // heads
    _dense_kernel[(triton.cdiv(h, heads), triton.cdiv(m, together), t)](
        queries, values, scales, tables, start, counts, outs,
        m, h, tables.shape[1], queries.stride(1), queries.stride(2), stride,
        D=d, WIDTH=width(d), UNIT=unit, UNITS=units, PLACES=latents.rows,
        HEADS=heads, ROWS=together, KEYS=DENSE.keys, SCALED=latents.scales is not None,
        DTYPE=_dtype(queries), STAGES=DENSE.stages, TWICE=DENSE.twice, num_warps=DENSE.warps,
        **overlap.options(),
    )  # fmt: skip
    return outs


def addresses(pages: Pages) -> tuple[torch.Tensor, torch.Tensor, tuple[int, int], int]:
    """Values, scales (or values again), (the values of a unit that rows and pages are whole
    numbers of, the units of a page), and from page to page of the scales."""
    stride = pages.values.stride(0)
    unit = math.gcd(stride, pages.dim)
    if pages.scales is None:
        return pages.values, pages.values, (unit, stride // unit), 0
    return pages.values, pages.scales, (unit, stride // unit), pages.scales.stride(0)


def _pieces(length: int) -> int:
    """Of a list: it has one even where all of it is less than a piece."""
    return max(1, length // PIECE) if JOINED else -(-length // PIECE)


def width(d: int) -> int:
    return max(16, triton.next_power_of_2(d))


def _dtype(queries: torch.Tensor) -> tl.dtype:
    return tl.bfloat16 if queries.dtype == torch.bfloat16 else tl.float32
