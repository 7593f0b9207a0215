"""Hyper-connections: how four residual streams become a layer's input and take its output."""

from __future__ import annotations

import numpy as np

from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.hyper import host, reference
from streamglm.kernels.hyper.reference import HyperWeights, prepare
from streamglm.kernels.tiling import Tiling

__all__ = ["HyperWeights", "coefficients", "collapse", "expand", "mean", "prepare"]


def coefficients(streams: Rows, weights: HyperWeights, tiling: Tiling) -> tuple[Rows, Rows, Rows]:
    """streams [R, S, D] -> pre [R, 1, S], post [R, S, 1], comb [R, S out, S in] (transposed).

    Raises `ArgumentError` when S or D does not fit the weights.
    """
    if streams.shape[1] != weights.streams:
        raise ArgumentError(f"coefficients: streams {streams.shape}, not {weights.streams}")
    if isinstance(streams, np.ndarray):
        return host.coefficients(streams, weights, tiling)
    return reference.coefficients(streams, weights, tiling)


def collapse(streams: Rows, pre: Rows, tiling: Tiling) -> Rows:
    """sum_j pre_j h_j: streams [R, S, D], pre [R, 1, S] -> [R, D].

    Raises `ArgumentError` when the shapes do not fit.
    """
    if pre.shape[2] != streams.shape[1]:
        raise ArgumentError(f"collapse: streams {streams.shape}, pre {pre.shape}")
    if isinstance(streams, np.ndarray):
        return host.collapse(streams, pre)
    return reference.collapse(streams, pre, tiling)


def expand(streams: Rows, y: Rows, post: Rows, comb: Rows, tiling: Tiling) -> Rows:
    """post_k y + sum_j comb_kj h_j: streams [R, S, D], y [R, D], post [R, S, 1], comb [R, S out,
    S in] -> [R, S, D].

    Raises `ArgumentError` when the shapes do not fit.
    """
    if y.shape[1] != streams.shape[2] or comb.shape[1:] != (streams.shape[1], streams.shape[1]):
        raise ArgumentError(f"expand: streams {streams.shape}, y {y.shape}, comb {comb.shape}")
    if isinstance(streams, np.ndarray):
        return host.expand(streams, y, post, comb)
    return reference.expand(streams, y, post, comb, tiling)


def mean(streams: Rows) -> Rows:
    """The streams' mean, added up in their order: [R, S, D] -> [R, D]."""
    if isinstance(streams, np.ndarray):
        return host.mean(streams)
    return reference.mean(streams)
