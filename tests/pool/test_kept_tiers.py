"""Kept states that are copied, and those that leave the device: bytes, moves and order."""

from __future__ import annotations

from streamglm.model.shapes import glm_5_3_flash
from streamglm.pool.layout import RowFormat
from streamglm.pool.states import Tier
from streamglm.step import Demote, Drop, Restore, Save
from support.kept_store import FIXED, ID, ROW, Store, prompt, state_bytes


def test_a_copied_states_bytes_follow_its_mark() -> None:
    """Slope one row a token, and one fixed part: fails when a window is charged."""
    sizes = []
    for at in (4, 8, 32):
        store = Store(budget=10_000)
        store.keep(prompt(1, 40), at)
        sizes.append(store.kept.stats().bytes[Tier.COPIED])
    assert sizes == [FIXED + at * ROW for at in (4, 8, 32)]


def test_a_copied_state_of_the_real_shape_at_100k_tokens_takes_one_and_a_third_gb() -> None:
    shape = glm_5_3_flash().cache_shape(RowFormat.BF16, world=3)
    at = 195 * 512
    assert shape.kept_bytes(at) == at * 13_056 + shape.slot_bytes
    assert 1.35e9 < shape.kept_bytes(at) < 1.36e9


def test_a_copied_state_holds_no_page_and_its_heir_leases_all_of_them() -> None:
    store = Store(budget=1_000)
    one = prompt(1)
    store.begin(one)
    state = store.kept.reserve(one, 12, ID, lane=0)
    assert state is not None
    assert store.kept.save(state) == Save(state, 0, -1, False, 12)
    store.kept.publish(state)
    store.book.release(0)
    assert store.book.free == 40
    assert store.kept.shared_pages(state) == ()
    store.kept.borrow(state)
    assert store.kept.resume(state) == Restore(state, -1, 12)


def test_a_budget_holds_the_youngest_that_fit() -> None:
    store = Store(budget=2 * state_bytes(8))
    for start in range(5):
        store.keep(prompt(start), 8)
    assert [store.at(prompt(start)) for start in range(5)] == [0, 0, 0, 8, 8]
    assert [move for move in store.kept.moves() if isinstance(move, Drop)] == [
        Drop(0),
        Drop(1),
        Drop(2),
    ]
    assert store.kept.moves() == ()


def test_a_state_larger_than_the_budget_evicts_nobody() -> None:
    store = Store(budget=state_bytes(8))
    store.keep(prompt(1), 8)
    store.begin(prompt(2))
    assert store.kept.reserve(prompt(2), 12, ID, lane=0) is None
    assert store.at(prompt(1)) == 8


def test_what_leaves_the_device_goes_to_host_memory_and_is_found_there() -> None:
    store = Store(slots=1, host=10_000)
    first = store.keep(prompt(1), 12)
    pages = store.kept.shared_pages(first)
    store.keep(prompt(2), 12)
    assert store.kept.moves() == (Demote(first, slot=0, at=12, pages=pages),)
    assert store.at(prompt(1)) == 12
    assert store.kept.shared_pages(first) == ()
    store.kept.borrow(first)
    assert store.kept.resume(first) == Restore(first, -1, 12)
    assert store.kept.counts.hits == {Tier.HOST: 1}
    assert store.kept.stats().bytes[Tier.HOST] == state_bytes(12)


def test_pages_of_a_demoted_state_are_free_at_once() -> None:
    store = Store(pages=8, slots=4, host=10_000)
    store.keep(prompt(1), 16)
    assert store.kept.make_room(8)
    assert store.book.free == 8
    assert store.at([*prompt(1), 0]) == 16


def test_host_memory_drops_what_is_older_than_what_comes() -> None:
    store = Store(slots=1, host=2 * state_bytes(8))
    states = [store.keep(prompt(start), 8) for start in range(4)]
    assert [store.at(prompt(start)) for start in range(4)] == [0, 8, 8, 8]
    assert store.kept.moves()[-2:] == (Drop(states[0]), Demote(states[2], 0, 8, (0, 1)))


def test_host_memory_does_not_drop_what_is_younger_than_what_comes() -> None:
    """A state resumed from host memory is younger than one that leaves its slot."""
    store = Store(slots=1, host=state_bytes(8))
    first = store.keep(prompt(1), 8)
    store.keep(prompt(2), 8)
    store.kept.borrow(first)
    store.kept.resume(first)
    store.kept.unborrow(first)
    store.keep(prompt(3), 8)
    assert [store.at(prompt(start)) for start in (1, 2, 3)] == [8, 0, 8]


def test_without_any_cache_on_the_device_states_go_to_host_memory() -> None:
    store = Store(host=1_000)
    store.begin(prompt(1))
    state = store.kept.reserve(prompt(1), 8, ID, lane=0)
    assert state is not None
    assert store.kept.save(state).host
    store.kept.publish(state)
    states = store.kept.stats().states
    assert states == dict.fromkeys(Tier, 0) | {Tier.HOST: 1}


def test_a_copied_state_is_demoted_from_its_buffer() -> None:
    store = Store(budget=state_bytes(8), host=10_000)
    first = store.keep(prompt(1), 8)
    store.keep(prompt(2), 8)
    assert store.kept.moves() == (Demote(first, -1, 8, ()),)
    store.kept.clear()
    assert {move.state for move in store.kept.moves() if isinstance(move, Drop)} == {0, 1}
    store.check()
    assert store.kept.stats().bytes[Tier.HOST] == 0
