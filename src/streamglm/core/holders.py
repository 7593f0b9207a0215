"""Who holds which page, small enough to be drawn: runs of cells, whatever the pool's size.

Owns the drawing of a snapshot. Knows no book and no HTTP: it is handed the leases and the kept
pages as they were at one moment, none of which changes any more, so that it may work in another
thread. Invariant: the runs of a class cover each of its cells once, and there are about as many
cells in all as were asked for, at most one more a class.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

FREE = 0
KEPT = 1
LANES = 2
"""What a cell holds: nothing, kept states alone, or lane n as LANES + n."""


@dataclass(frozen=True, slots=True)
class ClassMap:
    """One class: its pages, and (holder, cells) one after the other."""

    pages: int
    runs: list[int]


@dataclass(frozen=True, slots=True)
class PageMap:
    """Every class. A cell stands for `pages_per_cell` pages of its class, the last one for fewer,
    and shows who holds the most of them."""

    pages_per_cell: int
    classes: list[ClassMap]


@dataclass(frozen=True, slots=True)
class PageHolders:
    """A snapshot of a book: page p is of class p mod `classes`, and `pages` of them divide
    evenly."""

    pages: int
    classes: int
    leases: Mapping[int, tuple[int, ...]]
    """By lane."""
    kept: tuple[tuple[int, ...], ...]
    """Of each kept state."""

    def map(self, most: int) -> PageMap:
        """In about `most` cells. A page that is leased and kept is shown as leased; one that
        several lanes share, as the lowest lane's."""
        each = max(1, -(-self.pages // most))
        holders = self._holders()
        per = self.pages // self.classes
        found = []
        for home in range(self.classes):
            mine = {page // self.classes: one for page, one in holders.items()
                    if page % self.classes == home}  # fmt: skip
            cells = _one_a_page(mine, per) if each == 1 else _majority(mine, per, each)
            found.append(ClassMap(per, _runs(cells)))
        return PageMap(each, found)

    def _holders(self) -> dict[int, int]:
        """The holder of every page that is not free."""
        held = {page: KEPT for pages in self.kept for page in pages}
        for lane in sorted(self.leases, reverse=True):
            held.update(dict.fromkeys(self.leases[lane], LANES + lane))
        return held


def _one_a_page(holders: Mapping[int, int], pages: int) -> array[int]:
    cells = array("H", bytes(2 * pages))
    for page, holder in holders.items():
        cells[page] = holder
    return cells


def _majority(holders: Mapping[int, int], pages: int, each: int) -> array[int]:
    """Ties go to the lower holder, but to no free one."""
    cells = array("H", bytes(2 * -(-pages // each)))
    counts: dict[int, Counter[int]] = {}
    for page, holder in holders.items():
        counts.setdefault(page // each, Counter())[holder] += 1
    for cell, held in counts.items():
        free = min(each, pages - cell * each) - held.total()
        holder = max(held, key=lambda one: (held[one], -one))
        if held[holder] >= free:
            cells[cell] = holder
    return cells


def _runs(cells: Iterable[int]) -> list[int]:
    """[holder, count, holder, count, ...] of the cells in order."""
    runs: list[int] = []
    for holder, same in groupby(cells):
        runs += (holder, sum(1 for _ in same))
    return runs
