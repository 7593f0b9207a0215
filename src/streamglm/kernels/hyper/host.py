"""Hyper-connections for the few rows of a window, in numpy."""

from __future__ import annotations

import numpy as np

from streamglm.kernels import host
from streamglm.kernels.arguments import Array
from streamglm.kernels.hyper.reference import HyperWeights, half_steps
from streamglm.kernels.linear import host as linear
from streamglm.kernels.tiling import Tiling


def coefficients(
    streams: Array, weights: HyperWeights, tiling: Tiling
) -> tuple[Array, Array, Array]:
    """streams [R, S, D] -> pre [R, 1, S], post [R, S, 1], comb [R, S out, S in]."""
    rows, s, columns = streams.shape[0], weights.streams, weights.host
    z = streams.reshape(rows, -1)
    raw = linear.linear(z, weights.fn, tiling)
    np.divide(raw, host.rms(z, columns.norm_eps, columns.share), raw)
    np.multiply(raw, columns.scale, raw)
    np.add(raw, columns.base, raw)
    gates = host.sigmoid(raw[:, : 2 * s])
    np.multiply(gates, columns.gain, gates)
    np.add(gates, columns.shift, gates)
    mixed = np.zeros((rows, weights.sums_in.shape[0]), np.float32)
    comb = mixed[:, : s * s].reshape(rows, s, s)
    _softmax(raw[:, 2 * s : 2 * s + s * s].reshape(rows, s, s), comb)
    np.add(comb, columns.eps, comb)
    mixed[:, s * s] = 1.0
    step = rows if tiling.entries else 1
    for start in range(0, rows, step):
        half_steps(mixed[start : start + step], weights)
    return gates[:, None, :s], gates[:, s:, None], comb


def _softmax(x: Array, out: Array) -> None:
    """Over the streams out, the middle of three dimensions."""
    np.subtract(x, np.maximum.reduce(x, 1, keepdims=True), out)
    np.exp(out, out)
    np.divide(out, np.add.reduce(out, 1, keepdims=True), out)


def collapse(streams: Array, pre: Array) -> Array:
    """sum_j pre_j h_j: [R, S, D] and [R, 1, S] -> [R, D]."""
    return host.matmul(pre, streams)[:, 0]


def expand(streams: Array, y: Array, post: Array, comb: Array) -> Array:
    """post_k y + sum_j C_jk h_j with comb [R, k, j], y [R, D] -> [R, S, D]."""
    out = host.matmul(comb, streams)
    np.add(out, post * y[:, None], out)
    return out


def mean(streams: Array) -> Array:
    """Mean over the streams of [R, S, D] -> [R, D], added up in their order."""
    total = streams[:, 0] + streams[:, 1] if streams.shape[1] > 1 else streams[:, 0].copy()
    for stream in range(2, streams.shape[1]):
        np.add(total, streams[:, stream], total)
    return np.multiply(total, np.float32(1.0 / streams.shape[1]), total)
