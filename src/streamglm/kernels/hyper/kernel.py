"""Hyper-connections in two launches a site, whatever the number of rows.

The first takes the last layer's output into the streams and multiplies what results with the site's
weights, a chunk of every stream a program. The second adds the chunks up in their order, makes the
coefficients (Sinkhorn on 4 x 4 in registers), collapses and norms: one program a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels.blocks import cast, dot, sigmoid
from streamglm.kernels.hyper.site import Mix, Site

BLOCK_R, BLOCK_D = 16, 64


@triton.jit
def _expanded(p_h, p_y, p_post, p_comb, o_rows, o_d, mask, mask_rows, k,
              S: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """Stream k of rows o_rows, columns o_d, with the layer's output taken in; float32."""
    b_y = tl.load(p_y + o_rows[:, None] * D + o_d[None, :], mask=mask, other=0.0)
    b_post = tl.load(p_post + o_rows * S + k, mask=mask_rows, other=0.0)
    acc = b_post[:, None] * b_y.to(tl.float32)
    for j in tl.static_range(S):
        p_in = p_h + (o_rows[:, None] * S + j) * D + o_d[None, :]
        b_comb = tl.load(p_comb + (o_rows * S + k) * S + j, mask=mask_rows, other=0.0)
        acc += b_comb[:, None] * tl.load(p_in, mask=mask, other=0.0).to(tl.float32)
    return acc


@triton.jit
def mix_kernel(
    p_h, p_y, p_post, p_comb, p_fn, p_new, p_parts, R, CHUNKS,
    S: tl.constexpr, D: tl.constexpr, C: tl.constexpr, EXPAND: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Column C of a part is the sum of the squares."""
    i_d = tl.program_id(0)
    o_rows = (tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
    o_d = i_d * BLOCK_D + tl.arange(0, BLOCK_D)
    o_c = tl.arange(0, BLOCK_C)
    mask_rows = o_rows < R
    mask = mask_rows[:, None] & (o_d < D)[None, :]
    mask_fn = (o_c < C)[:, None] & (o_d < D)[None, :]
    acc = tl.zeros([BLOCK_C, BLOCK_R], tl.float32)
    squares = tl.zeros([BLOCK_R], tl.float32)
    for k in tl.static_range(S):
        o_h = (o_rows[:, None] * S + k) * D + o_d[None, :]
        if EXPAND:
            b_new = _expanded(p_h, p_y, p_post, p_comb, o_rows, o_d, mask, mask_rows, k, S, D)
            b_z = cast(b_new, p_new.dtype.element_ty)
            tl.store(p_new + o_h, b_z, mask=mask)
        else:
            b_z = tl.load(p_h + o_h, mask=mask, other=0.0)
        b_fn = tl.load(p_fn + o_c[:, None] * (S * D) + k * D + o_d[None, :], mask=mask_fn,
                       other=0.0)  # fmt: skip
        acc = dot(b_fn.to(b_z.dtype), tl.trans(b_z), acc)
        wide = b_z.to(tl.float32)
        squares += tl.sum(wide * wide, 1)
    b_part = tl.where((o_c == C)[:, None], squares[None, :], acc)
    p_out = p_parts + (o_rows[None, :] * CHUNKS + i_d) * BLOCK_C + o_c[:, None]
    tl.store(p_out, b_part, mask=mask_rows[None, :] & (o_c <= C)[:, None])


@triton.jit
def _total(p_part, o_parts, o_c, mask_parts, mask_c):
    """Columns o_c of a row's parts, added up in one fixed order."""
    mask = mask_parts[:, None] & mask_c[None, :]
    return tl.sum(tl.load(p_part + o_parts[:, None] + o_c[None, :], mask=mask, other=0.0), 0)


@triton.jit
def enter_kernel(
    p_h, p_parts, p_base, p_scale, p_norm, p_x, p_post, p_comb,
    fn_eps, norm_eps, eps, CHUNKS, ITERATIONS: tl.constexpr,
    S: tl.constexpr, D: tl.constexpr, C: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_CHUNKS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64)
    p_part = p_parts + i_row * CHUNKS * BLOCK_C
    o_chunk = tl.arange(0, BLOCK_CHUNKS)
    o_parts, mask_parts = o_chunk * BLOCK_C, o_chunk < CHUNKS
    o_s = tl.arange(0, BLOCK_S)
    o_one = tl.arange(0, 1)
    squares = tl.sum(_total(p_part, o_parts, C + o_one, mask_parts, o_one == 0), 0)
    factor = 1.0 / tl.sqrt(squares / (S * D) + fn_eps)

    mask_s = o_s < S
    pre = _total(p_part, o_parts, o_s, mask_parts, mask_s) * factor * tl.load(p_scale)
    pre = sigmoid(pre + tl.load(p_base + o_s, mask=mask_s, other=0.0)) + eps
    post = _total(p_part, o_parts, S + o_s, mask_parts, mask_s) * factor * tl.load(p_scale + 1)
    post = 2.0 * sigmoid(post + tl.load(p_base + S + o_s, mask=mask_s, other=0.0))
    tl.store(p_post + i_row * S + o_s, post, mask=mask_s)

    o_jk = tl.arange(0, BLOCK_S * BLOCK_S)  # stream in, then stream out
    o_in, o_out = o_jk // BLOCK_S, o_jk % BLOCK_S
    real = (o_in < S) & (o_out < S)
    o_comb = 2 * S + o_in * S + o_out
    comb = _total(p_part, o_parts, o_comb, mask_parts, real) * factor * tl.load(p_scale + 2)
    comb = comb + tl.load(p_base + o_comb, mask=real, other=0.0)
    comb = tl.reshape(tl.where(real, comb, -3.0e38), [BLOCK_S, BLOCK_S])
    real = mask_s[:, None] & mask_s[None, :]
    comb = tl.where(real, tl.exp(comb - tl.max(comb, 1)[:, None]), 0.0)
    comb = tl.where(real, comb / tl.maximum(tl.sum(comb, 1)[:, None], 1e-30) + eps, 0.0)
    comb = comb / (tl.sum(comb, 0)[None, :] + eps)
    for _ in range(ITERATIONS - 1):
        comb = comb / (tl.sum(comb, 1)[:, None] + eps)
        comb = comb / (tl.sum(comb, 0)[None, :] + eps)
    p_out = p_comb + i_row * S * S + o_s[None, :] * S + o_s[:, None]
    tl.store(p_out, comb, mask=real)

    o_d = tl.arange(0, BLOCK_D)
    mask_d = o_d < D
    b_u = tl.zeros([BLOCK_D], tl.float32)
    for j in tl.static_range(S):
        b_h = tl.load(p_h + (i_row * S + j) * D + o_d, mask=mask_d, other=0.0).to(tl.float32)
        b_u += tl.sum(tl.where(o_s == j, pre, 0.0), 0) * b_h
    _norm(p_x + i_row * D, p_norm, b_u, o_d, mask_d, norm_eps, D)


@triton.jit
def _norm(p_x, p_norm, b_u, o_d, mask, eps, D: tl.constexpr):
    """A row rounded to the dtype of x, then its RMS norm."""
    b_u = cast(b_u, p_x.dtype.element_ty).to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.sum(b_u * b_u, 0) / D + eps)
    b_x = b_u * factor * tl.load(p_norm + o_d, mask=mask, other=0.0).to(tl.float32)
    tl.store(p_x + o_d, cast(b_x, p_x.dtype.element_ty), mask=mask)


