"""Linear layers whose rows do not depend on the rows beside them."""

from __future__ import annotations

import numpy as np

from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.linear import host, reference
from streamglm.kernels.linear.reference import (
    HeadWeight,
    Weight,
    padded_width,
    prepare,
    prepare_heads,
)
from streamglm.kernels.tiling import Tiling

__all__ = [
    "HeadWeight",
    "Weight",
    "heads",
    "linear",
    "padded_width",
    "prepare",
    "prepare_heads",
]


def linear(x: Rows, weight: Weight, tiling: Tiling) -> Rows:
    """x [M, K] @ weight [K, N] -> [M, N padded]; M is whole tiles of `tiling`.

    Raises `ArgumentError` when K or M do not fit.
    """
    if x.shape[1] != weight.depth or x.shape[0] % tiling.sizes[0]:
        raise ArgumentError(
            f"linear: x {x.shape}, weight of depth {weight.depth}, tiles of {tiling.sizes}"
        )
    if isinstance(x, np.ndarray):
        return host.linear(x, weight, tiling)
    return reference.linear(x, weight, tiling)


def heads(x: Rows, weight: HeadWeight, tiling: Tiling) -> Rows:
    """x [M, H, A] @ weight [H, A, B], head by head -> [M, H, B]; M is whole tiles of `tiling`.

    Raises `ArgumentError` when H, A or M do not fit.
    """
    if tuple(x.shape[1:]) != weight.host.shape[:2] or x.shape[0] % tiling.sizes[0]:
        raise ArgumentError(
            f"heads: x {x.shape}, weight {weight.host.shape}, tiles of {tiling.sizes}"
        )
    if isinstance(x, np.ndarray):
        return host.heads(x, weight, tiling)
    return reference.heads(x, weight, tiling)
