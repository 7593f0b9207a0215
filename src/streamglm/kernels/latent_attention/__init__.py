"""Attention in latent space over paged rows: dense for short prefixes, over lists beyond."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels.arguments import ArgumentError, Flags, Ids, Rows
from streamglm.kernels.latent_attention import host, reference
from streamglm.kernels.pages import Pages
from streamglm.kernels.tiling import Tiling

__all__ = ["dense", "selected"]


def selected(
    queries: Rows,
    latents: Pages,
    slots: torch.Tensor | Ids,
    seen: torch.Tensor | Flags,
    chunk: int,
    tiling: Tiling,
) -> Rows:
    """Each row over its own list of keys, `chunk` keys at a time, merged in the list's order.

    queries [M, H, D] (absorbed and scaled), latents of D values, slots [M, L] int64, seen [M, L]
    bool, at least one seen a row -> [M, H, D]. What is not seen must still be finite, such
    as a row of the null page. Raises `ArgumentError` when the shapes do not fit.
    """
    if queries.shape[2] != latents.dim or slots.shape != seen.shape:
        raise ArgumentError(f"selected: queries {queries.shape}, latents of {latents.dim}")
    if isinstance(queries, np.ndarray):
        assert isinstance(slots, np.ndarray)
        assert isinstance(seen, np.ndarray)
        if tiling.entries or len(queries) == 1:
            return host.selected(queries, latents, slots, seen, chunk)
        rows = zip(queries[:, None], slots[:, None], seen[:, None], strict=True)
        return np.concatenate([host.selected(q, latents, s, v, chunk) for q, s, v in rows])
    assert isinstance(slots, torch.Tensor)
    assert isinstance(seen, torch.Tensor)
    return reference.selected(queries, latents, slots, seen, chunk, tiling)


def dense(
    queries: torch.Tensor,
    latents: Pages,
    slots: torch.Tensor,
    start: torch.Tensor,
    chunk: int,
    tiling: Tiling,
) -> torch.Tensor:
    """Tiles of rows over all keys up to their own, `chunk` keys at a time, in absolute order.

    queries [T, M, H, D], latents of D values, slots [T, L] int64 of keys 0 to L - 1 (the
    null page where the tile has no such row), start [T] the position of each tile's first row ->
    [T, M, H, D]. Raises `ArgumentError` when the shapes do not fit.
    """
    if queries.shape[3] != latents.dim or slots.shape[0] != queries.shape[0]:
        raise ArgumentError(f"dense: queries {queries.shape}, latents of {latents.dim}")
    return reference.dense(queries, latents, slots, start, chunk, tiling)
