"""Owners: which rank has the latent rows of a page, and where they lie there.

Owns the arithmetic of the latent split. Knows no leases and no bytes. With `world` ranks, page p
is of class p mod `world`, and class c belongs to rank c. A lease lies in one class, so a lane has
one owner while it lives. Of P pages, which `world` divides,

    pooled keys    of every page lie on every rank       at p
    latent rows    lie on the page's owner alone         at p // world
    trash page     one a rank, behind its class's pages  at P // world - 1

A rank that does not own a lane writes its rows into the trash page and never reads them.
"""

from __future__ import annotations

from collections.abc import Sequence


def owner_of(pages: Sequence[int], world: int) -> int:
    """The rank that owns a lease; 0 where ranks do not split. There must be a page."""
    return pages[0] % world


def stray(pages: Sequence[int], owner: int, world: int) -> int | None:
    """The first page of another class than the owner's; None without one."""
    return next((page for page in pages if page % world != owner), None)


def latent_place(page: int, world: int) -> int:
    """Where a page's latent rows lie in its owner's region."""
    return page // world


def trash_place(pages: int, world: int) -> int:
    """Where a rank's trash page lies in its region; `pages` counts the trash pages."""
    return pages // world - 1
