"""Where the latent rows of a page lie on one rank: at the page's own id, or, with the latent split,
among the pages of the rank's class.

Owns the way from page ids to places. Knows no bytes. A rank's region of P pages and W ranks:

    unsplit    place p            page p                             null page at P
    split      place p // W       page p of this rank's class
               place P // W - 1   the trash page: rows of lanes that others own
               place P // W       the null page

Invariant: no page of this rank's class that a lease may take lies at the trash page, so what is
written there is nobody's, and nobody reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamglm.pool.owners import latent_place, owner_of, trash_place


@dataclass(frozen=True, slots=True)
class Region:
    """The region of `rank`; `pages` counts every rank's trash page. World 1: unsplit."""

    pages: int
    rank: int = 0
    world: int = 1

    @property
    def split(self) -> bool:
        return self.world > 1

    @property
    def places(self) -> int:
        """Pages of the region, the trash page included and the null page not."""
        return self.pages // self.world

    @property
    def null(self) -> int:
        """Where an index that means nothing points: a page of zeros that is never written."""
        return self.places

    def owner(self, pages: Sequence[int]) -> int | None:
        """The rank that has the latent rows of a lease; None where every rank has them."""
        return owner_of(pages, self.world) if self.split else None

    def own(self, pages: Sequence[int]) -> list[int]:
        """The places of those pages of a lease whose rows lie here: all of them, or none."""
        if not self.split:
            return list(pages)
        return [latent_place(page, self.world) for page in pages if page % self.world == self.rank]

    def written(self, pages: Sequence[int]) -> list[int]:
        """Where this rank writes the rows of each page of a lease."""
        own = self.own(pages)
        return own or [trash_place(self.pages, self.world)] * len(pages)
