"""Hyper-connections in two launches a site, whatever the number of rows.

The first takes the last layer's output into the streams and multiplies what results with the site's
weights, a chunk of every stream a program. The second adds the chunks up in their order and has two
programs a row, side by side: one collapses the streams and norms, one makes what the next site
mixes by (Sinkhorn on 4 x 4, whose steps wait for one another longer than the other takes).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.blocks import INTERPRETED, cast, dot, sigmoid
from streamglm.kernels.hyper.site import Mix, Site

BLOCK_R, BLOCK_D = 16, 64
"""Rows and columns of a program of the first. The order of a row's sums hangs on both, so they are
the same for windows and prompts."""
LONG, STEPS = 2048, 4
"""From so many rows on, a program of the first takes so many blocks of rows, one after the other:
it loads the weights once, which are more than a block's streams."""


@triton.jit
def _inverse(x):
    """1 / x to one unit in the last place, in one instruction: Sinkhorn has 39 in a row."""
    if INTERPRETED:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def _made(x):
    """x as it is. What stands behind this is laid out as it was made: without it the compiler lays
    out all that x comes from for the product, and loads value by value."""
    if INTERPRETED:
        return x
    elif x.dtype == tl.float32:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=1
        )
    else:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2
        )


@triton.jit
def _expanded(p_h, p_y, p_post, p_comb, o_rows, o_d, mask_rows, mask_d,
              S: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """Rows o_rows, columns o_d of the streams with the layer's output in them: S blocks [R, D],
    float32. All that they need is asked for before any is made."""
    mask = mask_rows[:, None] & mask_d[None, :]
    b_y = tl.load(p_y + o_rows[:, None] * D + o_d[None, :], mask=mask, other=0.0)
    given = ()
    for j in tl.static_range(S):
        p_in = p_h + (o_rows[:, None] * S + j) * D + o_d[None, :]
        given = given + (tl.load(p_in, mask=mask, other=0.0),)  # noqa: RUF005
    found = ()
    for k in tl.static_range(S):
        b_post = tl.load(p_post + o_rows * S + k, mask=mask_rows, other=0.0)
        acc = b_post[:, None] * b_y.to(tl.float32)
        for j in tl.static_range(S):
            b_comb = tl.load(p_comb + (o_rows * S + k) * S + j, mask=mask_rows, other=0.0)
            acc += b_comb[:, None] * given[j].to(tl.float32)
        found = found + (acc,)  # noqa: RUF005
    return found


@triton.jit(do_not_specialize=["steps"])
def mix_kernel(
    p_h, p_y, p_post, p_comb, p_fn, p_new, p_parts, R, CHUNKS, steps,
    S: tl.constexpr, D: tl.constexpr, C: tl.constexpr, EXPAND: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Column C of a part is the sum of the squares."""
    i_d = tl.program_id(0)
    o_c, o_d = tl.arange(0, BLOCK_C), i_d * BLOCK_D + tl.arange(0, BLOCK_D)
    mask_d = o_d < D
    mask_fn = (o_c < C)[:, None] & mask_d[None, :]
    weights = ()
    for k in tl.static_range(S):
        p_weight = p_fn + o_c[:, None] * (S * D) + k * D + o_d[None, :]
        weights = weights + (tl.load(p_weight, mask=mask_fn, other=0.0),)  # noqa: RUF005
    overlap.behind()
    for step in tl.range(0, steps, num_stages=1):
        i_r = tl.program_id(1) * steps + step
        o_rows = (i_r * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
        mask_rows = o_rows < R
        mask = mask_rows[:, None] & mask_d[None, :]
        if EXPAND:
            streams = _expanded(p_h, p_y, p_post, p_comb, o_rows, o_d, mask_rows, mask_d, S, D)
        else:
            streams = ()
            for k in tl.static_range(S):
                p_in = p_h + (o_rows[:, None] * S + k) * D + o_d[None, :]
                b_h = tl.load(p_in, mask=mask, other=0.0)
                streams = streams + (b_h.to(tl.float32),)  # noqa: RUF005
        acc = tl.zeros([BLOCK_C, BLOCK_R], tl.float32)
        squares = tl.zeros([BLOCK_R, BLOCK_D], tl.float32)
        for k in tl.static_range(S):
            b_z = _made(cast(streams[k], p_new.dtype.element_ty))
            if EXPAND:
                tl.store(p_new + (o_rows[:, None] * S + k) * D + o_d[None, :], b_z, mask=mask)
            acc = dot(weights[k].to(b_z.dtype), tl.trans(b_z), acc)
            wide = b_z.to(tl.float32)
            squares += wide * wide
        b_part = tl.where((o_c == C)[:, None], tl.sum(squares, 1)[None, :], acc)
        p_out = p_parts + (o_rows[None, :] * CHUNKS + i_d) * BLOCK_C + o_c[:, None]
        tl.store(p_out, b_part, mask=mask_rows[None, :] & (o_c <= C)[:, None])


@triton.jit
def _parts(p_part, o_parts, o_c, mask_parts, mask_c):
    """Columns o_c of a row's parts, one below the other; they are added up in one fixed order."""
    mask = mask_parts[:, None] & mask_c[None, :]
    return tl.load(p_part + o_parts[:, None] + o_c[None, :], mask=mask, other=0.0)


@triton.jit
def _factor(b_squares, eps, S: tl.constexpr, D: tl.constexpr):
    """One over the root mean square of a row's streams."""
    return 1.0 / tl.sqrt(tl.sum(b_squares, 0) / (S * D) + eps)


@triton.jit
def _enter(
    i_row, p_h, p_part, o_parts, mask_parts, p_base, p_scale, p_norm, p_x, fn_eps, norm_eps, eps,
    S: tl.constexpr, D: tl.constexpr, C: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The layer's input."""
    o_s, o_d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    mask_s, mask_d = o_s < S, o_d < D
    b_norm = tl.load(p_norm + o_d, mask=mask_d, other=0.0).to(tl.float32)
    b_base = tl.load(p_base + o_s, mask=mask_s, other=0.0)
    scale = tl.load(p_scale)
    overlap.behind()
    p_in = p_h + (i_row * S + o_s[:, None]) * D + o_d[None, :]
    b_h = tl.load(p_in, mask=mask_s[:, None] & mask_d[None, :], other=0.0)
    b_squares = tl.load(p_part + o_parts + C, mask=mask_parts, other=0.0)
    b_pre = _parts(p_part, o_parts, o_s, mask_parts, mask_s)
    pre = tl.sum(b_pre, 0) * _factor(b_squares, fn_eps, S, D) * scale
    pre = tl.where(mask_s, sigmoid(pre + b_base) + eps, 0.0)
    b_u = tl.sum(pre[:, None] * b_h.to(tl.float32), 0)
    _norm(p_x + i_row * D, b_norm, b_u, o_d, mask_d, norm_eps, D)


@triton.jit
def _leave(
    i_row, p_part, o_parts, mask_parts, p_base, p_scale, p_post, p_comb, fn_eps, eps,
    ITERATIONS: tl.constexpr, S: tl.constexpr, D: tl.constexpr, C: tl.constexpr,
    BLOCK_S: tl.constexpr,
):  # fmt: skip
    """How the layer's output will join the streams."""
    o_s = tl.arange(0, BLOCK_S)
    mask_s = o_s < S
    o_jk = tl.arange(0, BLOCK_S * BLOCK_S)  # stream in, then stream out
    o_in, o_out = o_jk // BLOCK_S, o_jk % BLOCK_S
    real = (o_in < S) & (o_out < S)
    o_comb = 2 * S + o_in * S + o_out
    base_post = tl.load(p_base + S + o_s, mask=mask_s, other=0.0)
    base_comb = tl.load(p_base + o_comb, mask=real, other=0.0)
    scale_post, scale_comb = tl.load(p_scale + 1), tl.load(p_scale + 2)
    overlap.behind()
    b_squares = tl.load(p_part + o_parts + C, mask=mask_parts, other=0.0)
    b_post = _parts(p_part, o_parts, S + o_s, mask_parts, mask_s)
    b_comb = _parts(p_part, o_parts, o_comb, mask_parts, real)
    factor = _factor(b_squares, fn_eps, S, D)
    post = tl.sum(b_post, 0) * factor * scale_post + base_post
    tl.store(p_post + i_row * S + o_s, 2.0 * sigmoid(post), mask=mask_s)

    comb = tl.sum(b_comb, 0) * factor * scale_comb + base_comb
    comb = tl.reshape(tl.where(real, comb, -3.0e38), [BLOCK_S, BLOCK_S])
    real = mask_s[:, None] & mask_s[None, :]
    comb = tl.where(real, tl.exp(comb - tl.max(comb, 1)[:, None]), 0.0)
    comb = tl.where(real, comb * _inverse(tl.maximum(tl.sum(comb, 1), 1e-30))[:, None] + eps, 0.0)
    comb = comb * _inverse(tl.sum(comb, 0) + eps)[None, :]
    for _ in range(ITERATIONS - 1):
        comb = comb * _inverse(tl.sum(comb, 1) + eps)[:, None]
        comb = comb * _inverse(tl.sum(comb, 0) + eps)[None, :]
    p_out = p_comb + i_row * S * S + o_s[None, :] * S + o_s[:, None]
    tl.store(p_out, comb, mask=real)


@triton.jit
def enter_kernel(
    p_h, p_parts, p_base, p_scale, p_norm, p_x, p_post, p_comb,
    fn_eps, norm_eps, eps, CHUNKS, ITERATIONS: tl.constexpr,
    S: tl.constexpr, D: tl.constexpr, C: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_CHUNKS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    i_row = (tl.program_id(0) // 2).to(tl.int64)
    p_part = p_parts + i_row * CHUNKS * BLOCK_C
    o_chunk = tl.arange(0, BLOCK_CHUNKS)
    o_parts, mask_parts = o_chunk * BLOCK_C, o_chunk < CHUNKS
    if tl.program_id(0) % 2 == 0:
        _leave(i_row, p_part, o_parts, mask_parts, p_base, p_scale, p_post, p_comb, fn_eps, eps,
               ITERATIONS, S, D, C, BLOCK_S)  # fmt: skip
    else:
        _enter(i_row, p_h, p_part, o_parts, mask_parts, p_base, p_scale, p_norm, p_x,
               fn_eps, norm_eps, eps, S, D, C, BLOCK_S, BLOCK_D)  # fmt: skip


@triton.jit
def _norm(p_x, b_norm, b_u, o_d, mask, eps, D: tl.constexpr):
    """A row rounded to the dtype of x, then its RMS norm."""
    b_u = cast(b_u, p_x.dtype.element_ty).to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.sum(b_u * b_u, 0) / D + eps)
    tl.store(p_x + o_d, cast(b_u * factor * b_norm, p_x.dtype.element_ty), mask=mask)


@triton.jit
def last_kernel(
    p_h, p_y, p_post, p_comb, p_norm, p_x, eps,
    S: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    o_d = tl.arange(0, BLOCK_D)
    mask_d = o_d < D
    b_norm = tl.load(p_norm + o_d, mask=mask_d, other=0.0).to(tl.float32)
    overlap.behind()
    o_row = (tl.program_id(0) + tl.arange(0, 1)).to(tl.int64)
    streams = _expanded(p_h, p_y, p_post, p_comb, o_row, o_d, o_row >= 0, mask_d, S, D)
    acc = tl.zeros([1, BLOCK_D], tl.float32)
    for k in tl.static_range(S):
        acc += cast(streams[k], p_h.dtype.element_ty).to(tl.float32)
    b_mean = tl.reshape(acc, [BLOCK_D]) * (1.0 / S)
    p_out = p_x + tl.program_id(0).to(tl.int64) * D
    _norm(p_out, b_norm, b_mean, o_d, mask_d, eps, D)


def site(
    streams: torch.Tensor, y: torch.Tensor | None, mix: Mix | None, weights: Site
) -> tuple[torch.Tensor, torch.Tensor, Mix]:
    """streams [R, S, D] contiguous -> the streams now, the layer's input [R, D], and its mix."""
    rows, s, width = streams.shape
    device, outputs = streams.device, weights.fn.shape[0]
    chunks, block_c = triton.cdiv(width, BLOCK_D), triton.next_power_of_2(outputs + 1)
    block_s = triton.next_power_of_2(s)
    parts = torch.empty(rows, chunks, max(16, block_c), device=device)
    expands = y is not None and mix is not None
    new = torch.empty_like(streams) if expands else streams
    steps = STEPS if rows >= LONG else 1
    mix_kernel[(chunks, triton.cdiv(rows, steps * BLOCK_R))](
        p_h=streams, p_y=y if expands else streams, p_post=mix.post if expands else parts,
        p_comb=mix.comb if expands else parts, p_fn=weights.fn, p_new=new, p_parts=parts,
        R=rows, CHUNKS=chunks, steps=steps, S=s, D=width, C=outputs, EXPAND=expands,
        BLOCK_C=max(16, block_c), BLOCK_R=BLOCK_R, BLOCK_D=BLOCK_D,
        num_warps=4, **overlap.options(),
    )  # fmt: skip
    x = torch.empty(rows, width, dtype=streams.dtype, device=device)
    post = torch.empty(rows, s, device=device)
    comb = torch.empty(rows, s, s, device=device)
    enter_kernel[(2 * rows,)](
        p_h=new, p_parts=parts, p_base=weights.base, p_scale=weights.scale, p_norm=weights.norm,
        p_x=x, p_post=post, p_comb=comb, fn_eps=weights.fn_eps, norm_eps=weights.norm_eps,
        eps=weights.eps, CHUNKS=chunks, ITERATIONS=weights.iterations, S=s, D=width, C=outputs,
        BLOCK_C=max(16, block_c), BLOCK_S=block_s,
        BLOCK_CHUNKS=triton.next_power_of_2(chunks), BLOCK_D=triton.next_power_of_2(width),
        num_warps=4, **overlap.options(),
    )  # fmt: skip
    return new, x, Mix(post, comb)


def last(
    streams: torch.Tensor, y: torch.Tensor, mix: Mix, norm: torch.Tensor, eps: float
) -> torch.Tensor:
    """streams [R, S, D] and y [R, D] contiguous -> [R, D]."""
    rows, s, width = streams.shape
    x = torch.empty(rows, width, dtype=streams.dtype, device=streams.device)
    last_kernel[(rows,)](
        p_h=streams, p_y=y, p_post=mix.post, p_comb=mix.comb, p_norm=norm, p_x=x, eps=eps,
        S=s, D=width, BLOCK_D=triton.next_power_of_2(width),
        num_warps=8, **overlap.options(),
    )  # fmt: skip
    return x
