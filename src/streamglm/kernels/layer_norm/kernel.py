"""Layer norm: one program a row, which it reads once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.blocks import cast
from streamglm.kernels.layer_norm.reference import LayerNormWeights


@triton.jit
def layer_norm_kernel(
    p_x, p_weight, p_bias, p_y, stride_x, eps, D: tl.constexpr, BLOCK_D: tl.constexpr
):
    i_row = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, BLOCK_D)
    mask = o_d < D
    b_weight = tl.load(p_weight + o_d, mask=mask, other=0.0).to(tl.float32)
    b_bias = tl.load(p_bias + o_d, mask=mask, other=0.0).to(tl.float32)
    overlap.behind()
    b_x = tl.load(p_x + i_row * stride_x + o_d, mask=mask, other=0.0).to(tl.float32)
    b_x = tl.where(mask, b_x - tl.sum(b_x, 0) / D, 0.0)
    b_y = b_x / tl.sqrt(tl.sum(b_x * b_x, 0) / D + eps)
    b_y = b_y * b_weight + b_bias
    tl.store(p_y + i_row * D + o_d, cast(b_y, p_y.dtype.element_ty), mask=mask)


def layer_norm(x: torch.Tensor, norm: LayerNormWeights) -> torch.Tensor:
    """x [..., D] -> the same shape and dtype, contiguous."""
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    layer_norm_kernel[(len(rows),)](
        p_x=rows, p_weight=norm.weight, p_bias=norm.bias, p_y=y, stride_x=rows.stride(0),
        eps=norm.eps, D=width, BLOCK_D=triton.next_power_of_2(width), num_warps=1,
        **overlap.options(),
    )  # fmt: skip
    return y
