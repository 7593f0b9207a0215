"""Kimi delta attention on a GPU: gates, the rule row by row, and the rule over a prompt's blocks.

Owns the window's one-row routine and the two passes of the block form; README.md derives both.
A window of R rows holds the state in registers and takes its rows one by one, so it is R windows
of one row; a replay is the same program that keeps the state and drops the outputs. A prompt's
first pass takes every block of 16 rows for itself, its second goes through the blocks of a lane
with the state in registers. Invariants: a row's bits depend on its lane's rows before it alone;
blocks stand on multiples of 16 of the position, so any cutting there gives the same bits; what is
beyond a chunk's rows is not read.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.arguments import ArgumentError
from streamglm.kernels.blocks import cast, dot, operand, sigmoid
from streamglm.kernels.kda.reference import L2_EPS, KdaConstants

CHUNK = 64
"""Rows on whose multiples a prompt is cut."""
WINDOW_VALUES = 32
"""Columns of a state in one program of the window form, for any number of lanes: what a sum over
the others of its rows rounds to depends on it."""
PROMPT_VALUES = 64
"""The same in the second pass over a prompt."""
PROMPT_CHANNELS = 32
"""Channels that the first pass has in registers."""

_EPS = tl.constexpr(L2_EPS)


@triton.jit
def _gate_kernel(
    x, factors, biases, decays, gates, betas, stride, width, bound,
    HEADS: tl.constexpr, DIM: tl.constexpr, FOLDED: tl.constexpr, BLOCK: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """Block i_c of row i_r: its decays and output gates, and with the first the betas."""
    i_r, i_c = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = i_c * BLOCK + tl.arange(0, BLOCK)
    real = channel < HEADS * DIM
    if not FOLDED:
        factor = tl.load(factors + channel // DIM, mask=real, other=0.0)
        bias = tl.load(biases + channel, mask=real, other=0.0)
    overlap.behind()
    f = tl.load(x + i_r * stride + channel, mask=real, other=0.0).to(tl.float32)
    if not FOLDED:
        f = factor * (f + bias)
    decay = bound * sigmoid(f)
    tl.store(decays + i_r * HEADS * DIM + channel, decay, mask=real)
    g = tl.load(x + i_r * stride + width + channel, mask=real, other=0.0).to(tl.float32)
    gate = cast(sigmoid(g), DTYPE)
    tl.store(gates + i_r * HEADS * DIM + channel, gate, mask=real)
    if i_c == 0:
        for first in tl.static_range(0, HEADS, BLOCK):
            head = first + tl.arange(0, BLOCK)
            b = tl.load(x + i_r * stride + 2 * width + head, mask=head < HEADS, other=0.0)
            tl.store(betas + i_r * HEADS + head, sigmoid(b.to(tl.float32)), mask=head < HEADS)


@triton.jit
def _window_kernel(
    qkv, decays, betas, states, outs, lanes, stride, decay_stride, beta_stride, state_stride,
    keep, give,
    HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr,
    SCALE: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """The rows of lane i_n, one after the other, for VALUES columns of one head's state."""
    overlap.behind()
    i_v, i_h, i_n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = tl.load(lanes + i_n * 3).to(tl.int64)
    count = tl.load(lanes + i_n * 3 + 1)
    slot = tl.load(lanes + i_n * 3 + 2).to(tl.int64)
    d = tl.arange(0, WIDTH)
    v = i_v * VALUES + tl.arange(0, VALUES)
    inside = (d < DIM)[:, None] & (v < DIM)[None, :]
    place = states + slot * state_stride + i_h * DIM * DIM + d[:, None] * DIM + v[None, :]
    state = tl.load(place, mask=inside, other=0.0, eviction_policy="evict_first")
    for row in range(first, first + count):
        at = qkv + row * stride + i_h * DIM
        query = tl.load(at + d, mask=d < DIM, other=0.0).to(tl.float32)
        key = tl.load(at + HEADS * DIM + d, mask=d < DIM, other=0.0).to(tl.float32)
        value = tl.load(at + 2 * HEADS * DIM + v, mask=v < DIM, other=0.0).to(tl.float32)
        query *= SCALE / tl.sqrt(tl.sum(query * query, 0) + _EPS)
        key *= 1.0 / tl.sqrt(tl.sum(key * key, 0) + _EPS)
        log = tl.load(decays + row * decay_stride + i_h * DIM + d, mask=d < DIM, other=0.0)
        beta = tl.load(betas + row * beta_stride + i_h)
        state *= tl.exp(log)[:, None]
        delta = beta * (value - tl.sum(state * key[:, None], 0))
        state += key[:, None] * delta[None, :]
        if give:
            out = cast(tl.sum(state * query[:, None], 0), DTYPE)
            tl.store(outs + (row * HEADS + i_h) * DIM + v, out, mask=v < DIM)
    if (keep != 0) & (count > 0):  # a lane of no rows may name another's slot
        tl.store(place, state, mask=inside, eviction_policy="evict_first")


