"""Routed experts with a shared one beside them."""

from __future__ import annotations

import numpy as np

from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.experts import host, reference
from streamglm.kernels.experts.reference import ExpertWeights
from streamglm.kernels.experts.routes import Choice, Routes, group, route
from streamglm.kernels.tiling import Tiling

__all__ = ["Choice", "ExpertWeights", "Routes", "group", "mix", "route"]


def mix(x: Rows, rows: int, weights: ExpertWeights, tiling: Tiling) -> Rows:
    """x [R, D] -> [R, D']: the shared expert of every row and, for the first `rows` rows, plus the
    weighted sum of the row's experts, ascending in the expert.

    Raises `ArgumentError` when the weights do not fit x or one another.
    """
    enter, choice = weights.enter, weights.choice
    if x.shape[1] != enter.depth or not 0 < rows <= x.shape[0]:
        raise ArgumentError(f"mix: x {x.shape}, {rows} rows, weights of depth {enter.depth}")
    if enter.width < choice.bias.shape[0] + 2 * weights.shared_down.depth:
        raise ArgumentError(f"mix: {enter.width} columns for router and shared expert")
    if isinstance(x, np.ndarray):
        return host.mix(x, rows, weights, tiling)
    return reference.mix(x, rows, weights, tiling)
