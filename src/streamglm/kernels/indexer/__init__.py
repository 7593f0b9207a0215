"""The indexer: which pools of tokens a row attends to."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels.arguments import ArgumentError, Array, Flags, Ids, Rows
from streamglm.kernels.indexer import host, reference
from streamglm.kernels.indexer.reference import PoolWeights, prepare
from streamglm.kernels.tiling import Tiling

__all__ = [
    "PoolWeights",
    "pool_keys",
    "prepare",
    "row_scores",
    "row_select",
    "row_token_lists",
    "scores",
    "select",
    "token_lists",
]


def pool_keys(keys: Rows, gates: Rows, weights: PoolWeights) -> Rows:
    """The keys of P whole pools of S tokens: keys, gates [P, S, D] -> [P, D].

    Channel by channel the softmax, over a pool's tokens, of gate + ape weighs their keys. Raises
    `ArgumentError` when S or D do not fit the weights.
    """
    if keys.shape != gates.shape or tuple(keys.shape[1:]) != weights.host.shape:
        raise ArgumentError(f"pool_keys: keys {keys.shape}, gates {gates.shape}")
    if isinstance(keys, np.ndarray):
        return host.pool_keys(keys, gates, weights)
    return reference.pool_keys(keys, gates, weights)


def scores(
    queries: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor, tiling: Tiling
) -> torch.Tensor:
    """sum_h w_h relu(q_h . k): queries [M, H, D], weights [M, H], keys [C, P, D] in C groups of P
    pools -> [M, C * P].

    The scales of the products and of the heads are in `weights` already, for both are above 0.
    Raises `ArgumentError` when H or D do not fit.
    """
    if weights.shape != queries.shape[:2] or keys.shape[2] != queries.shape[2]:
        raise ArgumentError(f"scores: queries {queries.shape}, weights {weights.shape}")
    return reference.scores(queries, weights, keys, tiling)


def row_scores(queries: Array, weights: Array, keys: Array) -> Array:
    """`scores` of one row of a window: queries [H, D], weights [H], keys [C, P, D] -> [C * P].

    Raises `ArgumentError` when H or D do not fit.
    """
    if weights.shape != queries.shape[:1] or keys.shape[2] != queries.shape[1]:
        raise ArgumentError(f"row_scores: queries {queries.shape}, weights {weights.shape}")
    return host.scores(queries, weights, keys)


def select(scores: torch.Tensor, visible: torch.Tensor, count: int) -> torch.Tensor:
    """The `count` best of the first visible [M] pools of scores [M, P] -> [M, count] int64.

    Ascending; equal scores go to the lower pool; P stands where fewer are visible. A score that is
    NaN takes the place of a best one, and P stands there too. What lies behind the visible pools
    may be anything. Raises `ArgumentError` when M does not fit.
    """
    if visible.shape != scores.shape[:1]:
        raise ArgumentError(f"select: scores {scores.shape}, visible {visible.shape}")
    return reference.select(scores, visible, count)


def row_select(scores: Array, visible: int, count: int) -> Ids:
    """`select` of one row of a window: scores [P] -> [count].

    Raises `ArgumentError` when more pools are visible than there are scores.
    """
    if visible > scores.shape[0]:
        raise ArgumentError(f"row_select: {visible} pools visible of {scores.shape[0]}")
    return host.select(scores, visible, count)


def token_lists(
    pools: torch.Tensor,
    length: torch.Tensor,
    tables: torch.Tensor,
    *,
    null: int,
    page: int,
    pool: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Slots of the tokens of pools [M, K], and of the incomplete pool at the end.

    pools ascend, and one that is not whole below length [M] is none; tables [M, T] holds each row's
    pages of `page` rows. Returns slots [M, L] int64 and seen [M, L] bool, ascending in the token's
    position, with L = K * pool + pool - 1 padded to 16; a slot that is not seen is the first of
    page `null`. Raises `ArgumentError` when M does not fit.
    """
    if not pools.shape[0] == length.shape[0] == tables.shape[0]:
        raise ArgumentError(f"token_lists: pools {pools.shape}, tables {tables.shape}")
    return reference.token_list(pools, length, tables, null, page, pool)


def row_token_lists(
    pools: Ids, length: Ids, tables: Ids, *, null: int, page: int, pool: int
) -> tuple[Ids, Flags]:
    """`token_lists` of a window's rows."""
    if not pools.shape[0] == length.shape[0] == tables.shape[0]:
        raise ArgumentError(f"row_token_lists: pools {pools.shape}, tables {tables.shape}")
    return host.token_list(pools, length, tables, null, page, pool)
