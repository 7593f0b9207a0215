"""The numbers of pages, pools and lists that batches share, and each lane's pages.

Owns where a lane's rows lie. Knows no batch and no weights. A page has an id, by which its pooled
keys are found, and a place, at which its latent rows lie on this rank: the same number, unless the
latent split gives the rows to one rank (`pool/region.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from streamglm.kernels import indexer
from streamglm.kernels.arguments import Flags, Ids
from streamglm.model.spec import ModelSpec
from streamglm.model.split import Split


@dataclass(frozen=True, slots=True)
class Geometry:
    """Numbers of pages, pools and lists that batches share, from the spec."""

    page: int
    pool: int
    tile: int
    topk: int
    """Pools that a list holds."""
    limit: int
    """Visible tokens up to which attention is dense."""
    attend: int
    """Keys merged at a time along a list."""
    dense: int
    """Keys merged at a time by a dense tile."""
    group: int
    """Pages whose pools are scored by one product."""
    null: int
    """The page id behind the last."""
    blank: int
    """The place of the null page's latent rows."""

    @classmethod
    def of(cls, spec: ModelSpec, null: int, blank: int | None = None) -> Geometry:
        tile = spec.rows.kda_chunk
        return cls(
            page=spec.rows.page,
            pool=spec.pool,
            tile=tile,
            topk=spec.topk_pools,
            limit=spec.dense_limit,
            attend=spec.rows.attend,
            dense=min(spec.rows.attend, max(spec.dense_limit // tile * tile, tile)),
            group=max(1, spec.rows.attend // spec.rows.page),
            null=null,
            blank=null if blank is None else blank,
        )

    def score_pages(self, length: int) -> int:
        """Pages of a row's table that scores read, for `length` visible tokens: whole groups."""
        pages = -(-(length // self.pool * self.pool) // self.page)
        return -(-pages // self.group) * self.group

    def token_lists(
        self, pools: torch.Tensor, length: torch.Tensor, tables: torch.Tensor, blank: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`indexer.token_lists` with these numbers, over places; `blank` is the null page's."""
        return indexer.token_lists(
            pools, length, tables, null=blank, page=self.page, pool=self.pool
        )

    def row_token_lists(
        self, pools: Ids, length: Ids, tables: Ids, *, blank: bool = False
    ) -> tuple[Ids, Flags]:
        """`indexer.row_token_lists` with these numbers, over places; `blank` caches have no row
        0."""
        slots, seen = indexer.row_token_lists(
            pools, length, tables, null=self.blank, page=self.page, pool=self.pool
        )
        if blank:
            first = pools[:, 0] == 0
            tail = pools.shape[1] * self.pool
            for column, rows in ((0, first), (tail, length < self.pool)):
                slots[rows, column] = self.blank * self.page
                seen[rows, column] = False
        return slots, seen


class PageTables:
    """Each lane's pages in the order of its rows; null pages behind the last."""

    def __init__(self, lanes: int, geometry: Geometry, split: Split | None = None) -> None:
        self._geometry = geometry
        self.split = split
        self.host = np.full((lanes, 2 * geometry.group), geometry.null)
        """[lanes, T] page ids, at least one whole group of null pages behind a lane's last page"""
        self.places_host = self._beside(self.host, geometry.blank)
        """[lanes, T] where latent rows lie on this rank: the same array, unless they are split"""
        self._views()
        self.owners: list[int | None] = [None] * lanes
        """By lane: the rank that has its latent rows; None where every rank has them."""

    def begin(self, lane: int, pages: Sequence[int]) -> None:
        """Lane `lane` owns `pages`, of which nothing is referred to when this returns."""
        g = self._geometry
        missing = (-(-len(pages) // g.group) + 1) * g.group - self.host.shape[1]
        if missing > 0:
            wider = ((0, 0), (0, missing))
            places = np.pad(self.places_host, wider, constant_values=g.blank)
            self.host = np.pad(self.host, wider, constant_values=g.null)
            self.places_host = self.host if self.split is None else places
            self._views()
        self.host[lane] = g.null
        self.host[lane, : len(pages)] = pages
        if self.split is not None:
            self.owners[lane] = self.split.region.owner(pages)
            self.places_host[lane] = g.blank
            self.places_host[lane, : len(pages)] = self.split.region.written(pages)

    def _beside(self, ids: Ids, value: int) -> Ids:
        return ids if self.split is None else np.full_like(ids, value)

    def _views(self) -> None:
        self.table = torch.from_numpy(self.host)
        self.places = torch.from_numpy(self.places_host)
        """The same memory."""

    def pages(self, lane: int, rows: int) -> list[int]:
        """The pages of the lane's first `rows` rows, a whole number of pages."""
        found: list[int] = self.host[lane, : rows // self._geometry.page].tolist()
        return found
