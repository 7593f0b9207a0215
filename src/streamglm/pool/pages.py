"""The book of pages: which ids are free, which are leased, and by which lane.

Owns page ids alone; the memory behind them is `tensors.py` on a rank. Knows no torch, no
requests, no tokens. The book lives in the server process and is the only allocator of the system:
a rank writes the ids it is sent. Invariant, proved by `check()`:

    free + leased = funded, no id twice; a page's references are the leases that hold it

A lease lasts for a request's whole life and never grows. Pages are counted by reference, so that
several leases may hold the same leading pages: a page that lies wholly before a mark is never
written again.
"""

from __future__ import annotations

import heapq
import random
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b


def lease_digest(lane: int, pages: tuple[int, ...]) -> int:
    """64 bits over one lease: its lane, and its page ids in the order of the rows."""
    return int.from_bytes(blake2b(array("I", (lane, *pages)).tobytes(), digest_size=8).digest())


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
class PageStats:
    """Pages at this moment; `total` is `free + leased`. `shared` have more than one lease."""

    total: int
    free: int
    leased: int
    shared: int
    leases: int


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
        return (page for _, page in self._heap)

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
    """Leases of lanes over the pages 0 to `pages - 1`."""

    __slots__ = ("_digest", "_free", "_leases", "_references", "total")

    def __init__(self, pages: int, *, shuffle: int | None = None) -> None:
        self.total = pages
        self._free = FreeList(range(pages), shuffle)
        self._references = [0] * pages
        self._leases: dict[int, tuple[int, ...]] = {}
        self._digest = 0

    @property
    def free(self) -> int:
        """Pages that a lease may take now."""
        return len(self._free)

    def pages(self, lane: int) -> tuple[int, ...]:
        """The page ids of a lane, in the order of its rows."""
        return self._leases[lane]

    def lease(self, lane: int, count: int, shared: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Give `lane` the pages `shared`, which other leases hold, and then `count` free ones.

        The lane must hold nothing, and `count` pages must be free: admission has looked. Returns
        the lease, in the order of its rows.
        """
        assert lane not in self._leases, f"lane {lane} holds pages already"
        assert all(self._references[page] for page in shared), "a free page cannot be shared"
        pages = shared + self._free.take(count)
        for page in pages:
            self._references[page] += 1
        self._leases[lane] = pages
        self._digest ^= lease_digest(lane, pages)
        return pages

    def release(self, lane: int) -> int:
        """End a lane's lease. Returns the pages that became free: those nobody else holds."""
        pages = self._leases.pop(lane)
        self._digest ^= lease_digest(lane, pages)
        freed = []
        for page in pages:
            self._references[page] -= 1
            if not self._references[page]:
                freed.append(page)
        self._free.give(freed)
        return len(freed)

    def digest(self) -> int:
        """`book_digest` of the leases at this moment."""
        return self._digest

    def stats(self) -> PageStats:
        free = len(self._free)
        return PageStats(
            total=self.total,
            free=free,
            leased=self.total - free,
            shared=sum(count > 1 for count in self._references),
            leases=len(self._leases),
        )

    def check(self) -> None:
        """Prove the invariant from the leases themselves; AssertionError says what broke."""
        held = Counter(page for pages in self._leases.values() for page in pages)
        for lane, pages in self._leases.items():
            assert len(set(pages)) == len(pages), f"lane {lane} holds a page twice: {pages}"
        free = list(self._free)
        assert len(set(free)) == len(free), f"a page is free twice: {sorted(free)}"
        assert not held.keys() & set(free), f"free and leased: {sorted(held.keys() & set(free))}"
        assert len(free) + len(held) == self.total, (
            f"{len(free)} free + {len(held)} leased pages, but {self.total} are funded"
        )
        assert all(held[page] == count for page, count in enumerate(self._references)), (
            "a page's references differ from the leases that hold it"
        )
        assert self._digest == book_digest(self._leases.items()), "the digest is not the leases'"