@triton.jit
def _over_root(at, wanted, SCALE: tl.constexpr):
    """SCALE over the root of each row's sum of squares [C, 1]."""
    x = tl.load(at, mask=wanted, other=0.0).to(tl.float32)
    return (SCALE / tl.sqrt(tl.sum(x * x, 1) + _EPS))[:, None]


@triton.jit
def _inverse(strict, LENGTH: tl.constexpr, PRECISION: tl.constexpr):
    """N [C, C] strictly lower -> (I - N)^-1: of pairs of rows, of fours, and so on.

    From X, the inverse of the blocks on the diagonal, and M, the part of N that joins two of them,
    X + X M X is the inverse of blocks of twice the size.
    """
    at = tl.arange(0, LENGTH)
    i, j = at[:, None], at[None, :]
    inverse = tl.where(i == j, 1.0, 0.0) + tl.where(i // 2 == j // 2, strict, 0.0)
    for level in tl.static_range(1, 8):
        if 2**level < LENGTH:
            half = 2**level
            joins = (i // half != j // half) & (i // (2 * half) == j // (2 * half))
            step = tl.where(joins, strict, 0.0)
            step = tl.dot(inverse, step, input_precision=PRECISION)
            inverse += tl.dot(step, inverse, input_precision=PRECISION)
    return inverse


@triton.jit
def _intra_kernel(
    qkv, decays, betas, chunks, queries, keys, ends, solves, attends, shares,
    stride, decay_stride, beta_stride, blocks,
    HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, PART: tl.constexpr,
    BLOCKS: tl.constexpr, SIZE: tl.constexpr, LENGTH: tl.constexpr, SCALE: tl.constexpr,
    PRECISION: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Block i_b of one head, PART channels at a time: all that needs no state."""
    overlap.behind()
    i_h, i_b = tl.program_id(0) % HEADS, tl.program_id(0) // HEADS
    chunk, skipped = i_b // BLOCKS, i_b % BLOCKS * SIZE
    first = tl.load(chunks + chunk * 2).to(tl.int64) + skipped
    rows = tl.minimum(tl.load(chunks + chunk * 2 + 1) - skipped, SIZE)
    line = tl.arange(0, LENGTH)
    i, j = line[:, None], line[None, :]
    qkv += first * stride + i_h * DIM
    decays += first * decay_stride + i_h * DIM
    beta_at = betas + first * beta_stride + i_h + line * beta_stride
    beta = tl.load(beta_at, mask=line < rows, other=0.0)
    here = (i_h * blocks + i_b).to(tl.int64)
    channel = tl.arange(0, WIDTH)[None, :]
    real = (i < rows) & (channel < DIM)
    norm_q = _over_root(qkv + (i * stride + channel), real, SCALE)
    norm_k = _over_root(qkv + HEADS * DIM + (i * stride + channel), real, 1.0)
    strict = tl.zeros([LENGTH, LENGTH], tl.float32)
    within = tl.zeros([LENGTH, LENGTH], tl.float32)
    for start in tl.range(0, WIDTH, PART, num_stages=1):
        d = start + tl.arange(0, PART)
        wanted = (i < rows) & (d < DIM)[None, :]
        at = qkv + (i * stride + d[None, :])
        query = tl.load(at, mask=wanted, other=0.0)
        key = tl.load(at + HEADS * DIM, mask=wanted, other=0.0)
        log = tl.load(decays + (i * decay_stride + d[None, :]), mask=wanted, other=0.0)
        log = tl.cumsum(log, 0)
        whole = tl.sum(tl.where(i == LENGTH - 1, log, 0.0), 0)
        tl.store(shares + here * WIDTH + d, tl.exp(whole))
        shrink = tl.exp(log)
        wide = here * LENGTH * WIDTH + (i * WIDTH + d[None, :])
        query = operand(query.to(tl.float32) * norm_q * shrink, DTYPE)
        tl.store(queries + wide, query)
        key = key.to(tl.float32) * norm_k
        shrunk = operand(-key * shrink, DTYPE)
        tl.store(keys + wide, shrunk)
        tl.store(ends + wide, operand(key * tl.exp(whole[None, :] - log), DTYPE))
        grown = tl.trans(operand(key * tl.exp(-log), DTYPE))
        strict = dot(shrunk, grown, strict)
        within = dot(query, grown, within)
    strict = tl.where(i > j, strict * beta[:, None], 0.0)
    square = here * LENGTH * LENGTH + (i * LENGTH + j)
    solve = _inverse(strict, LENGTH, PRECISION) * beta[None, :]
    tl.store(solves + square, cast(solve, DTYPE))
    tl.store(attends + square, cast(tl.where(i >= j, within, 0.0), DTYPE))


@triton.jit
def _inter_kernel(
    qkv, chunks, lanes, queries, keys, ends, solves, attends, shares, states, outs,
    stride, state_stride, blocks,
    HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCKS: tl.constexpr,
    SIZE: tl.constexpr, LENGTH: tl.constexpr, VALUES: tl.constexpr, DTYPE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """The blocks of lane i_n, one after the other, for VALUES columns of one head's state.

    The state and all that is computed stand transposed, value before key or row: so what one
    product gives is in the registers where the next one takes it.
    """
    overlap.behind()
    i_v, i_h, i_n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    begin = tl.load(lanes + i_n * 3)
    last = begin + tl.load(lanes + i_n * 3 + 1) - 1
    slot = tl.load(lanes + i_n * 3 + 2).to(tl.int64)
    first = tl.load(chunks + begin * 2).to(tl.int64)
    count = (last - begin) * (BLOCKS * SIZE) + tl.load(chunks + last * 2 + 1)
    d, line = tl.arange(0, WIDTH), tl.arange(0, LENGTH)
    v = i_v * VALUES + tl.arange(0, VALUES)
    column = v if DIM % VALUES == 0 else tl.minimum(v, DIM - 1)
    inside = (v < DIM)[:, None] & (d < DIM)[None, :]
    place = states + slot * state_stride + i_h * DIM * DIM + d[None, :] * DIM + v[:, None]
    state = tl.load(place, mask=inside, other=0.0)
    qkv += first * stride + (2 * HEADS + i_h) * DIM
    outs += (first * HEADS + i_h) * DIM
    here = (i_h * blocks + begin * BLOCKS).to(tl.int64)
    keys += here * LENGTH * WIDTH
    queries += here * LENGTH * WIDTH
    ends += here * LENGTH * WIDTH
    solves += here * LENGTH * LENGTH
    attends += here * LENGTH * LENGTH
    shares += here * WIDTH
    itself = cast(tl.where(line[:, None] == line[None, :], 1.0, 0.0), DTYPE)
    for i_b in tl.range(0, tl.cdiv(count, SIZE), num_stages=STAGES):
        row = (i_b * SIZE + line)[:, None].to(tl.int64)
        real = (row < count) & (line < SIZE)[:, None] & (v < DIM)[None, :]
        near = tl.minimum(row, count - 1)  # what stands for padding is not used
        value = tl.load(qkv + (near * stride + column[None, :]))
        wide = (i_b * LENGTH + line)[:, None] * WIDTH + d[None, :]
        square = (i_b * LENGTH + line)[:, None] * LENGTH + line[None, :]
        key = tl.load(keys + wide)
        query = tl.load(queries + wide)
        to_end = tl.load(ends + wide)
        solve = tl.load(solves + square)
        attend = tl.load(attends + square)
        share = tl.load(shares + i_b * WIDTH + d)
        held = operand(state, DTYPE)
        change = dot(held, tl.trans(key), dot(tl.trans(value), itself))
        change = operand(change, DTYPE)
        delta = operand(dot(change, tl.trans(solve)), DTYPE)
        state = dot(delta, to_end, state * share[None, :])
        out = dot(delta, tl.trans(attend), dot(held, tl.trans(query)))
        out_at = outs + (row * (HEADS * DIM) + v[None, :])
        tl.store(out_at, tl.trans(cast(out, DTYPE)), mask=real)
    tl.store(place, state, mask=inside)


def gate(
    x: torch.Tensor,
    constants: KdaConstants,
    factors: torch.Tensor | None = None,
    biases: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [R, 2 F + B] -> log-decay [R, H d] float32, output gate [R, H d] in the dtype of x,
    beta [R, H] float32.

    x holds f, then g, each of H * d values padded to F, then b. The decay is
    bound * sigmoid(factor (f + bias)), with factors [H] and biases [H d] float32; without them f
    holds the product already. Raises `ArgumentError` when x is too narrow.
    """
    h, d, r = constants.heads, constants.dim, x.shape[0]
    if x.shape[1] < 2 * constants.padded + h:
        raise ArgumentError(f"gate: x {x.shape}, gates of {constants.padded} values")
    decays = torch.empty(r, h * d, device=x.device)
    gates = x.new_empty(r, h * d)
    betas = torch.empty(r, h, device=x.device)
    block = min(1024, max(16, triton.next_power_of_2(h * d)))
    _gate_kernel[(r, triton.cdiv(h * d, block))](
        x, decays if factors is None else factors, decays if biases is None else biases,
        decays, gates, betas, x.stride(0), constants.padded, constants.bound,
        HEADS=h, DIM=d, FOLDED=factors is None, BLOCK=block, DTYPE=_dtype(x), num_warps=4,
        **overlap.options(),
    )  # fmt: skip
    return decays, gates, betas


def window(
    qkv: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    states: torch.Tensor,
    lanes: torch.Tensor,
    constants: KdaConstants,
    *,
    keep: bool,
    give: bool = True,
) -> torch.Tensor:
    """The rows of N lanes, each lane's one after the other from its state on.

    qkv [R, 3 H d] as it leaves the convolution, log-decay [R, H d] and beta [R, H] float32, states
    [slots, H, d, d] float32, slots apart or not, lanes [N, 3] int32: first row, rows, slot ->
    o [R, H, d]. States move on only to `keep`; o is written only to `give`, which a replay of
    accepted rows does not ask.
    Raises `ArgumentError` when the shapes do not fit.
    """
    h, d = constants.heads, constants.dim
    _check("window", qkv, decay, beta, states, constants)
    outs = qkv.new_empty(qkv.shape[0] if give else 1, h, d)
    values = min(WINDOW_VALUES, triton.next_power_of_2(d))
    _window_kernel[(triton.cdiv(d, values), h, len(lanes))](
        qkv, decay, beta, states, outs, lanes, qkv.stride(0), decay.stride(0), beta.stride(0),
        states.stride(0), int(keep), int(give),
        HEADS=h, DIM=d, WIDTH=triton.next_power_of_2(d), VALUES=values, SCALE=d**-0.5,
        DTYPE=_dtype(qkv), num_warps=1, **overlap.options(),
    )  # fmt: skip
    return outs


def prompt(
    qkv: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    states: torch.Tensor,
    chunks: torch.Tensor,
    lanes: torch.Tensor,
    constants: KdaConstants,
) -> torch.Tensor:
    """The rows of N lanes in chunks of at most 64 rows, each from a multiple of 64 on.

    qkv [R, 3 H d], log-decay [R, H d] and beta [R, H] float32, states [slots, H, d, d] float32 in
    place, chunks [C, 2] int32: first row, rows, of which a lane's follow one another and all but
    its last are whole; lanes [N, 3] int32: first chunk, chunks, slot -> o [R, H, d], of which rows
    in no chunk stay unwritten. Raises `ArgumentError` when the shapes do not fit.
    """
    _check("prompt", qkv, decay, beta, states, constants)
    h, d, size = constants.heads, constants.dim, constants.block
    width, length = max(16, triton.next_power_of_2(d)), max(16, size)
    each = CHUNK // size
    blocks = len(chunks) * each
    outs = qkv.new_empty(qkv.shape[0], h, d)
    wide = qkv.new_empty(3, h, blocks, length, width)
    square = qkv.new_empty(2, h, blocks, length, length)
    shares = torch.empty(h, blocks, width, device=qkv.device)
    dtype = _dtype(qkv)
    _intra_kernel[(blocks * h,)](
        qkv, decay, beta, chunks, wide[0], wide[1], wide[2], square[0], square[1], shares,
        qkv.stride(0), decay.stride(0), beta.stride(0), blocks,
        HEADS=h, DIM=d, WIDTH=width, PART=min(PROMPT_CHANNELS, width), BLOCKS=each, SIZE=size,
        LENGTH=length, SCALE=d**-0.5, PRECISION="ieee" if dtype == tl.float32 else "tf32x3",
        DTYPE=dtype, num_warps=1, **overlap.options(),
    )  # fmt: skip
    values = min(PROMPT_VALUES, width)
    _inter_kernel[(triton.cdiv(d, values), h, len(lanes))](
        qkv, chunks, lanes, wide[0], wide[1], wide[2], square[0], square[1], shares, states, outs,
        qkv.stride(0), states.stride(0), blocks,
        HEADS=h, DIM=d, WIDTH=width, BLOCKS=each, SIZE=size, LENGTH=length, VALUES=values,
        DTYPE=dtype, STAGES=6, num_warps=4, **overlap.options(),
    )  # fmt: skip
    return outs


def _check(
    what: str,
    qkv: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    states: torch.Tensor,
    constants: KdaConstants,
) -> None:
    h, d, rows = constants.heads, constants.dim, qkv.shape[0]
    fits = qkv.shape[1] == 3 * h * d and decay.shape[1] >= h * d and beta.shape[1] >= h
    if not fits or not rows == decay.shape[0] == beta.shape[0]:
        raise ArgumentError(
            f"{what}: qkv {qkv.shape}, decay {decay.shape}, beta {beta.shape}, {h} heads of {d}"
        )
    if states.shape[1:] != (h, d, d) or states.stride()[1:] != (d * d, d, 1):
        raise ArgumentError(f"{what}: state {states.shape}, {h} heads of {d}, each slot in a piece")


def _dtype(rows: torch.Tensor) -> tl.dtype:
    return tl.bfloat16 if rows.dtype == torch.bfloat16 else tl.float32
