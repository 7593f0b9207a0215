"""SwiGLU with the gate bounded above and the other half bounded on both sides, in torch."""

from __future__ import annotations

import torch

from streamglm.kernels.linear.reference import Weight, linear
from streamglm.kernels.matrix import Matrix
from streamglm.kernels.tiling import Tiling, silu_


def swiglu(x: torch.Tensor, limit: float) -> torch.Tensor:
    """x [M, 2 I] (gate, then up) -> silu(min(gate, limit)) * clamp(up, -limit, limit)."""
    width = x.shape[1] // 2
    gate = silu_(x[:, :width].clamp(max=limit))
    return gate.mul_(x[:, width:].clamp(-limit, limit))


def mlp(
    x: torch.Tensor, gate_up: Weight, down: Weight, limit: float, tiling: Tiling
) -> torch.Tensor:
    """x [M, D], gate_up [D, 2 I], down [I, D] -> [M, D]."""
    return linear(swiglu(linear(x, gate_up, tiling), limit), down, tiling)


def hidden_by_rows(x: torch.Tensor, gate_up: Matrix, limit: float) -> torch.Tensor:
    """x [R, K], gate_up [1, 2 I, K] -> [R, I], a row at a time."""
    weights = gate_up.values()[0]
    rows = [bounded(torch.mv(weights, row.float()), limit) for row in x]
    return torch.stack(rows).to(x.dtype)


def bounded(both: torch.Tensor, limit: float) -> torch.Tensor:
    """`swiglu` of one row [2 I], of any width."""
    gate, up = both.view(1, -1).chunk(2, 1)
    return (silu_(gate.clamp(max=limit)) * up.clamp(-limit, limit))[0]
