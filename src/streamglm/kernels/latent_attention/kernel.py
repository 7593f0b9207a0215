"""Attention in latent space on a GPU: dense over a prefix, or over each row's own list.

Owns both forms, the split of a list over programs and the merge of its pieces. A program holds the
transpose, o [D, columns]: latents are the left operand of both products, so that 16 columns are
enough for the widest matrix instruction, which wants 64 rows there. A column is one head of one
row. Invariants: a column's bits depend on its query and its keys in their order, `BLOCK` keys at a
time, and on the length of a piece; not on the columns beside it, the number of heads or of rows,
the pages, or how many blocks without a visible key come after. What is not seen is not read.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels.arguments import ArgumentError
from streamglm.kernels.blocks import cast, dot, operand
from streamglm.kernels.pages import Pages

BLOCK = 64
"""Keys that are merged at a time."""
PIECE = 128
"""Keys of a list that one program of the window form takes: part of the bits."""
WINDOW_HEADS, PROMPT_HEADS = 16, 32
"""Heads side by side in a program."""
DENSE_ROWS = 2
"""Rows side by side in a program of the dense form."""

_LOWEST = tl.constexpr(float("-inf"))


@triton.jit
def _merge_block(
    query, best, total, out, keys, scales, seen, DTYPE: tl.constexpr, SCALED: tl.constexpr
):
    """One block of keys [N, D] into best and total [C] and out [D, C]; seen [N, 1 or C]."""
    scores = dot(keys, query)
    if SCALED:
        scores *= scales[:, None]
    scores = tl.where(seen, scores, _LOWEST)
    higher = tl.maximum(best, tl.max(scores, 0))
    base = tl.where(higher == _LOWEST, 0.0, higher)
    shares = tl.exp(scores - base[None, :])
    shrink = tl.exp(best - base)
    total = total * shrink + tl.sum(shares, 0)
    if SCALED:
        shares *= scales[:, None]
    shares = operand(shares, DTYPE)
    out = dot(tl.trans(keys), shares, out * shrink[None, :])
    return higher, total, out


@triton.jit
def _load_keys(
    values, scales, page, place, there, page_stride, scale_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, DTYPE: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Rows [N, WIDTH] at (page, place) [N] as operands, and their scales; zeros unless there."""
    d = tl.arange(0, WIDTH)
    start = page.to(tl.int64) * page_stride + place * D
    wanted = there[:, None] & (d < D)[None, :]
    keys = tl.load(values + start[:, None] + d[None, :], mask=wanted, other=0.0)
    scale = there.to(tl.float32)
    if SCALED:
        scale = tl.load(scales + page.to(tl.int64) * scale_stride + place, mask=there, other=0.0)
    return operand(keys, DTYPE), scale


