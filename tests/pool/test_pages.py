"""The book against a model of it, over ten thousand random operations, with planted faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import pytest

from streamglm.pool.pages import FreeList, PageBook, book_digest, lease_digest

PAGES = 40
LANES = 9


class Model:
    """What the book must do, written to be believed: page lists, and counting."""

    def __init__(self) -> None:
        self.leases: dict[int, tuple[int, ...]] = {}
        self.keeps: dict[int, tuple[int, ...]] = {}

    @property
    def free(self) -> set[int]:
        held = (*self.leases.values(), *self.keeps.values())
        return set(range(PAGES)) - {page for pages in held for page in pages}

    @property
    def kept(self) -> set[int]:
        """Pages that no lane leases and a state keeps."""
        leased = {page for pages in self.leases.values() for page in pages}
        return {page for pages in self.keeps.values() for page in pages} - leased


def shared_head(model: Model, draw: random.Random) -> tuple[int, ...]:
    """The leading pages of somebody's lease or of a kept state, or none."""
    donors = [*model.leases.values(), *model.keeps.values()]
    if not donors or draw.random() < 0.6:
        return ()
    donor = draw.choice(donors)
    return donor[: draw.randrange(len(donor) + 1)]


def keep_or_drop(book: PageBook, model: Model, draw: random.Random) -> None:
    """A state keeps the head of a lease, or an old state goes."""
    state = draw.randrange(LANES)
    if state in model.keeps:
        before = len(model.free)
        del model.keeps[state]
        assert book.drop(state) == len(model.free) - before
    elif head := shared_head(model, draw):
        book.keep(state, head)
        model.keeps[state] = head
    if model.keeps:
        states = draw.sample(list(model.keeps), draw.randrange(len(model.keeps)) + 1)
        left = Model()
        left.leases = model.leases
        left.keeps = {one: p for one, p in model.keeps.items() if one not in states}
        assert book.spare(states) == left.free - model.free


def follow(book: PageBook, operations: int, seed: int, lowest_first: bool) -> None:
    """Random leases, releases, keeps and drops; whatever differs is an AssertionError."""
    draw = random.Random(seed)
    model = Model()
    for _ in range(operations):
        lane = draw.randrange(LANES)
        if draw.random() < 0.3:
            keep_or_drop(book, model, draw)
        elif lane in model.leases:
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
        assert book.stats().kept == len(model.kept)
        assert book.digest() == book_digest(model.leases.items())
        book.check()
    for lane in model.leases:
        book.release(lane)
    for state in model.keeps:
        book.drop(state)
    book.check()
    assert book.stats().free == PAGES
    assert book.digest() == 0


@pytest.mark.parametrize("shuffle", [None, 3], ids=["lowest-first", "shuffled"])
def test_ten_thousand_operations_follow_the_model(shuffle: int | None) -> None:
    follow(PageBook(PAGES, shuffle=shuffle), 10_000, seed=5, lowest_first=shuffle is None)


class LosesAPage(PageBook):
    def release(self, lane: int) -> int:
        freed = super().release(lane)
        if self.free > 20:
            self._free[0].take(1)
        return freed


class FreesTwice(PageBook):
    def release(self, lane: int) -> int:
        page = self._leases[lane][0]
        freed = super().release(lane)
        if page in list(self._free[0]) and self.free % 7 == 0:
            self._free[0].give([page])
        return freed


class FreesShared(PageBook):
    def release(self, lane: int) -> int:
        pages = self._leases[lane]
        freed = super().release(lane)
        self._free[0].give([page for page in pages if self._leased[page]])
        return freed


class FreesKept(PageBook):
    def _holders(self, page: int) -> int:
        return self._leased[page]


class DropsNothing(PageBook):
    def drop(self, state: int) -> int:
        self._keeps.pop(state)
        return 0


class CountsWrong(PageBook):
    def lease(
        self, lane: int, count: int, shared: tuple[int, ...] = (), *, near: int | None = None
    ) -> tuple[int, ...]:
        pages = super().lease(lane, count, shared, near=near)
        for page in shared:
            self._leased[page] -= 1
        return pages


class LeasesOneMore(PageBook):
    def lease(
        self, lane: int, count: int, shared: tuple[int, ...] = (), *, near: int | None = None
    ) -> tuple[int, ...]:
        return super().lease(lane, min(count + 1, self.free), shared, near=near)


