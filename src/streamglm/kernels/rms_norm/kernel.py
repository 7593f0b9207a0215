"""RMS norm, plain and gated: one program a row, which it reads once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.blocks import cast
from streamglm.kernels.rms_norm.reference import NormWeights


@triton.jit
def rms_norm_kernel(
    p_x, p_gate, p_weight, p_y, stride_x, stride_gate, stride_y, share, eps,
    D: tl.constexpr, BLOCK_D: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, BLOCK_D)
    mask = o_d < D
    b_weight = tl.load(p_weight + o_d, mask=mask, other=0.0).to(tl.float32)
    overlap.behind()
    b_x = tl.load(p_x + i_row * stride_x + o_d, mask=mask, other=0.0).to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.sum(b_x * b_x, 0) * share + eps)
    b_y = b_x * factor * b_weight
    if GATED:
        b_y *= tl.load(p_gate + i_row * stride_gate + o_d, mask=mask, other=0.0).to(tl.float32)
    tl.store(p_y + i_row * stride_y + o_d, cast(b_y, p_y.dtype.element_ty), mask=mask)


def rms_norm(x: torch.Tensor, norm: NormWeights, gate: torch.Tensor | None = None) -> torch.Tensor:
    """x [..., D] and gate alike -> the same shape and dtype, contiguous."""
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    gates = rows if gate is None else gate.reshape(-1, width)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(width)
    rms_norm_kernel[(len(rows),)](
        p_x=rows, p_gate=gates, p_weight=norm.weight, p_y=y,
        stride_x=rows.stride(0), stride_gate=gates.stride(0), stride_y=width,
        share=float(norm.host_share), eps=float(norm.host_eps),
        D=width, BLOCK_D=block, GATED=gate is not None,
        num_warps=min(8, max(1, block // 512)), **overlap.options(),
    )  # fmt: skip
    return y
