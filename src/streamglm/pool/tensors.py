"""The memory behind page ids on one rank: latent rows and pooled keys of every cache.

Owns the bytes, the null page, poison, and copies of whole pages. Knows no leases: ids come from
the book in the server process; and no values: what a page's bytes mean is its format's affair.
Invariant: the null page (one behind the last page) is never written and holds zeros, so that an
index which means "nothing" may point there. With the latent split, latent rows of a page lie on one
rank, at a place of its region (`region.py`); pooled keys lie on every rank, at the page's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from streamglm.pool.layout import CacheShape
from streamglm.pool.region import Region

POISON = 0xFF
"""Every byte of a poisoned page: NaN in each of the formats."""


Raw = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class PageCopies:
    """The contents of N pages, in the order of their rows."""

    latents: torch.Tensor
    """[caches, N, bytes of a page] uint8; of no page on a rank that has none of their rows"""
    keys: torch.Tensor
    """[caches, N, bytes of a page] uint8"""

    def page(self, number: int) -> list[Raw]:
        """A copy of one of them, as `PoolTensors.page` gives it."""
        latents, keys = self.latents[:, number:][:, :1].cpu(), self.keys[:, number].cpu()
        return [latents.numpy().copy().reshape(-1), keys.numpy().copy().reshape(-1)]

    def on_host(self) -> PageCopies:
        """In the host's memory, pinned if they come from a GPU."""
        if self.keys.device.type == "cpu":
            return self
        return PageCopies(self.latents.cpu().pin_memory(), self.keys.cpu().pin_memory())

    @property
    def bytes(self) -> int:
        return self.latents.nbytes + self.keys.nbytes


class PoolTensors:
    """Pages of one rank, on the CPU."""

    def __init__(
        self,
        shape: CacheShape,
        pages: int,
        *,
        region: Region | None = None,
        poison: bool = False,
    ) -> None:
        self.shape = shape
        self.pages = pages
        self.null = pages
        self.region = region or Region(pages)
        latents = shape.page_rows * shape.rows.latent_bytes(shape.latent_dim)
        keys = shape.page_rows // shape.pool * shape.index_dim * shape.rows.key_itemsize
        self.latents = self._blank(shape.caches, self.region.places + 1, latents)
        """[caches, places + 1, bytes of a page]"""
        self.keys = self._blank(shape.caches, pages + 1, keys)
        """[caches, pages + 1, bytes of a page]"""
        self._poison = poison

    def _blank(self, *sizes: int) -> torch.Tensor:
        """Zeros; numpy's are the kernel's own: a page costs memory once it is written."""
        return torch.from_numpy(np.zeros(sizes, np.uint8))

    @property
    def _tables(self) -> tuple[Raw, Raw]:
        """The same memory: numpy writes whole pages thirty times as fast."""
        return self.latents.numpy(), self.keys.numpy()

    def take(self, pages: Sequence[int]) -> None:
        """A lane takes `pages`: filled with NaN under poison, so that a read of what the lane has
        not written shows."""
        if self._poison and pages:
            for table, places in zip(self._tables, self._places(pages), strict=True):
                table[:, places] = POISON

    def copy_out(self, pages: Sequence[int]) -> PageCopies:
        """Copies of `pages`: of those rows that lie here."""
        latents, keys = (torch.tensor(at, dtype=torch.int64) for at in self._places(pages))
        return PageCopies(self.latents.index_select(1, latents), self.keys.index_select(1, keys))

    def copy_keys(self, pages: Sequence[int], sources: Sequence[int]) -> None:
        """Pooled keys of `sources` into as many `pages`."""
        keys = self._tables[1]
        keys[:, list(pages)] = keys[:, list(sources)]

    def _places(self, pages: Sequence[int]) -> tuple[list[int], list[int]]:
        """Where `pages` lie among the latents and among the keys."""
        return self.region.own(pages), list(pages)

    @property
    def sections(self) -> tuple[tuple[int, int], ...]:
        """What `page` returns: bytes of each array, and bytes of one of its items."""
        rows = self.shape.rows
        items = (rows.latent_itemsize, rows.key_itemsize)
        sizes = (table[:, 0].nbytes for table in (self.latents, self.keys))
        return tuple(zip(sizes, items, strict=True))

    def page(self, page: int) -> list[Raw]:
        """A copy of one page, as bytes: no latents where its rows do not lie here."""
        latents, keys = self._tables
        return [
            latents[:, self.region.own([page])].reshape(-1),
            keys[:, page].copy().reshape(-1),
        ]

    def put(self, page: int, sections: Sequence[Raw]) -> None:
        """What `page` returned, into a page: its latents, if they are there, where its rows lie
        here."""
        for table, at, section in zip(self._tables, self._places([page]), sections, strict=True):
            if at and len(section):
                table[:, at[0]] = section.reshape(table.shape[0], -1)

    def copy_in(self, pages: Sequence[int], copies: PageCopies, *, rows: bool = True) -> None:
        """`copies` into as many `pages`; without `rows`, their pooled keys alone."""
        latents, keys = self._places(pages)
        if rows:
            self._tables[0][:, latents] = copies.latents.numpy()
        self._tables[1][:, keys] = copies.keys.numpy()

    @property
    def null_bytes(self) -> int:
        """Bytes of the null page."""
        return sum(table[:, 0].nbytes for table in (self.latents, self.keys))

    @property
    def bytes(self) -> int:
        """Bytes of the pages but for the null page: what leases may take, and the trash page."""
        return self.latents.nbytes + self.keys.nbytes - self.null_bytes
