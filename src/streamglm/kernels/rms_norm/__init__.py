"""RMS norm, plain and gated."""

from __future__ import annotations

import numpy as np

from streamglm.kernels import launch
from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.rms_norm import host, reference
from streamglm.kernels.rms_norm.reference import NormWeights, prepare

__all__ = ["NormWeights", "gated", "prepare", "rms_norm"]


def rms_norm(x: Rows, norm: NormWeights) -> Rows:
    """x [..., D] / sqrt(mean(x^2) + eps), times weight [D]; the mean over `norm.count` values.

    Raises `ArgumentError` when D does not fit the weight.
    """
    if x.shape[-1] != norm.host.shape[0]:
        raise ArgumentError(f"rms_norm: x {x.shape}, weight {norm.host.shape}")
    if isinstance(x, np.ndarray):
        return host.rms_norm(x, norm)
    if launch.by_kernel(x):
        from streamglm.kernels.rms_norm import kernel

        return kernel.rms_norm(x, norm)
    return reference.rms_norm(x, norm)


def gated(x: Rows, gate: Rows, norm: NormWeights) -> Rows:
    """`rms_norm` of x [R, H, D], times gate [R, H, D], which is in (0, 1) already.

    Raises `ArgumentError` when the shapes do not fit.
    """
    if x.shape != gate.shape or x.shape[-1] != norm.host.shape[0]:
        raise ArgumentError(f"gated: x {x.shape}, gate {gate.shape}, weight {norm.host.shape}")
    if isinstance(x, np.ndarray):
        return host.gated(x, gate, norm)
    if launch.by_kernel(x):
        from streamglm.kernels.rms_norm import kernel

        return kernel.rms_norm(x, norm, gate)
    return reference.gated(x, gate, norm)
