"""Attention over lists of latent rows for the few rows of a window, in numpy."""

from __future__ import annotations

import numpy as np

from streamglm.kernels import host
from streamglm.kernels.arguments import Array, Flags, Ids
from streamglm.kernels.pages import Pages, read_host

_LOWEST = np.finfo(np.float32).min
_HIDDEN = np.float32(-np.inf)


def selected(queries: Array, latents: Pages, slots: Ids, seen: Flags, chunk: int) -> Array:
    """queries [M, H, D], slots and seen [M, L] -> [M, H, D]."""
    keys = read_host(latents, slots)
    hidden = ~seen[:, None]
    scores = _scores(queries, keys[:, :chunk], hidden[:, :, :chunk])
    if slots.shape[1] <= chunk:
        return host.matmul(host.softmax(scores), keys)
    best = np.maximum(np.maximum.reduce(scores, -1, keepdims=True), _LOWEST)
    shares = np.exp(np.subtract(scores, best, scores), scores)
    total = np.add.reduce(shares, -1, keepdims=True)
    out = host.matmul(shares, keys[:, :chunk])
    for start in range(chunk, slots.shape[1], chunk):
        part = keys[:, start : start + chunk]
        scores = _scores(queries, part, hidden[:, :, start : start + chunk])
        higher = np.maximum(best, np.maximum.reduce(scores, -1, keepdims=True))
        shrink = np.exp(best - higher)
        shares = np.exp(np.subtract(scores, higher, scores), scores)
        total = total * shrink + np.add.reduce(shares, -1, keepdims=True)
        out = out * shrink + host.matmul(shares, part)
        best = higher
    return np.divide(out, total, out)


def _scores(queries: Array, keys: Array, hidden: Flags) -> Array:
    """queries [M, H, D] . keys [M, L, D] -> [M, H, L]; -inf where hidden [M, 1, L]."""
    scores = host.matmul(queries, keys.transpose(0, 2, 1))
    np.copyto(scores, _HIDDEN, where=hidden)
    return scores
