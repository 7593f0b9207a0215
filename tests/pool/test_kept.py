"""Kept states that share pages, one behaviour a test: found, told why not, shared, evicted."""

from __future__ import annotations

import pytest

from streamglm.pool.kept import KeptStates
from streamglm.pool.pages import PageBook
from streamglm.pool.states import Miss, Tier
from streamglm.step import Restore
from support.kept_store import FIXED, ID, ROW, ROWS, Store, prompt, state_bytes


def test_the_longest_strict_prefix_is_found() -> None:
    """Fails when a state at the very end of a prompt is taken: no token would be left."""
    store = Store(slots=4)
    one = prompt(1, 40)
    for at in (8, 16, 24):
        store.keep(one, at)
    assert store.at(one) == 24
    assert store.at(one[:25]) == 24
    assert store.at(one[:24]) == 16
    assert store.at(one[:9]) == 8
    assert store.at(one[:8]) == 0


def test_one_other_token_before_the_mark_finds_the_mark_before_it() -> None:
    store = Store(slots=4)
    one = prompt(1, 40)
    store.keep(one, 8)
    store.keep(one, 24)
    edited = [*one[:13], 0, *one[14:]]
    assert store.at(edited) == 8


def test_another_identity_finds_nothing_and_is_told_so() -> None:
    store = Store(slots=4)
    store.keep(prompt(1), 8)
    look = store.kept.look(prompt(1), b"other")
    assert (look.state, look.at, look.miss) == (None, 0, Miss.IDENTITY)
    assert "another model, cache or salt" in look.line


def test_a_pending_state_is_found_by_nobody_and_says_who_fills_it() -> None:
    """Fails when a state is handed out while the lane that makes it is still writing."""
    store = Store(slots=4)
    one = prompt(1)
    store.begin(one, lane=3)
    state = store.kept.reserve(one, 12, ID, lane=3)
    assert state is not None
    look = store.kept.look([*one, 1], ID)
    assert (look.at, look.pending_at, look.pending_lane) == (0, 12, 3)
    store.kept.publish(state)
    look = store.kept.look([*one, 1], ID)
    assert (look.at, look.pending_at, look.pending_lane) == (12, 0, None)


def test_a_pending_state_shorter_than_what_is_kept_is_nothing_to_wait_for() -> None:
    store = Store(slots=4)
    one = prompt(1)
    store.keep(one, 12)
    store.begin(one, lane=3)
    store.kept.reserve(one, 8, ID, lane=3)
    assert store.kept.look([*one, 1], ID).pending_at == 0


def test_an_abandoned_state_leaves_nothing() -> None:
    store = Store(slots=1)
    one = prompt(1)
    store.begin(one)
    state = store.kept.reserve(one, 8, ID, lane=0)
    assert state is not None
    assert store.kept.pending(0) == [state]
    store.kept.abandon(state)
    store.book.release(0)
    store.check()
    assert store.at(one) == 0
    assert store.book.free == 40
    assert store.kept.stats().slots_free == 1


@pytest.mark.parametrize(
    ("asked", "miss"),
    [
        (prompt(1, 4), Miss.SHORT),
        (prompt(2), Miss.DIFFERS),
        ([*prompt(1, 6), 0, 0, 0, 0], Miss.DIFFERS),
    ],
)
def test_a_miss_has_a_reason_and_a_line(asked: list[int], miss: Miss) -> None:
    store = Store(slots=4)
    store.keep(prompt(1), 8)
    look = store.kept.look(asked, ID)
    assert look.miss is miss
    assert f"computed all {len(asked)} tokens: " in look.line
    store.kept.missed(look)
    assert store.kept.counts.misses == {miss: 1}


def test_a_prompt_that_parts_before_the_mark_says_where() -> None:
    store = Store(slots=4)
    store.keep(prompt(1), 8)
    assert "in the 6 tokens" in store.kept.look([*prompt(1, 6), 0, 0, 0, 0], ID).line


def test_a_hit_says_how_much_longer_the_prompts_stay_alike() -> None:
    store = Store(slots=4)
    one = prompt(1, 33)
    store.keep(one, 8)
    store.keep(one, 32)
    edited = [*one[:27], 0, *one[28:]]
    assert "alike to 27" in store.kept.look(edited, ID).line
    assert "alike" not in store.kept.look(one, ID).line


