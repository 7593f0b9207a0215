"""RMS norm, plain and gated: a program reads its rows once, as many of them as it has room for.

Invariant: how many rows a program takes hangs on their width alone, never on how many there are, so
a row's squares are added up in the same order in every company.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.blocks import cast
from streamglm.kernels.rms_norm.reference import NormWeights

VALUES = 4096
"""Of one program, in whole rows: of rows this wide or wider, one."""


@triton.jit(do_not_specialize=["rows"])
def rms_norm_kernel(
    p_x, p_gate, p_weight, p_y, rows, stride_x, stride_gate, stride_y, share, eps,
    D: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)[:, None]
    o_d = tl.arange(0, BLOCK_D)
    mask = (row < rows) & (o_d < D)[None, :]
    b_weight = tl.load(p_weight + o_d, mask=o_d < D, other=0.0).to(tl.float32)[None, :]
    overlap.behind()
    b_x = tl.load(p_x + row * stride_x + o_d[None, :], mask=mask, other=0.0).to(tl.float32)
    if GATED:
        b_gate = tl.load(p_gate + row * stride_gate + o_d[None, :], mask=mask, other=0.0)
    factor = 1.0 / tl.sqrt(tl.sum(b_x * b_x, 1) * share + eps)
    b_y = b_x * factor[:, None] * b_weight
    if GATED:
        b_y *= b_gate.to(tl.float32)
    p_out = p_y + row * stride_y + o_d[None, :]
    tl.store(p_out, cast(b_y, p_y.dtype.element_ty), mask=mask)


def rms_norm(x: torch.Tensor, norm: NormWeights, gate: torch.Tensor | None = None) -> torch.Tensor:
    """x [..., D] and gate alike -> the same shape and dtype, contiguous."""
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    gates = rows if gate is None else gate.reshape(-1, width)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(width)
    each = max(1, VALUES // block)
    rms_norm_kernel[(triton.cdiv(len(rows), each),)](
        p_x=rows, p_gate=gates, p_weight=norm.weight, p_y=y, rows=len(rows),
        stride_x=rows.stride(0), stride_gate=gates.stride(0), stride_y=width,
        share=float(norm.host_share), eps=float(norm.host_eps),
        D=width, BLOCK_R=each, BLOCK_D=block, GATED=gate is not None,
        num_warps=8, **overlap.options(),
    )  # fmt: skip
    return y
