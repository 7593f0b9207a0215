"""The carry: latent rows of a kept state from its home to the rank that goes on with them.

Owns the cut into pieces that fit the room, and who sends and who receives. Knows no tensors. Home
and owner walk the same pieces in the same order; every other rank has none. A state's latent rows
are whole pages in every cache, and a page's bytes in one cache lie side by side:

    room >= a page   pieces of one cache and as many pages as fit
    room <  a page   pieces of one cache, one page, and as many bytes of it as fit
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """One message: of cache `cache` the pages [first, stop) of a list, and of each of them the
    bytes [start, end)."""

    cache: int
    first: int
    stop: int
    start: int
    end: int

    @property
    def bytes(self) -> int:
        return (self.stop - self.first) * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Carried:
    """What one rank does of a carry: it sends its pieces to `peer`, or receives them from there."""

    peer: int
    sends: bool
    pieces: tuple[Piece, ...]


def pieces(caches: int, pages: int, page_bytes: int, room_bytes: int) -> Iterator[Piece]:
    """Latent rows of `pages` pages in `caches` caches, cut so that each piece fits the room.
    `page_bytes`: of the latent rows of one page in one cache."""
    assert room_bytes > 0, "a carry needs room"
    pages_at_once = max(1, room_bytes // page_bytes)
    bytes_at_once = min(page_bytes, room_bytes)
    for cache in range(caches):
        for first in range(0, pages, pages_at_once):
            stop = min(first + pages_at_once, pages)
            for start in range(0, page_bytes, bytes_at_once):
                yield Piece(cache, first, stop, start, min(start + bytes_at_once, page_bytes))


def carried(rank: int, home: int, owner: int, cut: Iterator[Piece]) -> Carried | None:
    """The part of `rank`; None where it has none, and then it posts nothing."""
    assert home != owner, "rows that are at home are not carried"
    if rank == home:
        return Carried(owner, True, tuple(cut))
    if rank == owner:
        return Carried(home, False, tuple(cut))
    return None
