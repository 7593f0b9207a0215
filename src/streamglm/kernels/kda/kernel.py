"""Kimi delta attention on a GPU: gates, the rule row by row, and the rule over a prompt's chunks.

Owns the window's one-row routine and the two passes of the chunk form; README.md derives both.
A window of R rows holds the state in registers and takes its rows one by one, so it is R windows
of one row; a replay is the same program that keeps the state and drops the outputs. A prompt's
first pass takes every chunk of 64 rows for itself, its second goes through the chunks of a lane
with the state in registers. Invariants: a row's bits depend on its lane's rows before it alone;
chunks stand on multiples of 64 of the position, so any cutting there gives the same bits; what is
beyond a chunk's rows is not read.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels.arguments import ArgumentError
from streamglm.kernels.blocks import cast, dot, operand, sigmoid
from streamglm.kernels.kda.reference import L2_EPS, KdaConstants

CHUNK = 64
"""Rows of a prompt that are solved at once."""
WINDOW_VALUES = 16
"""Columns of a state in one program of the window form."""
PROMPT_VALUES = 64
"""The same in the second pass over a prompt."""

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
    f = tl.load(x + i_r * stride + channel, mask=real, other=0.0).to(tl.float32)
    if not FOLDED:
        factor = tl.load(factors + channel // DIM, mask=real, other=0.0)
        f = factor * (f + tl.load(biases + channel, mask=real, other=0.0))
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
    qkv, decays, betas, states, outs, lanes, stride, decay_stride, beta_stride, keep, give,
    HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr,
    SCALE: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """The rows of lane i_n, one after the other, for VALUES columns of one head's state."""
    i_v, i_h, i_n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = tl.load(lanes + i_n * 3).to(tl.int64)
    count = tl.load(lanes + i_n * 3 + 1)
    slot = tl.load(lanes + i_n * 3 + 2).to(tl.int64)
    d = tl.arange(0, WIDTH)
    v = i_v * VALUES + tl.arange(0, VALUES)
    inside = (d < DIM)[:, None] & (v < DIM)[None, :]
    place = states + (slot * HEADS + i_h) * DIM * DIM + d[:, None] * DIM + v[None, :]
    state = tl.load(place, mask=inside, other=0.0)
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
        tl.store(place, state, mask=inside)


@triton.jit
def _load_unit(at, wanted, SCALE: tl.constexpr):
    """Rows [.., D] over the root of their sum of squares, times SCALE; zeros unless wanted."""
    x = tl.load(at, mask=wanted, other=0.0).to(tl.float32)
    return x * (SCALE / tl.sqrt(tl.sum(x * x, 2) + _EPS))[:, :, None]


@triton.jit
def _block(x, b, BLOCKS: tl.constexpr):
    """x [BLOCKS, ..] -> x[b]"""
    mine = tl.arange(0, BLOCKS) == b
    return tl.sum(tl.where(mine[:, None], x, 0.0), 0)


