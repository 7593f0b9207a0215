"""A hyper-connection on a GPU: what two launches a site need, and the same in torch, row by row.

Owns the weights of a site as a checkpoint has them and the reference. README.md has the formulas.
Knows no layer. A site takes in the last one's output, computes its coefficients from the streams
that result, and gives its layer the collapsed and normalised row; so between two layers there are
two launches, and no collapsed row is written that only a norm reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Site:
    """S streams of D values."""

    fn: torch.Tensor
    """[2 S + S^2, S * D]; rows of pre, post, comb (stream in before stream out)"""
    base: torch.Tensor
    """[2 S + S^2] float32"""
    scale: torch.Tensor
    """[3] float32"""
    norm: torch.Tensor
    """[D]; of the norm between the collapse and the layer"""
    streams: int
    fn_eps: float
    norm_eps: float
    eps: float
    iterations: int


@dataclass(frozen=True, slots=True)
class Mix:
    """How a layer's output joins the streams."""

    post: torch.Tensor
    """[R, S] float32"""
    comb: torch.Tensor
    """[R, S out, S in] float32"""


def site(
    streams: torch.Tensor, y: torch.Tensor | None, mix: Mix | None, weights: Site
) -> tuple[torch.Tensor, torch.Tensor, Mix]:
    """As `hyper.site` has it."""
    new = streams if y is None or mix is None else expand(streams, y, mix)
    rows = [_row(row, weights) for row in new.float()]
    x, post, comb = (torch.stack(part) for part in zip(*rows, strict=True))
    return new, normed(x.to(streams.dtype), weights.norm, weights.norm_eps), Mix(post, comb)


def expand(streams: torch.Tensor, y: torch.Tensor, mix: Mix) -> torch.Tensor:
    """post_k y + sum_j comb_kj h_j, added up in the order of the streams."""
    out = mix.post.unsqueeze(2) * y.float().unsqueeze(1)
    for stream in range(streams.shape[1]):
        out = out + mix.comb[:, :, stream, None] * streams[:, None, stream].float()
    return out.to(streams.dtype)


def _row(z: torch.Tensor, weights: Site) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """z [S, D] -> the collapsed row [D], post [S], comb [S out, S in]."""
    s, flat = weights.streams, z.flatten()
    m = torch.mv(weights.fn.float(), flat) * (flat.square().mean() + weights.fn_eps).rsqrt()
    factors = weights.scale.repeat_interleave(torch.tensor([s, s, s * s]))
    raw = m * factors + weights.base
    pre = torch.sigmoid(raw[:s]) + weights.eps
    post = 2.0 * torch.sigmoid(raw[s : 2 * s])
    comb = torch.softmax(raw[2 * s :].view(s, s), 1) + weights.eps
    comb = comb / (comb.sum(0, keepdim=True) + weights.eps)
    for _ in range(weights.iterations - 1):
        comb = comb / (comb.sum(1, keepdim=True) + weights.eps)
        comb = comb / (comb.sum(0, keepdim=True) + weights.eps)
    return (pre.unsqueeze(1) * z).sum(0), post, comb.t()


def last(
    streams: torch.Tensor, y: torch.Tensor, mix: Mix, norm: torch.Tensor, eps: float
) -> torch.Tensor:
    """As `hyper.last` has it."""
    mean = expand(streams, y, mix).float().mean(1)
    return normed(mean.to(streams.dtype), norm, eps)


def normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm of [R, D] in x's dtype."""
    wide = x.float()
    factor = (wide.square().mean(1, keepdim=True) + eps).rsqrt()
    return (wide * factor * weight.float()).to(x.dtype)
