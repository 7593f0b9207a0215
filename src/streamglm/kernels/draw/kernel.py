"""Greedy and keyed draws on a GPU: one token a row, without a word from the host.

Owns the noise, the filters and the walk along the mass, in float64. Knows no penalties and no
masks. Where all rows are greedy, blocks of a row find their highest and one program the highest of
those. Else rows are sorted first, the lower id before its equals; then one program a row makes
three passes over its shares, of which the last two end where the mass does. Invariant: a row's
token is a function of its logits and its numbers alone, and the noise of (seed, position) is that
of `uniform`, bit for bit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.arguments import ArgumentError
from streamglm.kernels.blocks import ordered

BLOCK = 2048
"""Shares of one step."""
GREEDY = 4096
"""Logits of one program of the highest."""

_STEP = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def _finalise(z):
    z = (z ^ (z >> 30)) * _FIRST
    z = (z ^ (z >> 27)) * _SECOND
    return z ^ (z >> 31)


@triton.jit
def _noise(seed, position):
    """int64 -> float64 in [0, 1): SplitMix64 of the seed, then of the counter, 53 bits of it."""
    mixed = _finalise(seed.to(tl.uint64) + _STEP)
    mixed = _finalise(mixed + (position.to(tl.uint64) + 1) * _STEP)
    return (mixed >> 11).to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def _shares(values, ids, at, width, limit, top, temperature):
    """Shares of the sorted places `at`, over that of the highest, and which ids may be drawn."""
    may = at < width
    may = may & (tl.load(ids + at, mask=may, other=0) < limit)
    value = tl.load(values + at, mask=may, other=float("-inf")).to(tl.float64)
    return tl.where(may, tl.exp((value - top) / temperature), 0.0), may


@triton.jit
def _best_kernel(logits, keys, ids, stride, width, BLOCK: tl.constexpr):
    """The highest of block i_b of row i_m as `ordered` has it, and the lowest id that has it."""
    overlap.behind()
    i_m, i_b = tl.program_id(0), tl.program_id(1)
    at = i_b * BLOCK + tl.arange(0, BLOCK)
    mask = at < width
    value = tl.load(logits + i_m.to(tl.int64) * stride + at, mask=mask, other=0.0)
    key = tl.where(mask, ordered(value), 0).to(tl.uint32)
    best = tl.max(key, 0)
    place = i_m * tl.num_programs(1) + i_b
    tl.store(keys + place, best.to(tl.int32, bitcast=True))
    tl.store(ids + place, tl.min(tl.where(key == best, at, width), 0))


@triton.jit
def _greedy_kernel(keys, ids, tokens, blocks, BLOCK: tl.constexpr):
    """The best of a row's blocks; only a finite one is a token."""
    overlap.behind()
    i_m = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < blocks
    key = tl.load(keys + i_m * blocks + at, mask=mask, other=0).to(tl.uint32, bitcast=True)
    found = tl.load(ids + i_m * blocks + at, mask=mask, other=0)
    best = tl.max(key, 0)
    token = tl.min(tl.where(mask & (key == best), found, 0x7FFFFFFF), 0)
    finite = (best > 0x007FFFFF) & (best < 0xFF800000)
    tl.store(tokens + i_m, tl.where(finite, token, -1).to(tl.int64))


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """The highest of each row of logits [M, V] float32 -> [M] int64, the lower id of equals; -1
    where it is not finite. Raises `ArgumentError` when the rows are not each in one piece."""
    if logits.ndim != 2 or logits.stride(1) != 1 or logits.dtype != torch.float32:
        raise ArgumentError(f"greedy: logits {logits.shape}, {logits.dtype}, {logits.stride()}")
    rows, width = logits.shape
    block = min(GREEDY, triton.next_power_of_2(width))
    blocks = triton.cdiv(width, block)
    keys, ids = torch.empty(2, rows, blocks, dtype=torch.int32, device=logits.device)
    _best_kernel[(rows, blocks)](
        logits, keys, ids, logits.stride(0), width, BLOCK=block, num_warps=8, **overlap.options()
    )
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    _greedy_kernel[(rows,)](
        keys, ids, tokens, blocks, BLOCK=triton.next_power_of_2(blocks), num_warps=1,
        **overlap.options(),
    )  # fmt: skip
    return tokens