def test_nothing_kept_and_nothing_to_keep_in_are_told_apart() -> None:
    assert Store(slots=1).kept.look(prompt(1), ID).miss is Miss.EMPTY
    off = Store()
    assert off.kept.off
    assert off.kept.look(prompt(1), ID).miss is Miss.OFF
    off.begin(prompt(1))
    assert off.kept.reserve(prompt(1), 8, ID, lane=0) is None


def test_a_prompt_whose_state_was_evicted_is_told_so() -> None:
    store = Store(slots=1)
    store.keep(prompt(1), 8)
    store.keep(prompt(2), 8)
    look = store.kept.look(prompt(1), ID)
    assert look.miss is Miss.EVICTED
    assert "evicted" in look.line


def test_a_state_at_the_very_end_of_a_prompt_was_not_evicted_from_it() -> None:
    """The state at 8 came and went; a prompt of 8 tokens could never have used it."""
    store = Store(slots=1)
    store.keep(prompt(1), 8)
    store.keep(prompt(2), 8)
    assert store.kept.look(prompt(1, 9), ID).miss is Miss.EVICTED
    assert store.kept.look(prompt(1, 8), ID).miss is Miss.DIFFERS


def test_only_so_many_evictions_are_remembered() -> None:
    book = PageBook(40)
    kept = KeptStates(book, ROWS, state_bytes=state_bytes, slots=1, ghosts=2)
    for start in range(5):
        book.lease(0, 2)
        state = kept.reserve(prompt(start), 8, ID, lane=0)
        assert state is not None
        kept.publish(state)
        book.release(0)
    found = [kept.look(prompt(start), ID).miss for start in range(4)]
    assert found == [Miss.DIFFERS, Miss.DIFFERS, Miss.EVICTED, Miss.EVICTED]


def test_the_version_moves_when_a_look_may_answer_otherwise() -> None:
    store = Store(slots=1)
    seen = [store.kept.version]
    store.begin(prompt(1))
    state = store.kept.reserve(prompt(1), 8, ID, lane=0)
    assert state is not None
    seen.append(store.kept.version)
    store.kept.publish(state)
    seen.append(store.kept.version)
    store.kept.clear()
    seen.append(store.kept.version)
    assert seen == sorted(set(seen))


# -- sharing


def test_a_shared_state_costs_its_slot_and_no_page_of_its_own() -> None:
    """Sixteen pages kept by a lane that still runs: the pool gives nothing."""
    store = Store(slots=4)
    one = prompt(1, 65)
    store.begin(one)
    free = store.book.free
    state = store.fill(one, 64)
    assert store.book.free == free
    assert store.kept.stats().bytes[Tier.SHARED] == FIXED
    store.book.release(0)
    assert store.book.kept_pages(state) == tuple(range(16))
    assert store.kept.stats().bytes[Tier.SHARED] == FIXED + 64 * ROW


def test_heirs_lease_the_states_pages_and_outlive_its_eviction() -> None:
    """Two heirs of one state, the donor evicted: its pages stay until the last heir goes."""
    store = Store(slots=4)
    one = prompt(1)
    state = store.keep(one, 12)
    pages = store.kept.shared_pages(state)
    for lane in (1, 2):
        store.kept.borrow(state)
        lease = store.book.lease(lane, 2, pages)
        assert lease[:3] == pages
        assert store.kept.resume(state) == Restore(state, slot=0, at=12)
        store.kept.unborrow(state)
    store.kept.clear()
    store.check()
    assert not set(pages) & set(store.book.lease(3, store.book.free))
    store.book.release(3)
    assert store.book.release(1) == 2
    assert store.book.release(2) == 2 + 3
    store.check()


def test_the_same_prompt_is_kept_once() -> None:
    store = Store(slots=4)
    state = store.keep(prompt(1), 8)
    store.begin(prompt(1))
    assert store.kept.reserve(prompt(1), 8, ID, lane=0) is None
    assert store.kept.counts.known == 1
    assert store.kept.look(prompt(1), ID).state == state