class ForgetsTheDigest(PageBook):
    def release(self, lane: int) -> int:
        digest = self._digest
        freed = super().release(lane)
        self._digest = digest
        return freed


class SparesTheLeased(PageBook):
    def spare(self, states: Collection[int]) -> frozenset[int]:
        return frozenset(page for state in states for page in self._keeps[state])


class HighestFirst(PageBook):
    def __init__(self, pages: int) -> None:
        super().__init__(pages)
        highest = FreeList((), None)
        highest._heap = [(-float(page), page) for page in reversed(range(pages))]
        self._free = (highest,)


@pytest.mark.parametrize(
    "fault",
    [
        LosesAPage,
        FreesTwice,
        FreesShared,
        FreesKept,
        DropsNothing,
        SparesTheLeased,
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


def test_kept_pages_outlive_their_lease_and_come_free_with_the_last_holder() -> None:
    book = PageBook(10)
    pages = book.lease(0, 4)
    book.keep(7, pages[:3])
    assert book.release(0) == 1
    assert (book.stats().leased, book.stats().kept, book.stats().keeps) == (0, 3, 1)
    assert book.lease(1, 2, book.kept_pages(7))[:3] == pages[:3]
    assert book.drop(7) == 0
    assert book.release(1) == 5
    book.check()


def test_a_free_page_cannot_be_kept_nor_a_state_keep_twice() -> None:
    book = PageBook(4)
    pages = book.lease(0, 2)
    book.keep(1, pages)
    for state, asked in ((2, (3,)), (1, pages)):
        with pytest.raises(AssertionError):
            book.keep(state, asked)
    book.check()


def test_the_null_page_is_nobodys() -> None:
    """Behind the last page of one class; the last page of each of several."""
    assert PageBook(8).null_page() == 8
    split = PageBook(12, classes=3)
    assert [split.null_page(home) for home in range(3)] == [9, 10, 11]
    assert (split.funded, split.capacity) == (9, 3)
    leased = [split.lease(lane, 3) for lane in range(3)]
    assert {page for pages in leased for page in pages} == set(range(9))


def test_a_lease_lies_in_the_roomiest_class_ties_to_the_lower() -> None:
    book = PageBook(15, classes=3)
    homes = [book.lease(lane, count)[0] % 3 for lane, count in enumerate((1, 2, 1, 1, 1))]
    assert homes == [0, 1, 2, 0, 2]
    book.check()


def test_free_is_what_one_class_has_and_not_the_sum() -> None:
    """Fails when a lease is promised that lies in two classes."""
    book = PageBook(8, classes=2)
    book.lease(0, 1)
    assert [book.free_in(home) for home in (0, 1)] == [2, 3]
    assert book.free == 3
    with pytest.raises(AssertionError):
        book.lease(1, 4)


@pytest.mark.parametrize(("near", "count", "home"), [(1, 2, 1), (1, 3, 0), (None, 2, 0), (0, 4, 0)])
def test_a_home_is_preferred_while_it_has_the_pages(
    near: int | None, count: int, home: int
) -> None:
    book = PageBook(10, classes=2)
    book.lease(0, 2, near=1)
    assert book.roomiest(count, near) == home
    assert book.lease(1, count, near=near)[0] % 2 == home


def test_an_heir_leases_in_the_class_of_the_pages_it_shares() -> None:
    book = PageBook(12, classes=2)
    pages = book.lease(0, 3, near=1)
    book.keep(5, pages)
    book.release(0)
    assert all(page % 2 == 1 for page in book.lease(1, 2, pages))
    book.check()


def test_random_leases_in_three_classes_leave_every_class_whole() -> None:
    draw = random.Random(9)
    book = PageBook(60, classes=3, shuffle=4)
    for _ in range(10_000):
        lane = draw.randrange(12)
        count = draw.randrange(1, 8)
        if lane in book._leases:
            book.release(lane)
        elif count <= book.free:
            pages = book.lease(lane, count, near=draw.choice([None, 0, 1, 2]))
            assert len({page % 3 for page in pages}) == 1
        book.check()
    for lane in list(book._leases):
        book.release(lane)
    assert [book.free_in(home) for home in range(3)] == [19, 19, 19]
