"""The book of pages: which ids are free, which lanes lease them, and which states keep them.

Owns page ids alone; the memory behind them is `tensors.py` on a rank. Knows no torch, no
requests, no tokens. The book lives in the server process and is the only allocator of the system:
a rank writes the ids it is sent. Invariant, proved by `check()`, in every class:

    free + leased + kept = funded, no id twice; a page's references are its leases and keeps

where a page that is both leased and kept counts as leased. A lease lasts for a request's whole
life and never grows. Pages are counted by reference, so that leases and kept states may hold the
same leading pages: a page that lies wholly before a mark is never written again.

Page p is of class p mod `classes` (`owners.py`), and a lease lies in one class. With several
classes the last page of each is its trash page, which nobody leases; with one, the null page is the
id behind the last.
"""

from __future__ import annotations

import heapq
import random
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b


def lease_digest(lane: int, pages: tuple[int, ...]) -> int:
    """64 bits over one lease: its lane, and its page ids in the order of the rows."""
    return int.from_bytes(blake2b(array("I", (lane, *pages)).tobytes(), digest_size=8).digest())


def state_digest(state: int, place: int, at: int, pages: tuple[int, ...], home: int = 0) -> int:
    """64 bits over one kept state: its number, its slot or another place below 0, its mark, its
    home, and the pages that it shares."""
    packed = array("q", (state, place, at, home, *pages)).tobytes()
    return int.from_bytes(blake2b(packed, digest_size=8, person=b"kept").digest())


def book_digest(leases: Iterable[tuple[int, tuple[int, ...]]]) -> int:
    """64 bits over the leases of a book, in any order; 0 when there are none.

    The exclusive or of `lease_digest`, so that server and rank both keep it up as leases come and
    go, and compare it in every step.
    """
    digest = 0
    for lane, pages in leases:
        digest ^= lease_digest(lane, pages)
    return digest


@dataclass(frozen=True, slots=True)
class ClassPages:
    """Pages of one class at this moment; `total` is `free + leased + kept`."""

    total: int
    free: int
    leased: int
    kept: int
    """Held by kept states alone."""


@dataclass(frozen=True, slots=True)
class PageStats:
    """Pages at this moment, class by class and in all. `shared` have more than one holder."""

    classes: tuple[ClassPages, ...]
    shared: int
    leases: int
    keeps: int

    @property
    def total(self) -> int:
        return sum(one.total for one in self.classes)

    @property
    def free(self) -> int:
        return sum(one.free for one in self.classes)

    @property
    def leased(self) -> int:
        return sum(one.leased for one in self.classes)

    @property
    def kept(self) -> int:
        """Held by kept states alone."""
        return sum(one.kept for one in self.classes)


class FreeList:
    """Free page ids, lowest first; with `shuffle`, a seed, in an order that nothing can assume."""

    __slots__ = ("_heap", "_random")

    def __init__(self, ids: Iterable[int], shuffle: int | None = None) -> None:
        self._random = None if shuffle is None else random.Random(shuffle)
        self._heap: list[tuple[float, int]] = []
        self.give(ids)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[int]:
        return iter([page for _, page in self._heap])

    def take(self, count: int) -> tuple[int, ...]:
        """Remove `count` ids. There must be as many."""
        assert 0 <= count <= len(self._heap), f"{count} pages of {len(self._heap)} free"
        return tuple(heapq.heappop(self._heap)[1] for _ in range(count))

    def give(self, ids: Iterable[int]) -> None:
        """Put ids back. None of them may be free already."""
        for page in ids:
            key = 0.0 if self._random is None else self._random.random()
            heapq.heappush(self._heap, (key, page))


