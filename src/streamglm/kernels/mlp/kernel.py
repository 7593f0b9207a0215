"""SwiGLU of a product: gate and up of the same columns in one program, and nothing in between."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.blocks import cast, sigmoid
from streamglm.kernels.matrix import Matrix
from streamglm.kernels.product import Tile, parts, product, product_of


@triton.jit
def swiglu(b_gate, b_up, limit):
    """silu(min(gate, limit)) * clamp(up, -limit, limit)."""
    b_gate = tl.minimum(b_gate, limit)
    b_up = tl.minimum(tl.maximum(b_up, -limit), limit)
    return b_gate * sigmoid(b_gate) * b_up


@triton.jit
def glu_kernel(
    p_x, p_w, p_scale, p_whole, p_y, stride_x, stride_y, R, limit,
    INNER: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr, HALVES: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows 0.. of the weight are the gate's, rows INNER.. those of up."""
    i_n = tl.program_id(0) * BLOCK_N
    o_rows = (tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
    mask_rows = o_rows < R
    b_y = glu(p_x, o_rows, mask_rows, stride_x, p_w, p_scale, p_whole, i_n, limit,
              INNER, K, FORMAT, HALVES, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
    store_rows(p_y, b_y, o_rows, mask_rows, i_n, stride_y, INNER, BLOCK_N)


@triton.jit
def glu(
    p_x, o_rows, mask_rows, stride_x, p_w, p_scale, p_whole, i_n, limit,
    INNER: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr, HALVES: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """[BLOCK_N, BLOCK_R] of hidden columns i_n.. of x's rows o_rows."""
    p_up, p_up_scale = second_half(p_w, p_scale, INNER, K, FORMAT)
    gate = product(p_x, o_rows, mask_rows, stride_x, p_w, p_scale, i_n,
                   INNER, K, FORMAT, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
    up = product(p_x, o_rows, mask_rows, stride_x, p_up, p_up_scale, i_n,
                 INNER, K, FORMAT, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
    if FORMAT == 2:
        gate *= tl.load(p_whole)
        up *= tl.load(p_whole + HALVES - 1)
    return swiglu(gate, up, limit)


@triton.jit
def glu_window_kernel(
    p_x, p_w, p_scale, p_whole, p_y, stride_x, stride_y, R, limit,
    INNER: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr, HALVES: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`glu_kernel` by `glu_window`."""
    overlap.behind()
    i_n = tl.program_id(0) * (BLOCK_N // 2)
    o_rows = (tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
    mask_rows = o_rows < R
    b_y = glu_window(p_x, o_rows, mask_rows, stride_x, p_w, p_scale, p_whole, i_n, limit,
                     INNER, K, FORMAT, HALVES, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
    store_rows(p_y, b_y, o_rows, mask_rows, i_n, stride_y, INNER, BLOCK_N // 2)


@triton.jit
def glu_window(
    p_x, o_rows, mask_rows, stride_x, p_w, p_scale, p_whole, i_n, limit,
    INNER: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr, HALVES: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """[BLOCK_N / 2, BLOCK_R] of hidden columns i_n.. of x's rows o_rows, by one loop over K.

    A tile has eight rows of gate and eight of up by turns: of a matrix instruction's 16 rows a
    thread has one of each eight, so that the two halves of a column meet in one thread.
    """
    o_tile = tl.arange(0, BLOCK_N)
    o_hidden = tl.minimum(i_n + o_tile // 16 * 8 + o_tile % 8, INNER - 1)
    o_n = tl.where(o_tile // 8 % 2 == 0, o_hidden, INNER + o_hidden)
    if FORMAT == 1:
        p_scale += o_n[:, None] // 128 * ((K + 127) // 128)
    acc = product_of(p_x, o_rows, mask_rows, stride_x, p_w, p_scale, o_n,
                     2 * INNER, K, FORMAT, BLOCK_N, BLOCK_R, BLOCK_K)  # fmt: skip
    by_turns = tl.reshape(acc, [BLOCK_N // 16, 2, 8, BLOCK_R])
    gate, up = tl.split(tl.permute(by_turns, (0, 2, 3, 1)))
    if FORMAT == 2:
        gate *= tl.load(p_whole)
        up *= tl.load(p_whole + HALVES - 1)
    return tl.reshape(swiglu(gate, up, limit), [BLOCK_N // 2, BLOCK_R])


@triton.jit
def second_half(p_w, p_scale, INNER: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr):
    """Numbers and scales from row INNER on; of FP8, INNER is a multiple of 128."""
    if FORMAT == 1:
        return p_w + INNER * K, p_scale + (INNER // 128) * ((K + 127) // 128)
    if FORMAT == 2:
        GROUPS: tl.constexpr = (K + 127) // 128
        return p_w + INNER * GROUPS * 32, p_scale + INNER * GROUPS * 8
    return p_w + INNER * K, p_scale


@triton.jit
def store_rows(p_y, b_y, o_rows, mask_rows, i_n, stride_y, N: tl.constexpr, BLOCK_N: tl.constexpr):
    """[BLOCK_N, BLOCK_R] into columns i_n.. of rows o_rows of y [., N]."""
    o_n = i_n + tl.arange(0, BLOCK_N)
    mask = mask_rows[:, None] & (o_n < N)[None, :]
    p_out = p_y + o_rows[:, None] * stride_y + o_n[None, :]
    tl.store(p_out, cast(tl.trans(b_y), p_y.dtype.element_ty), mask=mask)


def hidden(x: torch.Tensor, gate_up: Matrix, limit: float, tile: Tile) -> torch.Tensor:
    """x [R, K] -> [R, INNER] of x's dtype; gate_up [1, 2 INNER, K]."""
    inner = gate_up.width // 2
    y = torch.empty(len(x), inner, dtype=x.dtype, device=x.device)
    glu_kernel[(triton.cdiv(inner, tile.n), triton.cdiv(len(x), tile.r))](
        p_x=x, **_weights(gate_up), p_y=y, stride_x=x.stride(0), stride_y=inner, R=len(x),
        limit=limit, INNER=inner, K=gate_up.depth,
        BLOCK_N=tile.n, BLOCK_R=tile.r, BLOCK_K=tile.k,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return y


def window_hidden(x: torch.Tensor, gate_up: Matrix, limit: float, tile: Tile) -> torch.Tensor:
    """`hidden`; half of the tile's rows are gate's and half are up's."""
    inner = gate_up.width // 2
    y = torch.empty(len(x), inner, dtype=x.dtype, device=x.device)
    glu_window_kernel[(triton.cdiv(2 * inner, tile.n), triton.cdiv(len(x), tile.r))](
        p_x=x, **_weights(gate_up), p_y=y, stride_x=x.stride(0), stride_y=inner, R=len(x),
        limit=limit, INNER=inner, K=gate_up.depth,
        BLOCK_N=tile.n, BLOCK_R=tile.r, BLOCK_K=tile.k,
        num_warps=tile.warps, num_stages=tile.stages, **overlap.options(),
    )  # fmt: skip
    return y


def _weights(gate_up: Matrix) -> dict[str, object]:
    return {**parts(gate_up), "FORMAT": int(gate_up.format), "HALVES": gate_up.halves}
