"""Attention over latent rows in torch: chunks of keys merged in order, softmax in float32.

A key that a row does not see must have a finite latent (the null page's zeros, or a row of the
same tile): its share is an exact 0 by selection, and 0 times a finite number adds nothing.
"""

from __future__ import annotations

import torch

from streamglm.kernels.pages import Pages, read
from streamglm.kernels.tiling import Tiling, bmm, exp_


def selected(
    queries: torch.Tensor,
    latents: Pages,
    slots: torch.Tensor,
    seen: torch.Tensor,
    chunk: int,
    tiling: Tiling,
) -> torch.Tensor:
    """Each row over its own list of keys.

    queries [M, H, D] (absorbed and scaled), slots [M, L] ascending in the
    token's position, seen [M, L] -> [M, H, D].
    """
    m, d = queries.shape[0], queries.shape[2]
    keys = read(latents, slots.view(-1)).view(m, -1, d)
    return _merge(queries, keys, ~seen[:, None], chunk, tiling)


def dense(
    queries: torch.Tensor,
    latents: Pages,
    slots: torch.Tensor,
    start: torch.Tensor,
    chunk: int,
    tiling: Tiling,
) -> torch.Tensor:
    """Tiles of rows over all keys up to their own.

    queries [T, M, H, D], slots [T, L] of keys 0 to L - 1 (the null page behind the tile's last
    row), start [T] the position of a tile's first row -> [T, M, H, D].
    """
    t, m, h, d = queries.shape
    length = slots.shape[1]
    keys = read(latents, slots.view(-1)).view(t, length, d)
    position = start[:, None] + torch.arange(m)
    hidden = torch.arange(length) > position[:, :, None]
    hidden = hidden[:, :, None].expand(t, m, h, length).reshape(t, m * h, length)
    return _merge(queries.reshape(t, m * h, d), keys, hidden, chunk, tiling).view(t, m, h, d)


def _merge(
    queries: torch.Tensor, keys: torch.Tensor, hidden: torch.Tensor, chunk: int, tiling: Tiling
) -> torch.Tensor:
    """queries [E, R, D], keys [E, L, D], hidden [E, 1 or R, L] -> [E, R, D]; `chunk` keys at a
    time, in order."""
    length = keys.shape[1]
    scores = bmm(queries, keys[:, :chunk].transpose(1, 2), tiling)
    scores.masked_fill_(hidden[:, :, :chunk], float("-inf"))
    if length <= chunk:
        return bmm(torch.softmax(scores, -1), keys, tiling)
    best = scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(scores.dtype).min)
    shares = exp_(scores.sub_(best))
    total = shares.sum(-1, keepdim=True)
    out = bmm(shares, keys[:, :chunk], tiling)
    for start in range(chunk, length, chunk):
        part = keys[:, start : start + chunk]
        scores = bmm(queries, part.transpose(1, 2), tiling)
        scores.masked_fill_(hidden[:, :, start : start + chunk], float("-inf"))
        higher = torch.maximum(best, scores.amax(-1, keepdim=True))
        shrink = _factor(best - higher)
        shares = exp_(scores.sub_(higher))
        total = total * shrink + shares.sum(-1, keepdim=True)
        out = out.mul_(shrink) + bmm(shares, part, tiling)
        best = higher
    return out.div_(total)


def _factor(x: torch.Tensor) -> torch.Tensor:
    """exp of one value a row [..., 1], each computed in a whole vector."""
    return exp_(x.expand(*x.shape[:-1], 32).contiguous())[..., :1]
