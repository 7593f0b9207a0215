"""Layer norm with weight and bias, of the indexer's keys."""

from __future__ import annotations

import numpy as np

from streamglm.kernels import launch
from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.layer_norm import host, reference
from streamglm.kernels.layer_norm.reference import LayerNormWeights, prepare

__all__ = ["LayerNormWeights", "layer_norm", "prepare"]


def layer_norm(x: Rows, norm: LayerNormWeights) -> Rows:
    """(x - mean) / sqrt(variance + eps), times weight, plus bias, of [..., D].

    Raises `ArgumentError` when D does not fit the weight.
    """
    if x.shape[-1] != norm.host_weight.shape[0]:
        raise ArgumentError(f"layer_norm: x {x.shape}, weight {norm.host_weight.shape}")
    if isinstance(x, np.ndarray):
        return host.layer_norm(x, norm)
    if launch.by_kernel(x):
        from streamglm.kernels.layer_norm import kernel

        return kernel.layer_norm(x, norm)
    return reference.layer_norm(x, norm)
