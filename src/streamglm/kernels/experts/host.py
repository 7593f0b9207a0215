"""Routed experts and the shared one for the few rows of a window, in numpy."""

from __future__ import annotations

import numpy as np

from streamglm.kernels import host
from streamglm.kernels.arguments import Array
from streamglm.kernels.experts.reference import ExpertWeights
from streamglm.kernels.experts.routes import Routes, route
from streamglm.kernels.linear import host as linear
from streamglm.kernels.mlp.host import swiglu
from streamglm.kernels.tiling import Tiling


def mix(x: Array, rows: int, weights: ExpertWeights, tiling: Tiling) -> Array:
    """x [R, D] -> [R, D']."""
    fused = linear.linear(x, weights.enter, tiling)
    width = weights.choice.bias.shape[0]
    routes, shares = route(host.sigmoid(fused[:rows, :width]), weights.choice, tiling)
    inner = 2 * weights.shared_down.depth
    shared = swiglu(fused[:, width : width + inner], weights.limit)
    y = linear.linear(shared, weights.shared_down, tiling)
    found = _apply(x, routes, weights, tiling).reshape(rows, shares.shape[1], -1)
    np.add(y[:rows], np.matmul(shares[:, None], found)[:, 0], y[:rows])
    return y


def _apply(x: Array, routes: Routes, weights: ExpertWeights, tiling: Tiling) -> Array:
    """Each row through its experts -> [M * count, D']."""
    grouped = x[routes.rows]
    hidden = np.empty((len(routes.rows), weights.gate_up[0].width), np.float32)
    for expert, at, n in routes.groups:
        linear.multiply(grouped[at : at + n], weights.gate_up[expert], hidden[at : at + n], tiling)
    hidden = swiglu(hidden, weights.limit)
    results = np.empty((len(routes.rows), weights.down[0].width), np.float32)
    for expert, at, n in routes.groups:
        linear.multiply(hidden[at : at + n], weights.down[expert], results[at : at + n], tiling)
    return results[routes.places]