@triton.jit
def _inverse(strict, BLOCKS: tl.constexpr, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    """N [C, C] strictly lower -> (I - N)^-1: block by block by substitution, then all of it.

    With D the inverse of the blocks on the diagonal and X = D N off them, X^BLOCKS is 0, and the
    inverse is (I + X) (I + X^2) .. D.
    """
    LENGTH: tl.constexpr = BLOCKS * SIZE
    block = tl.arange(0, LENGTH) // SIZE
    mine = block[:, None, None] == tl.arange(0, BLOCKS)[None, :, None]
    parts = tl.reshape(strict, [LENGTH, BLOCKS, SIZE])
    own = tl.reshape(tl.sum(tl.where(mine, parts, 0.0), 1), [BLOCKS, SIZE, SIZE])
    at = tl.arange(0, SIZE)
    for row in range(1, SIZE):
        here = (at == row)[None, :, None]
        line = tl.sum(tl.where(here, own, 0.0), 1)
        line += tl.sum(line[:, :, None] * own, 1)
        own = tl.where(here, line[:, None, :], own)
    own += tl.where(at[:, None] == at[None, :], 1.0, 0.0)[None, :, :]
    rows = tl.reshape(own, [LENGTH, 1, SIZE])
    rows = tl.where(mine, tl.broadcast_to(rows, [LENGTH, BLOCKS, SIZE]), 0.0)
    inverse = tl.reshape(rows, [LENGTH, LENGTH])
    if BLOCKS > 1:
        same = block[:, None] == block[None, :]
        step = tl.where(same, 0.0, strict)
        step = tl.dot(inverse, step, input_precision=PRECISION)
        inverse += tl.dot(step, inverse, input_precision=PRECISION)
        for doubled in tl.static_range(1, 6):
            if 2**doubled < BLOCKS:
                step = tl.dot(step, step, input_precision=PRECISION)
                inverse += tl.dot(step, inverse, input_precision=PRECISION)
    return inverse


@triton.jit
def _intra_kernel(
    qkv, decays, betas, chunks, queries, keys, ends, solves, attends, totals,
    length, count, stride, decay_stride, beta_stride,
    HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCKS: tl.constexpr,
    SIZE: tl.constexpr, SCALE: tl.constexpr, PRECISION: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Chunk i_c of one head: all that needs no state."""
    i_c, i_h = tl.program_id(0), tl.program_id(1)
    LENGTH: tl.constexpr = BLOCKS * SIZE
    first = tl.load(chunks + i_c * 2).to(tl.int64)
    rows = tl.load(chunks + i_c * 2 + 1)
    b = tl.arange(0, BLOCKS)
    row = b[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    d = tl.arange(0, WIDTH)
    wanted = (row < rows)[:, :, None] & (d < DIM)[None, None, :]
    block = tl.arange(0, LENGTH) // SIZE
    line = tl.arange(0, LENGTH)
    head_row = (i_h * length + i_c * LENGTH).to(tl.int64) + line
    wide = head_row[:, None] * WIDTH + d[None, :]
    at = (first + row)[:, :, None] * decay_stride + i_h * DIM + d[None, None, :]
    log = tl.cumsum(tl.load(decays + at, mask=wanted, other=0.0), 1)
    last = (tl.arange(0, SIZE) == SIZE - 1)[None, :, None]
    whole = tl.sum(tl.where(last, log, 0.0), 1)
    shares = tl.exp(whole)  # what a block leaves of the state
    before = tl.full([BLOCKS, WIDTH], 1.0, tl.float32)
    after = tl.full([BLOCKS, WIDTH], 1.0, tl.float32)
    total = tl.full([WIDTH], 1.0, tl.float32)
    for i in tl.static_range(BLOCKS):
        share = _block(shares, i, BLOCKS)
        before = tl.where((b > i)[:, None], before * share[None, :], before)
        after = tl.where((b < i)[:, None], after * share[None, :], after)
        total *= share
    tl.store(totals + (i_h * count + i_c).to(tl.int64) * WIDTH + d, total)
    at = (first + row)[:, :, None] * stride + i_h * DIM + d[None, None, :]
    query = _load_unit(qkv + at, wanted, SCALE) * tl.exp(log)
    left_q = operand(tl.reshape(query, [LENGTH, WIDTH]), DTYPE)
    query = tl.reshape(query * before[:, None, :], [LENGTH, WIDTH])
    tl.store(queries + wide, cast(query, DTYPE))
    key = _load_unit(qkv + HEADS * DIM + at, wanted, 1.0)
    shrunk = key * tl.exp(log)
    left_k = operand(tl.reshape(shrunk, [LENGTH, WIDTH]), DTYPE)
    shrunk = tl.reshape(shrunk * before[:, None, :], [LENGTH, WIDTH])
    tl.store(keys + wide, cast(shrunk, DTYPE))
    grown = operand(tl.reshape(key * tl.exp(-log), [LENGTH, WIDTH]), DTYPE)
    reach = key * tl.exp(whole[:, None, :] - log)
    tl.store(ends + wide, cast(tl.reshape(reach * after[:, None, :], [LENGTH, WIDTH]), DTYPE))
    between = tl.full([BLOCKS, WIDTH], 1.0, tl.float32)
    strict = tl.zeros([LENGTH, LENGTH], tl.float32)
    within = tl.zeros([LENGTH, LENGTH], tl.float32)
    for i in tl.static_range(BLOCKS):
        right = operand(tl.reshape(reach * between[:, None, :], [LENGTH, WIDTH]), DTYPE)
        right = tl.where((block < i)[:, None], right, 0.0).to(right.dtype)
        right = tl.trans(tl.where((block == i)[:, None], grown, right))
        mine = (block == i)[:, None]
        strict = tl.where(mine, dot(left_k, right), strict)
        within = tl.where(mine, dot(left_q, right), within)
        share = _block(shares, i, BLOCKS)
        between = tl.where((b < i)[:, None], between * share[None, :], between)
    beta_at = betas + (first + line) * beta_stride + i_h
    beta = tl.load(beta_at, mask=line < rows, other=0.0)
    strict = tl.where(line[:, None] > line[None, :], strict * -beta[:, None], 0.0)
    within = tl.where(line[:, None] >= line[None, :], within, 0.0)
    solve = _inverse(strict, BLOCKS, SIZE, PRECISION) * beta[None, :]
    square = head_row[:, None] * LENGTH + line[None, :]
    tl.store(solves + square, cast(solve, DTYPE))
    tl.store(attends + square, cast(within, DTYPE))


@triton.jit
def _inter_kernel(
    qkv, chunks, lanes, queries, keys, ends, solves, attends, totals, states, outs,
    length, count, stride,
    HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, LENGTH: tl.constexpr,
    VALUES: tl.constexpr, DTYPE: tl.constexpr, OUT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The chunks of lane i_n, one after the other, for VALUES columns of one head's state."""
    i_v, i_h, i_n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    begin = tl.load(lanes + i_n * 3)
    end = begin + tl.load(lanes + i_n * 3 + 1)
    slot = tl.load(lanes + i_n * 3 + 2).to(tl.int64)
    d, line = tl.arange(0, WIDTH), tl.arange(0, LENGTH)
    v = i_v * VALUES + tl.arange(0, VALUES)
    inside = (d < DIM)[:, None] & (v < DIM)[None, :]
    place = states + (slot * HEADS + i_h) * DIM * DIM + d[:, None] * DIM + v[None, :]
    state = tl.load(place, mask=inside, other=0.0)
    for i_c in tl.range(begin, end, num_stages=STAGES):
        first = tl.load(chunks + i_c * 2).to(tl.int64)
        rows = tl.load(chunks + i_c * 2 + 1)
        head_row = (i_h * length + i_c * LENGTH).to(tl.int64) + line
        wide = head_row[:, None] * WIDTH + d[None, :]
        square = head_row[:, None] * LENGTH + line[None, :]
        real = (line < rows)[:, None] & (v < DIM)[None, :]
        at = (first + line)[:, None]
        value_at = qkv + at * stride + (2 * HEADS + i_h) * DIM + v[None, :]
        value = tl.load(value_at, mask=real, other=0.0).to(tl.float32)
        held = operand(state, DTYPE)
        seen = dot(operand(tl.load(keys + wide), DTYPE), held)
        change = operand(value - seen, DTYPE)
        solve = operand(tl.load(solves + square), DTYPE)
        delta = operand(dot(solve, change), DTYPE)
        out = dot(operand(tl.load(queries + wide), DTYPE), held)
        attend = operand(tl.load(attends + square), DTYPE)
        out = dot(attend, delta, out)
        out_at = outs + (at * HEADS + i_h) * DIM + v[None, :]
        tl.store(out_at, cast(out, OUT), mask=real)
        share = tl.load(totals + (i_h * count + i_c).to(tl.int64) * WIDTH + d)
        to_end = tl.trans(operand(tl.load(ends + wide), DTYPE))
        state = dot(to_end, delta, state * share[:, None])
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
    [slots, H, d, d] float32, lanes [N, 3] int32: first row, rows, slot -> o [R, H, d]. States move
    on only to `keep`; o is written only to `give`, which a replay of accepted rows does not ask.
    Raises `ArgumentError` when the shapes do not fit.
    """
    h, d = constants.heads, constants.dim
    _check("window", qkv, decay, beta, states, constants)
    outs = qkv.new_empty(qkv.shape[0] if give else 1, h, d)
    values = min(WINDOW_VALUES, triton.next_power_of_2(d))
    _window_kernel[(triton.cdiv(d, values), h, len(lanes))](
        qkv, decay, beta, states, outs, lanes, qkv.stride(0), decay.stride(0), beta.stride(0),
        int(keep), int(give), HEADS=h, DIM=d, WIDTH=triton.next_power_of_2(d), VALUES=values,
        SCALE=d**-0.5, DTYPE=_dtype(qkv), num_warps=1,
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
    place, chunks [C, 2] int32: first row, rows; lanes [N, 3] int32: first chunk, chunks, slot ->
    o [R, H, d], of which rows in no chunk stay unwritten. Raises `ArgumentError` when the shapes do
    not fit.
    """
    _check("prompt", qkv, decay, beta, states, constants)
    h, d, count = constants.heads, constants.dim, len(chunks)
    width, length = max(16, triton.next_power_of_2(d)), count * CHUNK
    outs = qkv.new_empty(qkv.shape[0], h, d)
    wide = qkv.new_empty(3, h, length, width)
    square = qkv.new_empty(2, h, length, CHUNK)
    totals = torch.empty(h, count, width, device=qkv.device)
    dtype = _dtype(qkv)
    _intra_kernel[(count, h)](
        qkv, decay, beta, chunks, wide[0], wide[1], wide[2], square[0], square[1], totals,
        length, count, qkv.stride(0), decay.stride(0), beta.stride(0),
        HEADS=h, DIM=d, WIDTH=width, BLOCKS=CHUNK // constants.block, SIZE=constants.block,
        SCALE=d**-0.5, PRECISION="ieee" if dtype == tl.float32 else "tf32", DTYPE=dtype,
        num_warps=8,
    )  # fmt: skip
    values = min(PROMPT_VALUES, width)
    _inter_kernel[(triton.cdiv(d, values), h, len(lanes))](
        qkv, chunks, lanes, wide[0], wide[1], wide[2], square[0], square[1], totals, states, outs,
        length, count, qkv.stride(0),
        HEADS=h, DIM=d, WIDTH=width, LENGTH=CHUNK, VALUES=values, DTYPE=dtype, OUT=dtype,
        STAGES=2, num_warps=4,
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
    if states.shape[1:] != (h, d, d) or not states.is_contiguous():
        raise ArgumentError(f"{what}: state {states.shape}, {h} heads of {d}, contiguous")


def _dtype(rows: torch.Tensor) -> tl.dtype:
    return tl.bfloat16 if rows.dtype == torch.bfloat16 else tl.float32
