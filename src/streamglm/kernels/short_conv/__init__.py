"""Short causal convolution of a KDA layer, over prompts and over windows."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.short_conv import host, reference
from streamglm.kernels.short_conv.reference import ConvWeights, prepare

__all__ = ["ConvWeights", "prepare", "prompt", "window"]


def prompt(x: torch.Tensor, carried: torch.Tensor, weight: ConvWeights, rows: int) -> torch.Tensor:
    """silu(sum_t weight_t x_(i - K + 1 + t)) of x [n, C] after carried [K - 1, C] -> [n, C].

    `carried` then holds the last K - 1 inputs of the first `rows` rows; what follows is padding.
    Raises `ArgumentError` when the shapes do not fit.
    """
    taps, channels = weight.host.shape
    if x.shape[1] != channels or carried.shape != (taps - 1, channels) or rows > x.shape[0]:
        raise ArgumentError(f"prompt: x {x.shape}, carried {carried.shape}, {rows} rows")
    return reference.prompt(x, carried, weight, rows)


def window(x: Rows, carried: Rows, weight: ConvWeights) -> Rows:
    """The same for one row of N lanes: x [N, C] after carried [N, K - 1, C], which moves on.

    Raises `ArgumentError` when the shapes do not fit.
    """
    taps, channels = weight.host.shape
    if x.shape[1] != channels or tuple(carried.shape[1:]) != (taps - 1, channels):
        raise ArgumentError(f"window: x {x.shape}, carried {carried.shape}")
    if isinstance(x, np.ndarray):
        return host.window(x, carried, weight)
    return reference.window(x, carried, weight)