class PageBook:
    """Leases of lanes and keeps of states over the pages 0 to `pages - 1`."""

    __slots__ = (
        "_digest",
        "_free",
        "_keeps",
        "_kept",
        "_leased",
        "_leases",
        "classes",
        "funded",
    )

    def __init__(self, pages: int, *, classes: int = 1, shuffle: int | None = None) -> None:
        assert pages % classes == 0, f"{pages} pages do not divide into {classes} classes"
        self.classes = classes
        self.funded = pages - classes if classes > 1 else pages
        """Pages that leases may take; the null pages are not among them."""
        self._free = tuple(
            FreeList(range(home, self.funded, classes), shuffle) for home in range(classes)
        )
        self._leased = [0] * self.funded
        """Leases that hold a page, by its id."""
        self._kept = [0] * self.funded
        """Keeps that hold a page, by its id."""
        self._leases: dict[int, tuple[int, ...]] = {}
        self._keeps: dict[int, tuple[int, ...]] = {}
        self._digest = 0

    @property
    def free(self) -> int:
        """Pages that a lease may take now: those of the class with the most, since no lease lies
        in two."""
        return max(map(len, self._free))

    @property
    def capacity(self) -> int:
        """Pages of a class: the most that any lease can be."""
        return self.funded // self.classes

    def null_page(self, home: int = 0) -> int:
        """Where the table of a lease in class `home` points past its pages."""
        return self.funded + home

    def free_in(self, home: int) -> int:
        """Free pages of one class."""
        return len(self._free[home])

    def roomiest(self, count: int = 0, near: int | None = None) -> int:
        """The class of a new lease: `near` if it has `count` pages free, else the one with the
        most, ties to the lower."""
        if near is not None and count <= len(self._free[near]):
            return near
        return max(range(self.classes), key=lambda home: (len(self._free[home]), -home))

    def pages(self, lane: int) -> tuple[int, ...]:
        """The page ids of a lane, in the order of its rows."""
        return self._leases[lane]

    def kept_pages(self, state: int) -> tuple[int, ...]:
        """The page ids of a kept state, in the order of its rows."""
        return self._keeps[state]

    def lease(
        self, lane: int, count: int, shared: tuple[int, ...] = (), *, near: int | None = None
    ) -> tuple[int, ...]:
        """Give `lane` the pages `shared`, which others hold, and then `count` free ones of the
        same class; without `shared`, of the class that `roomiest` picks.

        The lane must hold nothing, and `count` pages must be free: admission has looked. Returns
        the lease, in the order of its rows.
        """
        assert lane not in self._leases, f"lane {lane} holds pages already"
        assert all(self._holders(page) for page in shared), "a free page cannot be shared"
        home = shared[0] % self.classes if shared else self.roomiest(count, near)
        pages = shared + self._free[home].take(count)
        for page in pages:
            self._leased[page] += 1
        self._leases[lane] = pages
        self._digest ^= lease_digest(lane, pages)
        return pages

    def release(self, lane: int) -> int:
        """End a lane's lease. Returns the pages that became free: those nobody else holds."""
        pages = self._leases.pop(lane)
        self._digest ^= lease_digest(lane, pages)
        return self._give_up(self._leased, pages)

    def keep(self, state: int, pages: tuple[int, ...]) -> None:
        """A kept state holds `pages`, which somebody holds now: they outlive the lease."""
        assert state not in self._keeps, f"state {state} holds pages already"
        assert all(self._holders(page) for page in pages), "a free page cannot be kept"
        for page in pages:
            self._kept[page] += 1
        self._keeps[state] = pages

    def drop(self, state: int) -> int:
        """A kept state is gone. Returns the pages that became free."""
        return self._give_up(self._kept, self._keeps.pop(state))

    def spare(self, states: Collection[int]) -> frozenset[int]:
        """Pages that would become free if all `states` were dropped together."""
        held = Counter(page for state in states for page in self._keeps[state])
        return frozenset(
            page
            for page, count in held.items()
            if not self._leased[page] and self._kept[page] == count
        )

    def holders(self) -> tuple[dict[int, tuple[int, ...]], tuple[tuple[int, ...], ...]]:
        """Leases by lane, and the pages of each keep, as they are now: copies that stay so."""
        return dict(self._leases), tuple(self._keeps.values())

    def digest(self) -> int:
        """`book_digest` of the leases at this moment."""
        return self._digest

    def stats(self) -> PageStats:
        leased, kept = _count(self._leases), _count(self._keeps)
        return PageStats(
            classes=tuple(self._class_stats(home, leased) for home in range(self.classes)),
            shared=sum(count > 1 for count in (leased + kept).values()),
            leases=len(self._leases),
            keeps=len(self._keeps),
        )

    def _class_stats(self, home: int, leased: Counter[int]) -> ClassPages:
        total = self.funded // self.classes
        free = len(self._free[home])
        mine = sum(page % self.classes == home for page in leased)
        return ClassPages(total=total, free=free, leased=mine, kept=total - free - mine)

    def check(self) -> None:
        """Prove the invariant from the leases and keeps themselves; AssertionError says what
        broke."""
        for holder, owned in (("lane", self._leases), ("state", self._keeps)):
            for name, pages in owned.items():
                assert len(set(pages)) == len(pages), f"{holder} {name} holds a page twice: {pages}"
                classes = {page % self.classes for page in pages}
                assert len(classes) <= 1, f"{holder} {name} holds pages of classes {classes}"
        leased, kept = _count(self._leases), _count(self._keeps)
        _check_counts("leases", self._leased, leased)
        _check_counts("keeps", self._kept, kept)
        for home, free in enumerate(self._free):
            held = {page for page in leased | kept if page % self.classes == home}
            _check_class(range(home, self.funded, self.classes), list(free), held)
        assert self._digest == book_digest(self._leases.items()), "the digest is not the leases'"

    def _holders(self, page: int) -> int:
        return self._leased[page] + self._kept[page]

    def _give_up(self, counts: list[int], pages: tuple[int, ...]) -> int:
        freed = []
        for page in pages:
            counts[page] -= 1
            if not self._holders(page):
                freed.append(page)
        for page in freed:
            self._free[page % self.classes].give((page,))
        return len(freed)


def _count(held: dict[int, tuple[int, ...]]) -> Counter[int]:
    """How many hold each page."""
    return Counter(page for pages in held.values() for page in pages)


def _check_counts(name: str, counts: list[int], held: Counter[int]) -> None:
    """The book's counts by page are what the holders say."""
    wrong = [page for page, count in held.items() if counts[page] != count]
    assert not wrong, f"pages {wrong}: their {name} are miscounted"
    assert sum(counts) == held.total(), f"{name} are counted of pages that nobody holds"


def _check_class(funded: range, free: list[int], held: set[int]) -> None:
    """What is free and what is held are the pages of a class, each once."""
    loose = set(free)
    assert len(loose) == len(free), f"a page is free twice: {sorted(free)}"
    assert held.isdisjoint(loose), f"free and held: {sorted(held & loose)}"
    assert len(free) + len(held) == len(funded), (
        f"{len(free)} free + {len(held)} held pages, but {len(funded)} are funded"
    )
    loose |= held
    assert loose.issuperset(funded), f"no page of this class: {sorted(loose - set(funded))}"
