"""Kept states and the book over ten thousand random operations beside a simple model of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from streamglm.pool.kept import KeptStates
from streamglm.pool.pages import PageBook
from streamglm.pool.states import Look, State, Tier
from streamglm.step import Drop
from support.kept_model import Places, follow, state_bytes

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
    counts = follow(10_000, 1, places, shuffle=2).counts
    assert sum(counts.hits.values()) > 300
    assert min(counts.kept, counts.known, counts.abandoned) > 100
    assert sum(counts.evicted.values()) > 100
    if places.slots and places.host:
        assert min(counts.demoted, counts.hits[Tier.HOST]) > 100


def test_nothing_is_kept_where_there_is_no_place() -> None:
    counts = follow(1_000, 1, Places()).counts
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


@pytest.mark.parametrize("fault", [FreesSharedPages, KeepsOnePageLess])
def test_a_planted_fault_of_the_book_is_found(fault: type[PageBook]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        follow(3_000, 1, SLOTS, book=fault)