@triton.jit
def last_kernel(
    p_h, p_y, p_post, p_comb, p_norm, p_x, eps,
    S: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    o_row = (tl.program_id(0) + tl.arange(0, 1)).to(tl.int64)
    o_d = tl.arange(0, BLOCK_D)
    mask_d = o_d < D
    mask = (o_row >= 0)[:, None] & mask_d[None, :]
    acc = tl.zeros([1, BLOCK_D], tl.float32)
    for k in tl.static_range(S):
        b_new = _expanded(p_h, p_y, p_post, p_comb, o_row, o_d, mask, o_row >= 0, k, S, D)
        acc += cast(b_new, p_h.dtype.element_ty).to(tl.float32)
    b_mean = tl.reshape(acc, [BLOCK_D]) * (1.0 / S)
    p_out = p_x + tl.program_id(0).to(tl.int64) * D
    _norm(p_out, p_norm, b_mean, o_d, mask_d, eps, D)


def site(
    streams: torch.Tensor, y: torch.Tensor | None, mix: Mix | None, weights: Site
) -> tuple[torch.Tensor, torch.Tensor, Mix]:
    """streams [R, S, D] contiguous -> the streams now, the layer's input [R, D], and its mix."""
    rows, s, width = streams.shape
    device, outputs = streams.device, weights.fn.shape[0]
    chunks, block_c = triton.cdiv(width, BLOCK_D), triton.next_power_of_2(outputs + 1)
    parts = torch.empty(rows, chunks, max(16, block_c), device=device)
    expands = y is not None and mix is not None
    new = torch.empty_like(streams) if expands else streams
    mix_kernel[(chunks, triton.cdiv(rows, BLOCK_R))](
        p_h=streams, p_y=y if expands else streams, p_post=mix.post if expands else parts,
        p_comb=mix.comb if expands else parts, p_fn=weights.fn, p_new=new, p_parts=parts,
        R=rows, CHUNKS=chunks, S=s, D=width, C=outputs, EXPAND=expands,
        BLOCK_C=max(16, block_c), BLOCK_R=BLOCK_R, BLOCK_D=BLOCK_D, num_warps=4,
    )  # fmt: skip
    x = torch.empty(rows, width, dtype=streams.dtype, device=device)
    post = torch.empty(rows, s, device=device)
    comb = torch.empty(rows, s, s, device=device)
    enter_kernel[(rows,)](
        p_h=new, p_parts=parts, p_base=weights.base, p_scale=weights.scale, p_norm=weights.norm,
        p_x=x, p_post=post, p_comb=comb, fn_eps=weights.fn_eps, norm_eps=weights.norm_eps,
        eps=weights.eps, CHUNKS=chunks, ITERATIONS=weights.iterations, S=s, D=width, C=outputs,
        BLOCK_C=max(16, block_c), BLOCK_S=triton.next_power_of_2(s),
        BLOCK_CHUNKS=triton.next_power_of_2(chunks), BLOCK_D=triton.next_power_of_2(width),
        num_warps=8,
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
        S=s, D=width, BLOCK_D=triton.next_power_of_2(width), num_warps=8,
    )  # fmt: skip
    return x