def test_the_same_prompt_is_filled_by_one_lane() -> None:
    store = Store(slots=4)
    for lane in (0, 1):
        store.begin(prompt(1), lane=lane)
    assert store.kept.reserve(prompt(1), 8, ID, lane=0) is not None
    assert store.kept.reserve(prompt(1), 8, ID, lane=1) is None


def test_the_least_recently_used_state_gives_its_slot() -> None:
    store = Store(slots=2)
    first, second = store.keep(prompt(1), 8), store.keep(prompt(2), 8)
    store.kept.borrow(first)
    store.kept.resume(first)
    store.kept.unborrow(first)
    store.keep(prompt(3), 8)
    assert store.at(prompt(1)) == 8
    assert store.at(prompt(2)) == 0
    assert store.kept.counts.evicted == {Tier.SHARED: 1}
    assert second not in store.kept._states


def test_a_borrowed_state_is_never_evicted() -> None:
    """Fails when eviction looks at age alone."""
    store = Store(slots=1)
    state = store.keep(prompt(1), 8)
    store.kept.borrow(state)
    store.begin(prompt(2))
    assert store.kept.reserve(prompt(2), 8, ID, lane=0) is None
    assert store.kept.counts.refused == 1
    assert not store.kept.make_room(40)
    store.kept.clear()
    assert store.at(prompt(1)) == 8
    store.kept.unborrow(state)
    assert store.kept.reserve(prompt(2), 8, ID, lane=0) is not None
    assert store.at(prompt(1)) == 0


def test_a_state_given_back_too_often_is_an_error() -> None:
    store = Store(slots=1)
    state = store.keep(prompt(1), 8)
    with pytest.raises(AssertionError, match="more often"):
        store.kept.unborrow(state)


def test_a_resume_without_a_borrow_is_an_error() -> None:
    store = Store(slots=1)
    state = store.keep(prompt(1), 8)
    with pytest.raises(AssertionError, match="not borrowed"):
        store.kept.resume(state)


def test_room_is_made_oldest_first_and_no_more_than_is_needed() -> None:
    store = Store(pages=12, slots=8)
    for start in range(3):
        store.keep(prompt(start), 16)
    assert store.book.free == 0
    assert store.kept.make_room(5)
    assert [store.at([*prompt(start), 0]) for start in range(3)] == [0, 0, 16]
    store.check()


def test_room_that_cannot_be_made_evicts_nothing() -> None:
    store = Store(pages=12, slots=8)
    store.begin(prompt(0))
    store.keep(prompt(1), 16)
    assert not store.kept.make_room(8)
    assert store.at([*prompt(1), 0]) == 16
    assert store.kept.make_room(7)


def test_a_state_that_would_free_nothing_is_left_alone() -> None:
    """The oldest state's pages are leased by a running lane: evicting it would help nobody."""
    store = Store(pages=12, slots=8)
    store.begin(prompt(0), extra=0)
    store.fill(prompt(0), 16)
    store.keep(prompt(1), 16)
    assert store.kept.make_room(8)
    assert store.at([*prompt(0), 0]) == 16
    assert store.at([*prompt(1), 0]) == 0


def test_pages_that_only_kept_states_share_come_free_with_the_last_of_them() -> None:
    store = Store(pages=12, slots=8)
    one = prompt(1, 48)
    store.begin(one, extra=0)
    store.fill(one, 16)
    store.fill(one, 48 - 4)
    store.book.release(0)
    assert store.book.free == 1
    assert store.kept.make_room(12)
    store.check()


def test_a_resume_prefers_the_class_of_its_states_pages() -> None:
    """Two classes; the home is where the rows lie, and room is made there and nowhere else."""
    store = Store(pages=22, slots=8, classes=2)
    store.begin(prompt(1), lane=0)
    store.begin(prompt(2), lane=1)
    homes = {start: store.fill(prompt(start), 16, lane=start - 1) for start in (1, 2)}
    assert [store.kept.home(state) for state in homes.values()] == [0, 1]
    for lane in (0, 1):
        store.book.release(lane)
    assert store.kept.make_room(10, near=1)
    assert store.at([*prompt(1), 0]) == 16
    assert store.at([*prompt(2), 0]) == 0
