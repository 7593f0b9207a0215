"""The indexer over pools of tokens, in torch: pool keys, scores, selection, token lists."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from streamglm.kernels.arguments import Array
from streamglm.kernels.tiling import Tiling, bmm


@dataclass(frozen=True, slots=True)
class PoolWeights:
    """ape [S, D]: what is added to the gates of a pool's tokens."""

    ape: torch.Tensor
    host: Array
    """The same memory."""


def prepare(ape: torch.Tensor) -> PoolWeights:
    """ape [S, D]."""
    ape = ape.clone()
    return PoolWeights(ape, ape.numpy())


def pool_keys(keys: torch.Tensor, gates: torch.Tensor, weights: PoolWeights) -> torch.Tensor:
    """keys, gates [P, S, D] of P whole pools -> [P, D]."""
    shares = torch.softmax((gates + weights.ape).transpose(1, 2).contiguous(), -1)
    pooled = shares[..., 0] * keys[:, 0]
    for token in range(1, keys.shape[1]):
        pooled += shares[..., token] * keys[:, token]
    return pooled


def scores(
    queries: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor, tiling: Tiling
) -> torch.Tensor:
    """queries [M, H, D], weights [M, H], keys [C, P, D] -> [M, C * P]."""
    m, h, d = queries.shape
    c, p = keys.shape[:2]
    left = queries.reshape(m * h, d).expand(c, -1, -1)
    products = bmm(left, keys.transpose(1, 2), tiling).relu_()
    shares = weights.reshape(m, 1, h).expand(c, m, 1, h).reshape(c * m, 1, h)
    summed = bmm(shares, products.view(c * m, h, p), tiling)
    return summed.view(c, m, p).transpose(0, 1).reshape(m, c * p)


def select(scores: torch.Tensor, visible: torch.Tensor, count: int) -> torch.Tensor:
    """scores [M, P], visible [M] -> [M, count] ascending, P where fewer are visible."""
    pools = scores.shape[1]
    ids = torch.arange(pools)
    seen = ids < visible[:, None]
    scores = scores.masked_fill(~seen, float("-inf"))
    taken = min(count, pools)
    worst = scores.topk(taken).values[:, -1:]
    above = scores > worst
    ties = scores == worst
    room = taken - above.sum(1, keepdim=True)
    chosen = (above | (ties & (ties.cumsum(1) <= room))) & seen
    found = torch.where(chosen, ids, pools).topk(taken, largest=False).values
    return F.pad(found, (0, count - taken), value=pools)


def token_list(
    pools: torch.Tensor,
    length: torch.Tensor,
    tables: torch.Tensor,
    null: int,
    page: int,
    pool: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """pools [M, K], length [M], tables [M, T] -> slots and seen [M, L]."""
    whole = length // pool
    within = page // pool
    real = pools < whole[:, None]
    safe = torch.where(real, pools, 0)
    first = tables.gather(1, safe // within) * page + safe % within * pool
    offsets = torch.arange(pool)
    slots = (first[:, :, None] + offsets).flatten(1)
    seen = real[:, :, None].expand(-1, -1, pool).flatten(1)
    tail = (whole * pool)[:, None] + offsets[: pool - 1]
    real = tail < length[:, None]
    safe = torch.where(real, tail, 0)
    ends = tables.gather(1, safe // page) * page + safe % page
    spare = slots.new_zeros(slots.shape[0], -(slots.shape[1] + pool - 1) % 16)
    seen = torch.cat([seen, real, spare.bool()], 1)
    return torch.where(seen, torch.cat([slots, ends, spare], 1), null * page), seen
