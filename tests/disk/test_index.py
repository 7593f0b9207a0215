"""The index: what is missing, found, evicted first, and healed; counted from scratch by `check`."""

from __future__ import annotations

import random

import pytest

from streamglm.disk.index import Index
from streamglm.disk.nouns import Missing
from streamglm.disk.record import Kind
from support.records import IDENTITY, ROOT, keys_of, tokens


def arrive(index: Index, missing: Missing, now: float = 1.0) -> None:
    rows = index.rows(missing, [100] * len(missing.pages), 50 if missing.fixed else 0, now)
    index.arrive(missing, *rows)


def add(index: Index, prompt: list[bytes], now: float = 1.0) -> None:
    missing = index.plan(prompt, ROOT)
    assert missing is not None
    arrive(index, missing, now)


def test_a_longer_state_writes_only_what_is_new() -> None:
    index, keys = Index(IDENTITY), keys_of(tokens(80))
    first = index.plan(keys[:4], ROOT)
    assert first is not None
    assert (first.pages, first.fixed) == ([0, 1, 2, 3], True)
    second = index.plan(keys[:6], ROOT)
    assert second is not None
    assert (second.pages, second.fixed) == ([4, 5], True)
    assert index.plan(keys[:4], ROOT) is None
    arrive(index, second)
    assert index.find(keys, 9) is None, "the first pages are not there yet"
    arrive(index, first)
    found = index.find(keys, 9)
    assert found is not None
    assert found.depth == 6
    index.check()


def test_a_lost_page_hides_what_stands_on_it_until_it_is_written_again() -> None:
    index, keys = Index(IDENTITY), keys_of(tokens(80))
    add(index, keys[:3])
    add(index, keys[:7])
    (gone,) = index.lose(keys[4], Kind.PAGE)
    assert (gone.key, gone.size) == (keys[4], 100)
    found = index.find(keys, 9)
    assert found is not None
    assert found.depth == 3
    healed = index.plan(keys[:7], ROOT)
    assert healed is not None
    assert (healed.pages, healed.fixed) == ([4], False)
    arrive(index, healed)
    found = index.find(keys, 9)
    assert found is not None
    assert found.depth == 7
    index.check()


def test_a_loaded_hole_is_healed_too() -> None:
    """After a restart nobody knows what lay below a page that is gone."""
    index, keys = Index(IDENTITY), keys_of(tokens(80))
    missing = index.plan(keys[:7], ROOT)
    assert missing is not None
    pages, state = index.rows(missing, [100] * 7, 50, 1.0)
    assert state is not None
    again = Index(IDENTITY)
    gone = again.load([row for row in pages if row.key != keys[4]], [state])
    assert {one.key for one in gone} == set(keys[:4]), "nothing that is known stands on them"
    healed = again.plan(keys[:7], ROOT)
    assert healed is not None
    assert (healed.pages, healed.fixed) == ([0, 1, 2, 3, 4], False)
    arrive(again, healed)
    found = again.find(keys, 9)
    assert found is not None
    assert found.depth == 7
    again.check()


def test_removal_takes_what_nothing_else_stands_on() -> None:
    index = Index(IDENTITY)
    one, two = keys_of(tokens(64)), keys_of(tokens(32) + tokens(32, 2))
    assert one[:4] == two[:4]
    add(index, one)
    add(index, two)
    stored = index.find(one, 8)
    assert stored is not None
    assert {gone.key for gone in index.remove(stored)} == set(one[4:])
    index.check()
    other = index.find(two, 8)
    assert other is not None
    assert {gone.key for gone in index.remove(other)} == set(two)
    assert (index.bytes, len(index)) == (0, 0)


def test_a_turn_joins_its_conversation_and_a_fork_begins_one() -> None:
    index = Index(IDENTITY)
    first = keys_of(tokens(64))
    add(index, first[:3])
    add(index, first[:6])
    add(index, keys_of(tokens(24) + tokens(40, 2)))
    found = index.conversations()
    assert sorted([one.depth for one in talk.states] for talk in found) == [[3, 6], [8]]


def test_foreign_states_go_first_then_the_oldest_and_never_a_borrowed_one() -> None:
    index = Index(IDENTITY)
    for seed in (1, 2, 3):
        add(index, keys_of(tokens(16, seed)), float(seed))
    pages, states = [], []
    for stored in index.states():
        missing = Missing(stored.node, [0, 1], fixed=True)
        rows, state = index.rows(missing, [100, 100], 50, stored.used)
        assert state is not None
        pages += rows
        states.append(state)
    other = Index(b"another identity")
    add(other, keys_of(tokens(16, 9)), 99.0)
    other.load(pages, states)
    order = []
    borrowed = other.oldest()
    assert borrowed is not None
    other.borrow(borrowed)
    while (oldest := other.oldest()) is not None:
        assert oldest is not borrowed
        order.append(oldest.used)
        other.remove(oldest)
    assert borrowed.used == min(state.used for state in states)
    assert order[-1] == 99.0
    assert order[:-1] == sorted(order[:-1])
    other.check()


@pytest.mark.parametrize("seed", range(6))
def test_random_operations_leave_the_index_right(seed: int) -> None:
    draw, index = random.Random(seed), Index(IDENTITY)
    prompts = [keys_of(tokens(24, s % 3) + tokens(40, s)) for s in range(8)]
    open_: list[Missing] = []
    for step in range(600):
        match draw.randrange(6):
            case 0 | 1:
                missing = index.plan(draw.choice(prompts)[: draw.randrange(1, 9)], ROOT)
                if missing is not None:
                    open_.append(missing)
            case 2 if open_:
                arrive(index, open_.pop(draw.randrange(len(open_))), float(step))
            case 3 if open_ and draw.random() < 0.3:
                index.fail(open_.pop(draw.randrange(len(open_))))
            case 4 if (oldest := index.oldest()) is not None and draw.random() < 0.4:
                index.remove(oldest)
            case 5 if draw.random() < 0.3:
                kind = draw.choice(list(Kind))
                index.lose(draw.choice(draw.choice(prompts)), kind)
        index.check()
        for keys in prompts:
            found = index.find(keys, 8)
            assert found is None or found.node.state is found
    for missing in open_:
        index.fail(missing)
    while (oldest := index.oldest()) is not None:
        index.remove(oldest)
    index.check()
    assert index.bytes == 0
