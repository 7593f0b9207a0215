"""RMS norm for the few rows of a window, in numpy."""

from __future__ import annotations

import numpy as np

from streamglm.kernels import host
from streamglm.kernels.arguments import Array
from streamglm.kernels.rms_norm.reference import NormWeights


def rms_norm(x: Array, norm: NormWeights) -> Array:
    """x [..., D] over its root mean square, times the weight."""
    out = np.divide(x, host.rms(x, norm.host_eps, norm.host_share))
    return np.multiply(out, norm.host, out)


def gated(x: Array, gate: Array, norm: NormWeights) -> Array:
    """`rms_norm`, times gate [..., D] (a sigmoid already)."""
    out = rms_norm(x, norm)
    return np.multiply(out, gate, out)
