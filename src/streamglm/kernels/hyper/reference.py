"""Hyper-connections in torch. README.md has the formulas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from streamglm.kernels.arguments import Array
from streamglm.kernels.linear import reference as linear
from streamglm.kernels.rms_norm.reference import rms_factor
from streamglm.kernels.tiling import Tiling, bmm, sigmoid_


@dataclass(frozen=True, slots=True)
class HostColumns:
    """The columns of `HyperWeights` in the same memory, and its numbers, for numpy."""

    base: Array
    scale: Array
    gain: Array
    shift: Array
    norm_eps: np.float32
    share: np.float32
    """1 / count"""
    eps: np.float32


@dataclass(frozen=True, slots=True)
class HyperWeights:
    """One hyper-connection as it is computed with; `prepare` builds it from a checkpoint's.

    Columns: S of pre, S of post, S^2 of comb with the stream out before the stream in (transposed,
    as it is used), then padding up to C.
    """

    fn: linear.Weight
    """[S * D, C]"""
    base: torch.Tensor
    scale: torch.Tensor
    """[C]; each column its own factor."""
    gain: torch.Tensor
    shift: torch.Tensor
    """[2 S]; pre = 1 sigmoid + eps, post = 2 sigmoid + 0."""
    norm_eps: torch.Tensor
    """[]"""
    sums_out: Array
    sums_in: Array
    """[W, W]; x @ sums_out adds up the entries of one stream in, over the streams out."""
    streams: int
    count: int
    """Values of a row that are not padding."""
    eps: float
    iterations: int
    host: HostColumns


def coefficients(
    streams: torch.Tensor, weights: HyperWeights, tiling: Tiling
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """streams [R, S, D] -> pre [R, 1, S], post [R, S, 1], comb [R, S out, S in]."""
    rows, s = streams.shape[0], weights.streams
    z = streams.reshape(rows, -1)
    raw = linear.linear(z, weights.fn, tiling)
    raw.mul_(rms_factor(z, weights.norm_eps, weights.count))
    raw = torch.addcmul(weights.base, raw, weights.scale)
    comb = raw[:, 2 * s : 2 * s + s * s].reshape(rows, s, s)
    shares = torch.softmax(comb.transpose(1, 2).contiguous(), -1).transpose(1, 2)
    gates = torch.addcmul(weights.shift, sigmoid_(raw)[:, : 2 * s], weights.gain)
    return gates[:, None, :s], gates[:, s:, None], _sinkhorn(shares, weights, tiling)


def _sinkhorn(shares: torch.Tensor, weights: HyperWeights, tiling: Tiling) -> torch.Tensor:
    """shares [R, S out, S in] -> doubly stochastic."""
    rows, s = shares.shape[0], weights.streams
    mixed = torch.zeros(rows, weights.sums_in.shape[0])
    torch.add(shares, weights.eps, out=mixed[:, : s * s].view(rows, s, s))
    mixed[:, s * s] = 1.0  # times the eps that the sums end with
    for start, size in tiling.split(rows):
        half_steps(mixed[start : start + size].numpy(), weights)
    return mixed[:, : s * s].view(rows, s, s)


def half_steps(mixed: Array, weights: HyperWeights) -> None:
    """mixed [R, W] over its sums over the streams in, then T - 1 times over those over the streams
    out and in; in place.

    In numpy, for on matrices of 4 x 4 a half-step is all overhead: a product with blocks of ones
    and a division, 0.3 us each, a third of torch's.
    """
    sums, divide, dot = np.empty_like(mixed), np.divide, mixed.dot
    sums_in, sums_out = weights.sums_in, weights.sums_out
    dot(sums_in, sums)
    divide(mixed, sums, mixed)
    for _ in range(weights.iterations - 1):
        dot(sums_out, sums)
        divide(mixed, sums, mixed)
        dot(sums_in, sums)
        divide(mixed, sums, mixed)


def collapse(streams: torch.Tensor, pre: torch.Tensor, tiling: Tiling) -> torch.Tensor:
    """sum_j pre_j h_j: [R, S, D] and [R, 1, S] -> [R, D]."""
    return bmm(pre, streams, tiling).view(streams.shape[0], -1)


def expand(
    streams: torch.Tensor, y: torch.Tensor, post: torch.Tensor, comb: torch.Tensor, tiling: Tiling
) -> torch.Tensor:
    """post_k y + sum_j C_jk h_j with comb [R, k, j], y [R, D] -> [R, S, D]."""
    return bmm(comb, streams, tiling).addcmul_(post, y.unsqueeze(1))


def mean(streams: torch.Tensor) -> torch.Tensor:
    """Mean over the streams of [R, S, D] -> [R, D], added up in their order."""
    total = streams[:, 0].clone()
    for stream in range(1, streams.shape[1]):
        total += streams[:, stream]
    return total.mul_(1.0 / streams.shape[1])


def prepare(
    fn: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    *,
    streams: int,
    count: int,
    norm_eps: float,
    eps: float,
    iterations: int,
) -> HyperWeights:
    """A checkpoint's fn [2 S + S^2, S * D], base [2 S + S^2], scale [3] as they are computed with;
    `count` of the S * D columns are not padding."""
    s = streams
    order = torch.arange(fn.shape[0])
    order[2 * s :] = order[2 * s :].view(s, s).t().flatten()
    weight = linear.prepare(fn[order].t())
    columns = torch.zeros(2, weight.width)
    columns[0, : fn.shape[0]] = base[order]
    columns[1, : fn.shape[0]] = scale.repeat_interleave(torch.tensor([s, s, s * s]))
    gain = torch.tensor([1.0, 2.0]).repeat_interleave(s)
    shift = torch.tensor([eps, 0.0]).repeat_interleave(s)
    sums_out, sums_in = _sums(s, eps)
    return HyperWeights(
        fn=weight,
        base=columns[0],
        scale=columns[1],
        gain=gain,
        shift=shift,
        norm_eps=torch.tensor(norm_eps),
        sums_out=sums_out,
        sums_in=sums_in,
        streams=s,
        count=count,
        eps=eps,
        iterations=iterations,
        host=HostColumns(
            base=columns[0].numpy(),
            scale=columns[1].numpy(),
            gain=gain.numpy(),
            shift=shift.numpy(),
            norm_eps=np.float32(norm_eps),
            share=np.float32(1.0 / count),
            eps=np.float32(eps),
        ),
    )


def _sums(s: int, eps: float) -> tuple[Array, Array]:
    """Blocks of ones on matrices [out, in] laid out in a row; the row behind them adds eps to every
    sum, and leaves the padding what it is."""
    width = -(-(s * s + 1) // 16) * 16
    sums_out, sums_in = np.zeros((2, width, width), np.float32)
    for out in range(s):
        for into in range(s):
            sums_out[into : s * s : s, out * s + into] = 1.0
            sums_in[out * s : out * s + s, out * s + into] = 1.0
    for sums in (sums_out, sums_in):
        sums[s * s, : s * s] = eps
        sums[s * s, s * s :] = 1.0
    return sums_out, sums_in
