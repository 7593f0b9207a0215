"""A rank's paged caches as the operators read and write them.

Owns the meaning of the pool's bytes: which format they have. Knows no lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from streamglm.kernels import pages
from streamglm.kernels.pages import Pages
from streamglm.pool.layout import RowFormat
from streamglm.pool.tensors import PoolTensors

_LATENTS = {
    RowFormat.FP32: torch.float32,
    RowFormat.BF16: torch.bfloat16,
    RowFormat.FP8: pages.FLOAT8,
}
_KEYS = {
    RowFormat.FP32: torch.float32,
    RowFormat.BF16: torch.bfloat16,
    RowFormat.FP8: torch.bfloat16,
}


@dataclass(frozen=True, slots=True)
class Caches:
    """Cache by cache."""

    latents: tuple[Pages, ...]
    """S rows of a page: one a token."""
    keys: tuple[Pages, ...]
    """S rows of a page: one a pool of tokens."""

    @classmethod
    def of(cls, pool: PoolTensors) -> Caches:
        """The same memory as the pool's."""
        shape = pool.shape
        latent, key = _LATENTS[shape.rows], _KEYS[shape.rows]
        rows, pools = shape.page_rows, shape.page_rows // shape.pool
        return cls(
            latents=tuple(pages.view(one, rows, shape.latent_dim, latent) for one in pool.latents),
            keys=tuple(pages.view(one, pools, shape.index_dim, key) for one in pool.keys),
        )
