"""The memory behind page ids on one rank: latent rows and pooled keys of every cache.

Owns the tensors, the null page and poison. Knows no leases: ids come from the book in the server
process. Invariant: the null page (one behind the last page) is never written and holds zeros, so
that an index which means "nothing" may point there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from streamglm.pool.layout import CacheShape


class PoolTensors:
    """Pages of one rank, on the CPU in float32."""

    def __init__(self, shape: CacheShape, pages: int, *, poison: bool = False) -> None:
        keys = shape.page_rows // shape.pool
        self.shape = shape
        self.pages = pages
        self.null = pages
        self.latents = torch.zeros(shape.caches, pages + 1, shape.page_rows, shape.latent_dim)
        """[caches, pages + 1, page rows, latent dim]"""
        self.keys = torch.zeros(shape.caches, pages + 1, keys, shape.index_dim)
        """[caches, pages + 1, pools of a page, index dim]"""
        self.latents_host = tuple(self.latents.numpy())
        self.keys_host = tuple(self.keys.numpy())
        """The same memory, cache by cache."""
        self._poison = poison

    def take(self, pages: Sequence[int]) -> None:
        """A lane takes `pages`: filled with NaN under poison, so that a read of what the lane has
        not written shows."""
        if self._poison and pages:
            index = torch.tensor(pages)
            self.latents.index_fill_(1, index, float("nan"))
            self.keys.index_fill_(1, index, float("nan"))

    @property
    def bytes(self) -> int:
        """Bytes allocated, the null page included."""
        return self.latents.nbytes + self.keys.nbytes
