"""Marks of a prompt, and the memory of what was seen."""

from __future__ import annotations

import random

import pytest

from streamglm.pool.marks import Seen, last_mark, marks
from streamglm.pool.prefix import chain

ROWS = 64


@pytest.mark.parametrize(
    ("prompt", "mark"),
    [(1, 0), (63, 0), (64, 0), (65, 64), (128, 64), (129, 128), (2_000, 1_984)],
)
def test_the_last_mark_leaves_at_least_one_token(prompt: int, mark: int) -> None:
    """Fails when a prompt of whole pages is kept to its end: nothing would be left to compute."""
    assert last_mark(prompt, ROWS) == mark
    assert marks(prompt, (), ROWS) == ((mark,) if mark else ())


def test_turns_are_marked_at_the_boundary_before_them() -> None:
    """System up to 200, then user turns at 200, 700 and 1,500 of 2,000 tokens."""
    assert marks(2_000, (200, 700, 1_500), ROWS) == (192, 1_472, 1_984)


def test_a_mark_at_or_before_the_start_cannot_be_taken() -> None:
    assert marks(2_000, (200, 700, 1_500), ROWS, start=192) == (1_472, 1_984)
    assert marks(2_000, (200, 700, 1_500), ROWS, start=1_984) == ()


def test_what_an_earlier_prompt_had_too_is_marked() -> None:
    assert marks(2_000, (), ROWS, shared=650) == (640, 1_984)
    assert marks(2_000, (), ROWS, shared=2_000) == (1_984,)


def test_the_most_useful_marks_stay_when_they_are_too_many() -> None:
    asked = (2_000, (200, 700, 1_500), ROWS)
    assert marks(*asked, shared=650, most=4) == (192, 640, 1_472, 1_984)
    assert marks(*asked, shared=650, most=3) == (192, 1_472, 1_984)
    assert marks(*asked, shared=650, most=2) == (1_472, 1_984)
    assert marks(*asked, shared=650, most=1) == (1_984,)


def test_a_turn_on_a_boundary_is_its_own_mark() -> None:
    assert marks(300, (128,), ROWS) == (128, 256)


def test_random_marks_are_whole_pages_between_start_and_end() -> None:
    draw = random.Random(1)
    for _ in range(2_000):
        prompt = draw.randrange(1, 3_000)
        turns = sorted(draw.randrange(prompt) for _ in range(draw.randrange(6)))
        start = draw.randrange(0, prompt, ROWS) if prompt > ROWS else 0
        found = marks(
            prompt, turns, ROWS, start=start, shared=draw.randrange(prompt), most=draw.randrange(6)
        )
        assert list(found) == sorted(set(found))
        assert all(start < mark < prompt and mark % ROWS == 0 for mark in found)


def test_seen_counts_the_pages_that_an_earlier_prompt_had() -> None:
    seen = Seen()
    one = list(chain(b"", range(400), ROWS))
    assert seen.shared(one) == 0
    seen.add(one)
    assert seen.shared(one) == 6
    other = list(range(400))
    other[200] = 0
    assert seen.shared(list(chain(b"", other, ROWS))) == 3
    assert seen.shared([]) == 0


def test_seen_forgets_the_oldest_and_the_longest_first() -> None:
    seen = Seen(most=4)
    first, second = (list(chain(b"", range(base, base + 192), ROWS)) for base in (0, 1_000))
    seen.add(first)
    seen.add(second)
    assert len(seen) == 4
    assert seen.shared(second) == 3
    assert seen.shared(first) == 1
