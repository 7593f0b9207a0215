"""Kept states and the book over ten thousand random operations beside a simple model of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from streamglm.pool.kept import KeptStates
from streamglm.pool.pages import PageBook
from streamglm.pool.states import Look, State, Tier
from streamglm.step import Drop
from support.kept_model import Places, state_bytes
from support.kept_walk import follow

SLOTS = Places(slots=6)
BUDGET = Places(budget=5 * state_bytes(9))
PLACES = {
    "slots": SLOTS,
    "slots-and-host": Places(slots=3, host=3 * state_bytes(9)),
    "budget": BUDGET,
    "budget-and-host": Places(budget=2 * state_bytes(9), host=3 * state_bytes(9)),
    "host": Places(host=5 * state_bytes(9)),
}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_ten_thousand_operations_follow_the_model(places: Places) -> None:
    """Also shows that the walk means something: states were found, evicted, abandoned, demoted."""
    counts = follow(10_000, 1, places, shuffle=2).store.counts
    assert sum(counts.hits.values()) > 300
    assert min(counts.kept, counts.known, counts.abandoned) > 100
    assert sum(counts.evicted.values()) > 100
    if places.slots and places.host:
        assert min(counts.demoted, counts.hits[Tier.HOST]) > 100


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("name", "operations"), [("slots-and-host", 10_000), ("budget-and-host", 4_000)]
)
def test_the_same_over_classes_of_pages(name: str, operations: int, classes: int) -> None:
    """J10 with two and three ranks: leases in one class, resumes at home and off it, and copies
    that each rank is charged for by what it holds."""
    player = follow(operations, 1, PLACES[name], classes=classes, shuffle=2)
    hits = sum(player.store.counts.hits.values())
    assert player.away > 3
    assert hits - player.away > 100
    assert player.store.counts.evicted.total() > 50


def test_nothing_is_kept_where_there_is_no_place() -> None:
    counts = follow(1_000, 1, Places()).store.counts
    assert (counts.kept, counts.known) == (0, 0)
    assert counts.misses.keys() == {"off"}


class EvictsBorrowed(KeptStates):
    def _evictable(self, tier: Tier) -> Iterator[State]:
        return (one for one in self._states.values() if one.tier is tier and one.published)


class EvictsPending(KeptStates):
    def _evictable(self, tier: Tier) -> Iterator[State]:
        return (one for one in self._states.values() if one.tier is tier and not one.borrows)


class EvictsTheYoungest(KeptStates):
    def _evictable(self, tier: Tier) -> Iterator[State]:
        return reversed(list(super()._evictable(tier)))


class FindsTheWholePrompt(KeptStates):
    def look(self, prompt: Sequence[int], identity: bytes) -> Look:
        return super().look([*prompt, -1 % 2**32], identity)


class FindsUnderAnyIdentity(KeptStates):
    def look(self, prompt: Sequence[int], identity: bytes) -> Look:
        return super().look(prompt, b"one")


class FindsPending(KeptStates):
    def reserve(self, prompt: Sequence[int], at: int, identity: bytes, lane: int) -> int | None:
        state = super().reserve(prompt, at, identity, lane)
        if state is not None:
            self._states[state].published = True
        return state


class LosesASlot(KeptStates):
    def _leave(self, one: State, tier: Tier, slot: int) -> None:
        if tier is Tier.SHARED and slot == 1:
            self._book.drop(one.id)
        else:
            super()._leave(one, tier, slot)


class ForgetsTheBook(KeptStates):
    def _leave(self, one: State, tier: Tier, slot: int) -> None:
        if tier is Tier.SHARED:
            self._slots.give(slot)
        else:
            super()._leave(one, tier, slot)


class ChargesAWindow(KeptStates):
    def _buy(self, one: State, tier: Tier, before: int) -> bool:
        at, one.at = one.at, 18
        placed = super()._buy(one, tier, before)
        one.at = at
        return placed


class DropsTheBufferLate(KeptStates):
    def _forget(self, one: State) -> None:
        before = len(self._moves)
        super()._forget(one)
        self._moves[before:] = [m for m in self._moves[before:] if not isinstance(m, Drop)]


class ResumesWithoutTouching(KeptStates):
    def _touch(self, one: State) -> None:
        if not one.used:
            super()._touch(one)


class MakesRoomOfEverything(KeptStates):
    def make_room(self, count: int, near: int | None = None) -> bool:
        made = super().make_room(count, near)
        if made and count > 3:
            for one in list(self._evictable(Tier.SHARED)):
                self._evict(one)
        return made


class GivesUpTooEarly(KeptStates):
    def make_room(self, count: int, near: int | None = None) -> bool:
        return count <= self._book.free


class KeepsTwice(KeptStates):
    def reserve(self, prompt: Sequence[int], at: int, identity: bytes, lane: int) -> int | None:
        return super().reserve(prompt, at, identity + bytes([lane % 2]), lane)


class FreesSharedPages(PageBook):
    def _holders(self, page: int) -> int:
        return self._leased[page]


class KeepsOnePageLess(PageBook):
    def keep(self, state: int, pages: tuple[int, ...]) -> None:
        super().keep(state, pages[:-1])


STORES = {
    EvictsBorrowed: SLOTS,
    EvictsPending: SLOTS,
    EvictsTheYoungest: SLOTS,
    FindsTheWholePrompt: SLOTS,
    FindsUnderAnyIdentity: SLOTS,
    FindsPending: SLOTS,
    LosesASlot: SLOTS,
    ForgetsTheBook: SLOTS,
    ChargesAWindow: BUDGET,
    DropsTheBufferLate: BUDGET,
    ResumesWithoutTouching: SLOTS,
    MakesRoomOfEverything: SLOTS,
    GivesUpTooEarly: SLOTS,
    KeepsTwice: SLOTS,
}


@pytest.mark.parametrize(
    ("fault", "places"), STORES.items(), ids=[fault.__name__ for fault in STORES]
)
def test_a_planted_fault_is_found(fault: type[KeptStates], places: Places) -> None:
    with pytest.raises((AssertionError, KeyError)):
        follow(3_000, 1, places, store=fault)


class TakesTheLastClass(PageBook):
    def roomiest(self, count: int = 0, near: int | None = None) -> int:
        if near is not None and count <= self.free_in(near):
            return near
        return max(range(self.classes), key=lambda home: (self.free_in(home), home))


class ForgetsItsHome(KeptStates):
    def home(self, state: int) -> int:
        return 0


class SumsTheClasses(KeptStates):
    def make_room(self, count: int, near: int | None = None) -> bool:
        return self._book.stats().free >= count or super().make_room(count, near)


class ChargesEveryRankTheSame(KeptStates):
    def _sizes(self, one: State) -> list[int]:
        return [self._state_bytes(one.at)] * self._book.classes


class ChargesTheWrongRank(KeptStates):
    def _sizes(self, one: State) -> list[int]:
        return super()._sizes(one)[::-1]


@pytest.mark.parametrize(
    ("fault", "places"),
    [
        (ForgetsItsHome, SLOTS),
        (SumsTheClasses, SLOTS),
        (ChargesEveryRankTheSame, BUDGET),
        (ChargesTheWrongRank, BUDGET),
    ],
)
def test_a_planted_fault_of_the_classes_is_found(fault: type[KeptStates], places: Places) -> None:
    """J11 and J12: a home that is ignored, and the sum of the classes in place of one."""
    with pytest.raises((AssertionError, KeyError)):
        follow(3_000, 1, places, classes=2, store=fault)


def test_a_tie_that_goes_to_the_last_class_is_found() -> None:
    with pytest.raises(AssertionError):
        follow(1_000, 1, SLOTS, classes=2, book=TakesTheLastClass)


@pytest.mark.parametrize("fault", [FreesSharedPages, KeepsOnePageLess])
def test_a_planted_fault_of_the_book_is_found(fault: type[PageBook]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        follow(3_000, 1, SLOTS, book=fault)
