"""The book against a model of it, over ten thousand random operations, with planted faults."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from streamglm.pool.pages import FreeList, PageBook, book_digest, lease_digest

PAGES = 40
LANES = 9


class Model:
    """What the book must do, written to be believed: page lists, and counting."""

    def __init__(self) -> None:
        self.leases: dict[int, tuple[int, ...]] = {}

    @property
    def free(self) -> set[int]:
        return set(range(PAGES)) - {page for pages in self.leases.values() for page in pages}


def shared_head(model: Model, draw: random.Random) -> tuple[int, ...]:
    """The leading pages of somebody's lease, or none."""
    if not model.leases or draw.random() < 0.6:
        return ()
    donor = draw.choice(list(model.leases.values()))
    return donor[: draw.randrange(len(donor) + 1)]


def follow(book: PageBook, operations: int, seed: int, lowest_first: bool) -> None:
    """Random leases and releases on book and model; whatever differs is an AssertionError."""
    draw = random.Random(seed)
    model = Model()
    for _ in range(operations):
        lane = draw.randrange(LANES)
        if lane in model.leases:
            before = len(model.free)
            del model.leases[lane]
            assert book.release(lane) == len(model.free) - before
        else:
            shared = shared_head(model, draw)
            count = draw.randrange(not shared, 9)
            if count > book.free:
                continue
            free = model.free
            pages = book.lease(lane, count, shared)
            fresh = pages[len(shared) :]
            assert pages[: len(shared)] == shared
            assert len(fresh) == count == len(set(fresh))
            assert set(fresh) <= free
            assert not lowest_first or list(fresh) == sorted(free)[:count]
            model.leases[lane] = pages
        assert book.free == len(model.free)
        assert book.digest() == book_digest(model.leases.items())
        book.check()
    for lane in list(model.leases):
        book.release(lane)
    book.check()
    assert book.stats().free == PAGES
    assert book.digest() == 0


@pytest.mark.parametrize("shuffle", [None, 3], ids=["lowest-first", "shuffled"])
def test_ten_thousand_operations_follow_the_model(shuffle: int | None) -> None:
    follow(PageBook(PAGES, shuffle=shuffle), 10_000, seed=5, lowest_first=shuffle is None)


class KeepsAPage(PageBook):
    def release(self, lane: int) -> int:
        freed = super().release(lane)
        if self.free > 20:
            self._free.take(1)
        return freed


class FreesTwice(PageBook):
    def release(self, lane: int) -> int:
        page = self._leases[lane][0]
        freed = super().release(lane)
        if page in list(self._free) and self.free % 7 == 0:
            self._free.give([page])
        return freed


class FreesShared(PageBook):
    def release(self, lane: int) -> int:
        pages = self._leases[lane]
        freed = super().release(lane)
        self._free.give([page for page in pages if self._references[page]])
        return freed


class CountsWrong(PageBook):
    def lease(self, lane: int, count: int, shared: tuple[int, ...] = ()) -> tuple[int, ...]:
        pages = super().lease(lane, count, shared)
        for page in shared:
            self._references[page] -= 1
        return pages


class LeasesOneMore(PageBook):
    def lease(self, lane: int, count: int, shared: tuple[int, ...] = ()) -> tuple[int, ...]:
        return super().lease(lane, min(count + 1, self.free), shared)


class ForgetsTheDigest(PageBook):
    def release(self, lane: int) -> int:
        digest = self._digest
        freed = super().release(lane)
        self._digest = digest
        return freed


class HighestFirst(PageBook):
    def __init__(self, pages: int) -> None:
        super().__init__(pages)
        self._free = FreeList((), None)
        self._free._heap = [(-float(page), page) for page in reversed(range(pages))]


@pytest.mark.parametrize(
    "fault",
    [
        KeepsAPage,
        FreesTwice,
        FreesShared,
        CountsWrong,
        LeasesOneMore,
        ForgetsTheDigest,
        HighestFirst,
    ],
    ids=lambda fault: fault.__name__,
)
def test_a_planted_fault_is_found(fault: Callable[[int], PageBook]) -> None:
    with pytest.raises(AssertionError):
        follow(fault(PAGES), 2000, seed=5, lowest_first=True)


def test_pages_are_given_lowest_first_and_come_back_in_any_order() -> None:
    book = PageBook(10)
    assert book.lease(0, 3) == (0, 1, 2)
    assert book.lease(1, 3) == (3, 4, 5)
    book.release(0)
    assert book.lease(2, 4) == (0, 1, 2, 6)


def test_a_shuffle_is_the_same_for_the_same_seed_and_in_no_order() -> None:
    one, same, other = (PageBook(64, shuffle=seed).lease(0, 64) for seed in (1, 1, 2))
    assert one == same != other
    assert sorted(one) == list(range(64)) != list(one)


def test_a_lane_cannot_lease_twice_nor_more_than_is_free_nor_share_a_free_page() -> None:
    book = PageBook(4)
    book.lease(0, 2)
    for lane, count, shared in ((0, 1, ()), (1, 3, ()), (1, 1, (3,))):
        with pytest.raises(AssertionError):
            book.lease(lane, count, shared)
    book.check()


def test_stats_count_shared_pages_once() -> None:
    book = PageBook(10)
    first = book.lease(0, 4)
    book.lease(1, 1, first[:2])
    stats = book.stats()
    assert (stats.total, stats.free, stats.leased, stats.shared, stats.leases) == (10, 5, 5, 2, 2)
    assert book.release(0) == 2
    assert book.release(1) == 3


@pytest.mark.parametrize(
    ("lane", "pages"), [(1, (1, 2, 3)), (0, (1, 3, 2)), (0, (1, 2)), (0, (1, 2, 4))]
)
def test_a_digest_tells_lanes_orders_and_ids_apart(lane: int, pages: tuple[int, ...]) -> None:
    assert lease_digest(lane, pages) != lease_digest(0, (1, 2, 3))
    assert book_digest([(0, (1, 2, 3)), (5, (4,))]) == book_digest([(5, (4,)), (0, (1, 2, 3))])
