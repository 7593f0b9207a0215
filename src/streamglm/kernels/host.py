"""Elementwise functions in numpy for the few rows of a window.

Owns the functions that torch would have in one call. Invariant: numpy computes every element with
the same vector routine wherever it stands, so no width needs padding.
"""

from __future__ import annotations

import numpy as np

from streamglm.kernels.arguments import Array

_FAR = np.float32(80.0)
"""Beyond it a sigmoid is 0 or 1 to its last bit, and further on exp would overflow."""
_ONE = np.float32(1.0)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) as a new array."""
    out = _one_and_exp(x)
    return np.divide(_ONE, out, out)


def silu(x: Array) -> Array:
    """x * sigmoid(x) as a new array."""
    out = _one_and_exp(x)
    return np.divide(x, out, out)


def _one_and_exp(x: Array) -> Array:
    out = np.negative(x)
    np.minimum(out, _FAR, out=out)
    np.exp(out, out)
    return np.add(out, _ONE, out)


def rms(x: Array, eps: np.float32, share: np.float32) -> Array:
    """sqrt(share * sum(x^2) + eps) of [..., D] -> [..., 1]; `share` is 1 / D for a mean."""
    out = np.vecdot(x, x)
    np.multiply(out, share, out)
    np.add(out, eps, out)
    np.sqrt(out, out)
    roots: Array = out[..., None]
    return roots


def softmax(x: Array) -> Array:
    """Over the last dimension, in place."""
    np.subtract(x, np.maximum.reduce(x, -1, keepdims=True), x)
    np.exp(x, x)
    np.divide(x, np.add.reduce(x, -1, keepdims=True), x)
    return x


def matmul(a: Array, b: Array) -> Array:
    """a @ b entry by entry."""
    product: Array = np.matmul(a, b)
    return product
