"""The indexer for the few rows of a window, in numpy."""

from __future__ import annotations

import numpy as np

from streamglm.kernels import host
from streamglm.kernels.arguments import Array, Flags, Ids
from streamglm.kernels.indexer.reference import PoolWeights

_ZERO = np.float32(0.0)


def pool_keys(keys: Array, gates: Array, weights: PoolWeights) -> Array:
    """keys, gates [P, S, D] of P whole pools -> [P, D]."""
    shares = (gates + weights.host).transpose(0, 2, 1).copy()
    host.softmax(shares)
    pooled = shares[..., 0] * keys[:, 0]
    for token in range(1, keys.shape[1]):
        np.add(pooled, shares[..., token] * keys[:, token], pooled)
    return pooled


def scores(queries: Array, weights: Array, keys: Array) -> Array:
    """queries [H, D] of one row, weights [H], keys [C, P, D] -> [C * P]."""
    products = host.matmul(queries, keys.transpose(0, 2, 1))
    np.maximum(products, _ZERO, out=products)
    return host.matmul(weights[None], products).ravel()


def select(scores: Array, visible: int, count: int) -> Ids:
    """scores [P] of one row -> [count] ascending, P where fewer are visible."""
    found = np.full(count, scores.shape[0])
    scores = scores[:visible]
    if visible <= count:
        found[:visible] = np.arange(visible)
        return found
    worst = np.partition(scores, visible - count)[visible - count]
    chosen = scores > worst
    ties = np.flatnonzero(scores == worst)
    chosen[ties[: count - np.count_nonzero(chosen)]] = True
    ids = np.flatnonzero(chosen)
    found[: len(ids)] = ids  # fewer where scores are NaN
    return found


def token_list(
    pools: Ids, length: Ids, tables: Ids, null: int, page: int, pool: int
) -> tuple[Ids, Flags]:
    """pools [M, K], length [M], tables [M, T] -> slots and seen [M, L]."""
    m, k = pools.shape
    whole = length // pool
    within = page // pool
    size = (k + 1) * pool - 1
    slots = np.full((m, -(-size // 16) * 16), null * page)
    seen = np.zeros(slots.shape, bool)
    real = pools < whole[:, None]
    safe = np.where(real, pools, 0)
    row = np.arange(m)[:, None]
    first = tables[row, safe // within] * page + safe % within * pool
    offsets = np.arange(pool)
    seen[:, : k * pool].reshape(m, k, pool)[:] = real[:, :, None]
    body = slots[:, : k * pool].reshape(m, k, pool)
    np.copyto(body, first[:, :, None] + offsets, where=real[:, :, None])
    tail = (whole * pool)[:, None] + offsets[: pool - 1]
    real = tail < length[:, None]
    safe = np.where(real, tail, 0)
    seen[:, k * pool : size] = real
    ends = tables[row, safe // page] * page + safe % page
    np.copyto(slots[:, k * pool : size], ends, where=real)
    return slots, seen
