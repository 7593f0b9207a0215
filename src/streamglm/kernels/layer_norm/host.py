"""Layer norm for the few rows of a window, in numpy."""

from __future__ import annotations

import numpy as np

from streamglm.kernels import host
from streamglm.kernels.arguments import Array
from streamglm.kernels.layer_norm.reference import LayerNormWeights


def layer_norm(x: Array, norm: LayerNormWeights) -> Array:
    """x [..., D] with mean 0 and variance 1, times the weight, plus the bias."""
    share = np.float32(1.0 / x.shape[-1])
    out = np.subtract(x, np.add.reduce(x, -1, keepdims=True) * share)
    np.divide(out, host.rms(out, norm.host_eps, share), out)
    np.multiply(out, norm.host_weight, out)
    return np.add(out, norm.host_bias, out)
