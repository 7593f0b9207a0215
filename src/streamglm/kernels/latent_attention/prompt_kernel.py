"""Attention over lists for the many rows of a prompt: a program takes a row's whole list.

Owns the choice between two forms, and the form of few heads, for bfloat16 queries over bfloat16
latents: others would be held in registers on their way to both products, or have no wide matrix
instruction. Up to half as many heads as that has rows stand on its right, and keys, or the values
of D, on its left, so that no product is half empty: S [KEYS, C] = K Q^T, o [D, C] = o r + K^T P.
Invariant: a head's bits are those of either form. Products add the same terms in the same order,
and exponents are summed in one that no layout changes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.blocks import dot, operand
from streamglm.kernels.latent_attention.kernel import (
    COLUMNS,
    LOWEST,
    PROMPT,
    addresses,
    check_selected,
    in_pairs,
    launch_selected,
    load_keys,
    load_queries,
    load_slots,
    store_out,
    width,
)
from streamglm.kernels.overlap import behind
from streamglm.kernels.pages import Pages

FEW = {COLUMNS // 4: PROMPT._replace(stages=3), COLUMNS // 2: PROMPT._replace(warps=4)}
"""By the heads up to which they stand on the right, ascending. One block more is on its way where o
and queries leave room for it; one group of warps waits for no other, and can just hold the rest."""


@triton.jit
def _few_heads_kernel(
    queries, values, slots, outs, heads, length, row_stride, head_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, UNIT: tl.constexpr, UNITS: tl.constexpr,
    PLACES: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr, LONG: tl.constexpr,
    DTYPE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Row i_m's list. Blocks are those of the other form, and so are the branches (`_merge_block`
    of `kernel` says what for). Columns behind the last head are asked as it is, and not stored: a
    mask of theirs, which the output's has use for again, would lie in registers until then."""
    behind()
    i_m = tl.program_id(0)
    head = tl.arange(0, HEADS)
    row = tl.full([HEADS], 0, tl.int32) + i_m
    asked = tl.minimum(head, heads - 1)
    query = load_queries(
        queries, row, asked, i_m + 1, heads, row_stride, head_stride, D, WIDTH, DTYPE
    )
    best = tl.full([HEADS], LOWEST, tl.float32)
    total = tl.zeros([KEYS, HEADS], tl.float32)
    out = tl.zeros([WIDTH, HEADS], tl.float32)
    for first in tl.range(0, length, KEYS, num_stages=STAGES):
        slot, there, seen = load_slots(slots, i_m, first, length, length, KEYS, LONG)
        keys, _ = load_keys(
            values, values, (slot // PLACES).to(tl.int32), (slot % PLACES).to(tl.int32), there,
            0, D, WIDTH, UNIT, UNITS, DTYPE, False,
        )  # fmt: skip
        if first < length:
            if first + KEYS <= length:
                scores = dot(keys, tl.trans(query))
            else:
                scores = dot(keys, tl.trans(query))
            scores = tl.where(seen[:, None], scores, LOWEST)
            higher = tl.maximum(best, tl.max(scores, 0))
            base = tl.where(higher == LOWEST, 0.0, higher)
            shares = tl.exp(scores - base[None, :])
            shrink = tl.exp(best - base)
            total = total * shrink[None, :] + shares
            out = dot(tl.trans(keys), operand(shares, DTYPE), out * shrink[None, :])
            best = higher
    sums = in_pairs(tl.trans(total), KEYS, HEADS)
    out = out / tl.where(sums == 0.0, 1.0, sums)[None, :]
    store_out(outs, tl.trans(out), row, head, i_m + 1, heads, D, WIDTH, DTYPE)


def selected_prompt(queries: torch.Tensor, latents: Pages, slots: torch.Tensor) -> torch.Tensor:
    """Each row over its own list.

    queries [M, H, D] (absorbed and scaled, float32 or bfloat16), slots [M, L] int32 ascending in
    the token, -1 where there is none -> [M, H, D] in the dtype of the queries. Raises
    `ArgumentError` when the shapes do not fit.
    """
    outs = queries.new_empty(queries.shape)
    m, h, d = queries.shape
    tile = next((most for most in FEW if h <= most), None)
    if tile is None or not latents.values.dtype == queries.dtype == torch.bfloat16:
        launch_selected(queries, latents, slots, outs, None, PROMPT)
        return outs
    check_selected(queries, latents, slots)
    form = FEW[tile]
    length = slots.shape[1]
    values, _, (unit, units), _ = addresses(latents)
    _few_heads_kernel[(m,)](
        queries, values, slots, outs, h, length, queries.stride(0), queries.stride(1),
        D=d, WIDTH=width(d), UNIT=unit, UNITS=units, PLACES=latents.rows, HEADS=tile,
        KEYS=form.keys, LONG=length >= form.keys, DTYPE=tl.bfloat16,
        STAGES=form.stages, num_warps=form.warps, **overlap.options(),
    )  # fmt: skip
    return outs