@triton.jit
def _draw_kernel(
    values, ids, numbers, counts, tokens, width, limit, stride,
    BLOCK: tl.constexpr,
):  # fmt: skip
    overlap.behind()
    i_m = tl.program_id(0).to(tl.int64)
    values += i_m * stride
    ids += i_m * stride
    highest = tl.load(values)
    token = tl.load(ids)
    temperature = tl.load(numbers + i_m * 3)
    good = (highest == highest) & (tl.abs(highest) < float("inf"))
    if good & (temperature > 0.0):
        top_p = tl.load(numbers + i_m * 3 + 1)
        min_p = tl.load(numbers + i_m * 3 + 2)
        noise = _noise(tl.load(counts + i_m * 3), tl.load(counts + i_m * 3 + 1))
        top_k = tl.load(counts + i_m * 3 + 2)
        top_k = tl.where(top_k > 0, top_k, width)
        top = tl.full([], float("-inf"), tl.float64)
        at = tl.arange(0, BLOCK)
        first = 0
        while (first < width) & (top == float("-inf")):  # ids from `limit` on may stand before it
            may = first + at < width
            may = may & (tl.load(ids + first + at, mask=may, other=0) < limit)
            value = tl.load(values + first + at, mask=may, other=float("-inf"))
            top = tl.max(value, 0).to(tl.float64)
            first += BLOCK
        whole = tl.zeros([], tl.float64)
        rank = tl.zeros([], tl.int64)
        for first in range(0, width, BLOCK):
            share, may = _shares(values, ids, first + at, width, limit, top, temperature)
            place = rank + tl.cumsum(may.to(tl.int64), 0)
            whole += tl.sum(tl.where(place <= top_k, share, 0.0), 0)
            rank += tl.sum(may.to(tl.int64), 0)
        nucleus = tl.where(top_p < 1.0, top_p * whole, float("inf"))
        mass = tl.zeros([], tl.float64)
        kept_mass = tl.zeros([], tl.float64)
        rank = tl.zeros([], tl.int64)
        first = 0
        going = True
        while going:
            share, may = _shares(values, ids, first + at, width, limit, top, temperature)
            place = rank + tl.cumsum(may.to(tl.int64), 0)
            before = mass + tl.cumsum(share, 0) - share
            kept = may & (place <= top_k) & (share >= min_p)
            kept = kept & (before < nucleus)
            kept_mass += tl.sum(tl.where(kept, share, 0.0), 0)
            mass += tl.sum(share, 0)
            rank += tl.sum(may.to(tl.int64), 0)
            first += BLOCK
            going = (first < width) & (tl.sum((may & (kept == 0)).to(tl.int32), 0) == 0)
        target = noise * kept_mass
        mass = tl.zeros([], tl.float64)
        first = 0
        token = tl.full([], -1, tl.int64)
        while (first < width) & (mass <= target) & (mass < kept_mass):
            share, may = _shares(values, ids, first + at, width, limit, top, temperature)
            ends = mass + tl.cumsum(share, 0)
            behind = (ends <= target) | (may == 0)
            found = tl.min(tl.where(behind, BLOCK, at), 0)
            here = found < BLOCK
            last = tl.max(tl.where(may & (share > 0.0), at, 0), 0)  # where sums end a bit short
            found = tl.where(here, found, last)
            token = tl.load(ids + first + found)
            mass = tl.where(here, kept_mass, mass + tl.sum(share, 0))
            first += BLOCK
    tl.store(tokens + i_m, tl.where(good, token, -1))


def draw(
    logits: torch.Tensor, numbers: torch.Tensor, counts: torch.Tensor, spelled: int
) -> torch.Tensor:
    """One id a row of logits [M, V] float32 -> [M] int64, -1 where the highest is not finite.

    numbers [M, 3] float64: temperature (0: the highest, the lower id of equals), top_p (1: all),
    min_p (0: all); counts [M, 3] int64: seed (its 64 bits), position, top_k (0: all). Ids from
    `spelled` on are not drawn, but for the highest at temperature 0. Raises `ArgumentError` when
    the shapes do not fit.
    """
    if numbers.shape != (len(logits), 3) or counts.shape != (len(logits), 3):
        raise ArgumentError(f"draw: logits {logits.shape}, numbers {numbers.shape}")
    values, ids = torch.sort(logits, dim=1, descending=True, stable=True)
    tokens = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    _draw_kernel[(len(logits),)](
        values, ids, numbers, counts, tokens, logits.shape[1], spelled, values.stride(0),
        BLOCK=min(BLOCK, triton.next_power_of_2(logits.shape[1])), num_warps=8,
        **overlap.options(),
    )  # fmt: skip
    return tokens
