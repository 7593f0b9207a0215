"""SwiGLU for the few rows of a window, in numpy."""

from __future__ import annotations

import numpy as np

from streamglm.kernels import host
from streamglm.kernels.arguments import Array
from streamglm.kernels.linear import host as linear
from streamglm.kernels.linear.reference import Weight
from streamglm.kernels.tiling import Tiling


def swiglu(x: Array, limit: float) -> Array:
    """x [M, 2 I] (gate, then up) -> silu(min(gate, limit)) * clamp(up, -limit, limit)."""
    width, bound = x.shape[1] // 2, np.float32(limit)
    gate = host.silu(np.minimum(x[:, :width], bound))
    up = np.minimum(x[:, width:], bound)
    np.maximum(up, -bound, out=up)
    return np.multiply(gate, up, gate)


def mlp(x: Array, gate_up: Weight, down: Weight, limit: float, tiling: Tiling) -> Array:
    """x [M, D] -> [M, D']."""
    return linear.linear(swiglu(linear.linear(x, gate_up, tiling), limit), down, tiling)
