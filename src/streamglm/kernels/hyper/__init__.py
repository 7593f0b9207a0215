"""Hyper-connections: how four residual streams become a layer's input and take its output."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels import launch
from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.hyper import host, reference
from streamglm.kernels.hyper import site as rows_of
from streamglm.kernels.hyper.reference import HyperWeights, prepare
from streamglm.kernels.hyper.site import Mix, Site
from streamglm.kernels.tiling import Tiling

__all__ = [
    "HyperWeights",
    "Mix",
    "Site",
    "begin",
    "coefficients",
    "collapse",
    "expand",
    "last",
    "mean",
    "prepare",
    "proceed",
]


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


def begin(streams: torch.Tensor, site: Site) -> tuple[torch.Tensor, Mix]:
    """The first site: streams [R, S, D] -> its layer's input [R, D], normed, and its mix.

    Raises `ArgumentError` when the shapes do not fit.
    """
    _check_site(streams, None, site)
    if launch.by_kernel(streams):
        from streamglm.kernels.hyper import kernel

        return kernel.site(streams, None, None, site)[1:]
    return rows_of.site(streams, None, None, site)[1:]


def proceed(
    streams: torch.Tensor, y: torch.Tensor, mix: Mix, site: Site
) -> tuple[torch.Tensor, torch.Tensor, Mix]:
    """From one site to the next: the last layer's output y [R, D] joins the streams as its `mix`
    says -> the streams [R, S, D], the next layer's input [R, D], normed, and its mix.

    The streams given are left as they are. Raises `ArgumentError` when the shapes do not fit.
    """
    _check_site(streams, y, site)
    if launch.by_kernel(streams):
        from streamglm.kernels.hyper import kernel

        return kernel.site(streams, y, mix, site)
    return rows_of.site(streams, y, mix, site)


def last(
    streams: torch.Tensor, y: torch.Tensor, mix: Mix, norm: torch.Tensor, eps: float
) -> torch.Tensor:
    """Behind the last layer: its output joins, and the mean of the streams is normed -> [R, D].

    Raises `ArgumentError` when the shapes do not fit.
    """
    _check_streams("last", streams, y, len(norm))
    if launch.by_kernel(streams):
        from streamglm.kernels.hyper import kernel

        return kernel.last(streams, y, mix, norm, eps)
    return rows_of.last(streams, y, mix, norm, eps)


def _check_site(streams: torch.Tensor, y: torch.Tensor | None, site: Site) -> None:
    _check_streams("site", streams, y, len(site.norm))
    s = site.streams
    if streams.shape[1] != s or tuple(site.fn.shape) != (2 * s + s * s, s * len(site.norm)):
        raise ArgumentError(
            f"site: streams {tuple(streams.shape)}, fn {tuple(site.fn.shape)} of {s} streams"
        )


def _check_streams(name: str, streams: torch.Tensor, y: torch.Tensor | None, width: int) -> None:
    fits = streams.ndim == 3 and streams.shape[2] == width and streams.is_contiguous()
    if y is not None:
        fits = fits and y.shape == (streams.shape[0], width) and y.is_contiguous()
    if not fits:
        shape = None if y is None else tuple(y.shape)
        raise ArgumentError(
            f"{name}: streams {tuple(streams.shape)}, y {shape}, a norm of {width} values"
        )
