"""The window form of the short convolution, in numpy."""

from __future__ import annotations

import numpy as np

from streamglm.kernels import host
from streamglm.kernels.arguments import Array
from streamglm.kernels.short_conv.reference import ConvWeights


def window(x: Array, carried: Array, weight: ConvWeights) -> Array:
    """x [N, C] after carried [N, K - 1, C], which moves on by one row."""
    taps = weight.host
    last = taps.shape[0] - 1
    products = np.multiply(carried, taps[:last])
    y = products[:, 0]
    for tap in range(1, last):
        np.add(y, products[:, tap], y)
    np.add(y, x * taps[last], y)
    carried[:, :-1] = carried[:, 1:]
    carried[:, -1] = x
    return host.silu(y)
