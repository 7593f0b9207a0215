"""The dense MLP: SwiGLU with the gate bounded above and the other half on both sides."""

from __future__ import annotations

import numpy as np

from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.linear.reference import Weight
from streamglm.kernels.mlp import host, reference
from streamglm.kernels.tiling import Tiling

__all__ = ["mlp"]


def mlp(x: Rows, gate_up: Weight, down: Weight, limit: float, tiling: Tiling) -> Rows:
    """x [M, D], gate_up [D, 2 I] (gate, then up; I a multiple of 32), down [I, D'] -> [M, D'].

    Raises `ArgumentError` when the weights do not fit each other or x.
    """
    if x.shape[1] != gate_up.depth or gate_up.width != 2 * down.depth:
        raise ArgumentError(f"mlp: x {x.shape}, gate_up {gate_up.width}, down {down.depth}")
    if isinstance(x, np.ndarray):
        return host.mlp(x, gate_up, down, limit, tiling)
    return reference.mlp(x, gate_up, down, limit, tiling)
