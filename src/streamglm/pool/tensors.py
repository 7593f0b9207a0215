"""The memory behind page ids on one rank: latent rows and pooled keys of every cache.

Owns the bytes, the null page, poison, and copies of whole pages. Knows no leases: ids come from
the book in the server process; and no values: what a page's bytes mean is its format's affair.
Invariant: the null page (one behind the last page) is never written and holds zeros, so that an
index which means "nothing" may point there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from streamglm.pool.layout import CacheShape

POISON = 0xFF
"""Every byte of a poisoned page: NaN in each of the formats."""


Raw = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class PageCopies:
    """The contents of N pages, in the order of their rows."""

    latents: torch.Tensor
    keys: torch.Tensor
    """[caches, N, bytes of a page] uint8"""

    def page(self, number: int) -> list[Raw]:
        """A copy of one of them, as `PoolTensors.page` gives it."""
        tables = (self.latents.numpy(), self.keys.numpy())
        return [table[:, number].copy().reshape(-1) for table in tables]

    @property
    def bytes(self) -> int:
        return self.latents.nbytes + self.keys.nbytes


class PoolTensors:
    """Pages of one rank, on the CPU."""

    def __init__(self, shape: CacheShape, pages: int, *, poison: bool = False) -> None:
        self.shape = shape
        self.pages = pages
        self.null = pages
        latents = shape.page_rows * shape.rows.latent_bytes(shape.latent_dim)
        keys = shape.page_rows // shape.pool * shape.index_dim * shape.rows.key_itemsize
        # numpy's zeros are the kernel's own: a page costs memory once it is written, not before
        self.latents = torch.from_numpy(np.zeros((shape.caches, pages + 1, latents), np.uint8))
        self.keys = torch.from_numpy(np.zeros((shape.caches, pages + 1, keys), np.uint8))
        """[caches, pages + 1, bytes of a page]"""
        self._tables = self.latents.numpy(), self.keys.numpy()
        """The same memory: numpy writes whole pages thirty times as fast."""
        self._poison = poison

    def take(self, pages: Sequence[int]) -> None:
        """A lane takes `pages`: filled with NaN under poison, so that a read of what the lane has
        not written shows."""
        if self._poison and pages:
            for table in self._tables:
                table[:, list(pages)] = POISON

    def copy_out(self, pages: Sequence[int]) -> PageCopies:
        """Copies of `pages`."""
        index = torch.tensor(pages)
        return PageCopies(self.latents.index_select(1, index), self.keys.index_select(1, index))

    @property
    def sections(self) -> tuple[tuple[int, int], ...]:
        """What `page` returns: bytes of each array, and bytes of one of its items."""
        rows = self.shape.rows
        items = (rows.latent_itemsize, rows.key_itemsize)
        sizes = (table[:, 0].nbytes for table in self._tables)
        return tuple(zip(sizes, items, strict=True))

    def page(self, page: int) -> list[Raw]:
        """A copy of one page, as bytes."""
        return [table[:, page].copy().reshape(-1) for table in self._tables]

    def put(self, page: int, sections: Sequence[Raw]) -> None:
        """What `page` returned, into a page."""
        for table, section in zip(self._tables, sections, strict=True):
            table[:, page] = section.reshape(table.shape[0], -1)

    def copy_in(self, pages: Sequence[int], copies: PageCopies) -> None:
        """`copies` into as many `pages`."""
        for table, rows in zip(self._tables, (copies.latents, copies.keys), strict=True):
            table[:, list(pages)] = rows.numpy()

    @property
    def null_bytes(self) -> int:
        """Bytes of the null page."""
        return (self.latents.nbytes + self.keys.nbytes) // (self.pages + 1)

    @property
    def bytes(self) -> int:
        """Bytes of the pages that leases may take: all but the null page."""
        return self.pages * self.null_bytes