@triton.jit
def _load_queries(
    queries, row, head, rows, heads, row_stride, head_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """queries [rows, heads, D] at (row, head) [C] -> [WIDTH, C] as an operand."""
    d = tl.arange(0, WIDTH)
    start = row.to(tl.int64) * row_stride + head * head_stride
    wanted = (d < D)[:, None] & ((row < rows) & (head < heads))[None, :]
    found = tl.load(queries + start[None, :] + d[:, None], mask=wanted, other=0.0)
    return operand(found, DTYPE)


@triton.jit
def _store_out(
    outs, out, row, head, rows, heads, D: tl.constexpr, WIDTH: tl.constexpr, DTYPE: tl.constexpr
):
    """out [WIDTH, C] to outs [rows, heads, D] at (row, head) [C]."""
    d = tl.arange(0, WIDTH)
    start = (row * heads + head).to(tl.int64) * D
    wanted = (d < D)[:, None] & ((row < rows) & (head < heads))[None, :]
    tl.store(outs + start[None, :] + d[:, None], cast(out, DTYPE), mask=wanted)


@triton.jit
def _selected_kernel(
    queries, values, scales, slots, outs, bests, totals,
    rows, heads, length, pieces, row_stride, head_stride, page_stride, scale_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, PLACES: tl.constexpr, HEADS: tl.constexpr,
    KEYS: tl.constexpr, SPAN: tl.constexpr, WHOLE: tl.constexpr, SCALED: tl.constexpr,
    DTYPE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Piece i_p of row i_m's list for one tile of heads."""
    i_h, i_p, i_m = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    head = i_h * HEADS + tl.arange(0, HEADS)
    row = tl.full([HEADS], 0, tl.int32) + i_m
    query = _load_queries(queries, row, head, rows, heads, row_stride, head_stride, D, WIDTH, DTYPE)
    best = tl.full([HEADS], _LOWEST, tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    out = tl.zeros([WIDTH, HEADS], tl.float32)
    end = length
    if not WHOLE:
        end = tl.minimum(length, (i_p + 1) * SPAN)
    for first in tl.range(i_p * SPAN, end, KEYS, num_stages=STAGES):
        at = first + tl.arange(0, KEYS)
        slot = tl.load(slots + i_m.to(tl.int64) * length + at, mask=at < end, other=-1)
        seen = slot >= 0
        safe = tl.where(seen, slot, 0)
        keys, scale = _load_keys(
            values, scales, safe // PLACES, safe % PLACES, seen, page_stride, scale_stride,
            D, WIDTH, DTYPE, SCALED,
        )  # fmt: skip
        best, total, out = _merge_block(
            query, best, total, out, keys, scale, seen[:, None], DTYPE, SCALED
        )
    if WHOLE:
        out = out / tl.where(total == 0.0, 1.0, total)[None, :]
        _store_out(outs, out, row, head, rows, heads, D, WIDTH, DTYPE)
    else:
        piece = row * pieces + i_p
        _store_out(outs, out, piece, head, rows * pieces, heads, D, WIDTH, tl.float32)
        wanted = head < heads
        tl.store(bests + piece * heads + head, best, mask=wanted)
        tl.store(totals + piece * heads + head, total, mask=wanted)


@triton.jit
def _merge_kernel(
    parts, bests, totals, outs, heads, pieces,
    D: tl.constexpr, WIDTH: tl.constexpr, PIECES: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """The pieces of head i_h of row i_m, in order, for WIDTH of its values."""
    i_d, i_h, i_m = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    d = i_d * WIDTH + tl.arange(0, WIDTH)
    every = tl.arange(0, PIECES)
    at = (i_m * pieces + every) * heads + i_h
    best = tl.max(tl.load(bests + at, mask=every < pieces, other=_LOWEST), 0)
    best = tl.where(best == _LOWEST, 0.0, best)
    total = 0.0
    out = tl.zeros([WIDTH], tl.float32)
    for piece in range(pieces):
        place = (i_m * pieces + piece) * heads + i_h
        share = tl.exp(tl.load(bests + place) - best)
        part = tl.load(parts + place.to(tl.int64) * D + d, mask=d < D, other=0.0)
        total += share * tl.load(totals + place)
        out += share * part
    out = out / tl.where(total == 0.0, 1.0, total)
    at = outs + (i_m * heads + i_h).to(tl.int64) * D + d
    tl.store(at, cast(out, DTYPE), mask=d < D)


@triton.jit
def _dense_kernel(
    queries, values, scales, tables, starts, counts, outs,
    rows, heads, pages, row_stride, head_stride, page_stride, scale_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, PLACES: tl.constexpr, HEADS: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SCALED: tl.constexpr, DTYPE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """ROWS rows of tile i_t over all keys up to their own, for one tile of heads."""
    i_h, i_r, i_t = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    column = tl.arange(0, ROWS * HEADS)
    within = i_r * ROWS + column // HEADS
    head = i_h * HEADS + column % HEADS
    here = within < rows
    row = tl.where(here, i_t * rows + within, 0)
    head = tl.where(here, head, heads)
    all_rows = (i_t + 1) * rows
    query = _load_queries(
        queries, row, head, all_rows, heads, row_stride, head_stride, D, WIDTH, DTYPE
    )
    start = tl.load(starts + i_t)
    position = start + within
    end = start + tl.minimum((i_r + 1) * ROWS, rows)
    written = start + tl.load(counts + i_t)
    best = tl.full([ROWS * HEADS], _LOWEST, tl.float32)
    total = tl.zeros([ROWS * HEADS], tl.float32)
    out = tl.zeros([WIDTH, ROWS * HEADS], tl.float32)
    for first in tl.range(0, end, KEYS, num_stages=STAGES):
        key = first + tl.arange(0, KEYS)
        there = key < tl.minimum(end, written)
        page = tl.load(tables + i_t * pages + key // PLACES, mask=there, other=0)
        keys, scale = _load_keys(
            values, scales, page, key % PLACES, there, page_stride, scale_stride,
            D, WIDTH, DTYPE, SCALED,
        )  # fmt: skip
        seen = key[:, None] <= position[None, :]
        best, total, out = _merge_block(query, best, total, out, keys, scale, seen, DTYPE, SCALED)
    _store_out(outs, out / total[None, :], row, head, all_rows, heads, D, WIDTH, DTYPE)


def selected_window(queries: torch.Tensor, latents: Pages, slots: torch.Tensor) -> torch.Tensor:
    """The few rows of a window, each over its own list, cut into pieces that are merged in order.

    queries [M, H, D] (absorbed and scaled, float32 or bfloat16), slots [M, L] int32 ascending in
    the token, -1 where there is none -> [M, H, D] in the dtype of the queries. Raises
    `ArgumentError` when the shapes do not fit.
    """
    m, h, d = queries.shape
    pieces = -(-slots.shape[1] // PIECE)
    parts = torch.empty(m, pieces, h, d, device=queries.device)
    bests = torch.empty(2, m, pieces, h, device=queries.device)
    _launch_selected(queries, latents, slots, parts, bests, WINDOW_HEADS, PIECE)
    outs = queries.new_empty(m, h, d)
    width = min(128, triton.next_power_of_2(d))
    _merge_kernel[(triton.cdiv(d, width), h, m)](
        parts, bests[0], bests[1], outs, h, pieces,
        D=d, WIDTH=width, PIECES=triton.next_power_of_2(pieces), DTYPE=_dtype(queries), num_warps=1,
    )  # fmt: skip
    return outs


def selected_prompt(queries: torch.Tensor, latents: Pages, slots: torch.Tensor) -> torch.Tensor:
    """`selected_window` for the many rows of a prompt: a program takes a row's whole list."""
    outs = queries.new_empty(queries.shape)
    _launch_selected(queries, latents, slots, outs, None, PROMPT_HEADS, None)
    return outs


def _launch_selected(
    queries: torch.Tensor,
    latents: Pages,
    slots: torch.Tensor,
    outs: torch.Tensor,
    bests: torch.Tensor | None,
    heads: int,
    piece: int | None,
) -> None:
    m, h, d = queries.shape
    if d != latents.dim or slots.shape[0] != m:
        raise ArgumentError(
            f"selected: queries {queries.shape}, latents of {latents.dim}, slots {slots.shape}"
        )
    length = slots.shape[1]
    pieces = 1 if piece is None else -(-length // piece)
    values, scales, strides = _addresses(latents)
    _selected_kernel[(triton.cdiv(h, heads), pieces, m)](
        queries, values, scales, slots, outs,
        outs if bests is None else bests[0], outs if bests is None else bests[1],
        m, h, length, pieces, queries.stride(0), queries.stride(1), *strides,
        D=d, WIDTH=_width(d), PLACES=latents.rows, HEADS=heads, KEYS=BLOCK,
        SPAN=0 if piece is None else piece, WHOLE=piece is None,
        SCALED=latents.scales is not None, DTYPE=_dtype(queries), STAGES=2,
        num_warps=8 if heads > WINDOW_HEADS or latents.scales is not None else 4,
    )  # fmt: skip


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
    values, scales, strides = _addresses(latents)
    if queries.stride(0) != m * queries.stride(1):  # tiles stand where rows end
        queries = queries.contiguous()
    outs = queries.new_empty(t, m, h, d)
    _dense_kernel[(triton.cdiv(h, PROMPT_HEADS), triton.cdiv(m, DENSE_ROWS), t)](
        queries, values, scales, tables, start, counts, outs,
        m, h, tables.shape[1], queries.stride(1), queries.stride(2), *strides,
        D=d, WIDTH=_width(d), PLACES=latents.rows, HEADS=PROMPT_HEADS, ROWS=DENSE_ROWS,
        KEYS=BLOCK, SCALED=latents.scales is not None, DTYPE=_dtype(queries), STAGES=2,
        num_warps=8,
    )  # fmt: skip
    return outs


def _addresses(pages: Pages) -> tuple[torch.Tensor, torch.Tensor, tuple[int, int]]:
    """Values, scales (or values again), and the strides of a page in both."""
    if pages.scales is None:
        return pages.values, pages.values, (pages.values.stride(0), 0)
    return pages.values, pages.scales, (pages.values.stride(0), pages.scales.stride(0))


def _width(d: int) -> int:
    return max(16, triton.next_power_of_2(d))


def _dtype(queries: torch.Tensor) -> tl.dtype:
    return tl.bfloat16 if queries.dtype == torch.bfloat16 else tl.float32
