"""The policy: as many drafts as make the most tokens a second, by numbers that it is given."""

from __future__ import annotations

import random
from itertools import product

import pytest

from streamglm.drafts.drafter import Source
from streamglm.drafts.policy import Acceptance, Chances, Policy, Seconds

FLAT = 0.004
"""Seconds of a window of one row."""


def policy(growth: float, *, window: int = 32, lanes: int = 1, chain: float = 0.0) -> Policy:
    """One that has measured every size: each more row adds `growth` of a row's seconds, each draft
    of the next-token layer `chain`."""
    made = Policy(window)
    for extra in range(window - lanes + 1):
        made.measured(lanes, lanes + extra, FLAT * (1.0 + growth * extra))
    for depth in range(1, 16):
        made.drafted(lanes, depth, FLAT * chain * depth)
    return made


def even(chance: float, count: int) -> list[float]:
    """Drafts of which each comes true with the same chance after the one before it."""
    return [chance**place for place in range(1, count + 1)]


def rate(chances: tuple[float, ...], counts: tuple[int, ...], growth: float) -> float:
    """Tokens a second, by the definition."""
    tokens = float(len(chances))
    for chance, count in zip(chances, counts, strict=True):
        tokens += sum(chance**place for place in range(1, count + 1))
    return tokens / (FLAT * (1.0 + growth * sum(counts)))


@pytest.mark.parametrize("growth", [0.02, 0.1, 0.3, 0.8])
def test_it_takes_what_a_search_of_all_choices_takes(growth: float) -> None:
    draw = random.Random(int(growth * 100))
    for _ in range(20):
        chances = tuple(draw.random() for _ in range(3))
        made = policy(growth, lanes=3)
        found = made.take([even(chance, 5) for chance in chances])
        best = max(product(range(6), repeat=3), key=lambda counts: rate(chances, counts, growth))
        assert rate(chances, tuple(found), growth) == pytest.approx(rate(chances, best, growth))


def test_no_draft_is_taken_where_none_can_pay() -> None:
    made = policy(0.5)
    assert made.take([even(0.3, 15)]) == [0]
    assert made.take([even(0.95, 15)]) != [0]
    assert made.take([[]]) == [0]


def test_what_is_asked_pays_for_its_drafting_too() -> None:
    cheap, dear = policy(0.1, chain=0.05), policy(0.1, chain=0.8)
    assert cheap.ask([even(0.8, 15)])[0] > dear.ask([even(0.8, 15)])[0]
    assert dear.ask([even(0.5, 15)]) == [0]
    assert policy(0.1, chain=0.8).take([even(0.5, 15)]) != [0], "drafts that are there cost no more"


@pytest.mark.parametrize("lanes", [1, 7, 30, 32])
def test_a_window_is_never_more_than_full(lanes: int) -> None:
    made = policy(0.0, lanes=lanes)
    found = made.take([even(0.99, 15)] * lanes)
    assert lanes + sum(found) <= 32
    assert max(found) <= 15


def test_equal_numbers_give_equal_choices() -> None:
    """No clock, no chance: the same measurements and the same windows, twice."""

    def play() -> list[list[int]]:
        draw, made, chosen = random.Random(3), Policy(32), []
        for _ in range(200):
            lanes = draw.randrange(1, 6)
            offers = [even(draw.random(), draw.randrange(8)) for _ in range(lanes)]
            counts = made.take(offers)
            chosen += [counts, made.ask(offers)]
            made.measured(lanes, lanes + sum(counts), draw.uniform(0.003, 0.01))
            made.drafted(lanes, 1 + max(counts), draw.uniform(0.0005, 0.004))
        return chosen

    assert play() == play()


def test_what_was_never_measured_is_tried_once_and_then_known() -> None:
    """A window of two rows costs twice as much here: tried, it is not taken again."""
    made = Policy(32)
    made.measured(1, 1, FLAT)
    assert made.take([even(0.5, 1)]) == [1]
    made.measured(1, 2, 2.0 * FLAT)
    assert made.take([even(0.5, 1)]) == [0]


def test_one_slow_window_is_not_believed_whole() -> None:
    seconds = Seconds(0.1)
    for _ in range(20):
        seconds.add(1, 0, FLAT)
    seconds.add(1, 0, 1000.0 * FLAT)
    guess = seconds.guess(1, 0)
    assert guess is not None
    assert guess < 1.3 * FLAT


def test_between_two_sizes_lies_a_guess_between() -> None:
    seconds = Seconds(0.1)
    assert seconds.guess(2, 1) is None
    seconds.add(1, 0, 4.0)
    seconds.add(1, 4, 8.0)
    assert seconds.guess(1, 1) == pytest.approx(5.0)
    assert seconds.guess(1, 8) == pytest.approx(8.0 * 1.8 / 1.4)
    assert seconds.guess(2, 1) is None


def test_acceptance_follows_what_comes_true() -> None:
    one = Acceptance(lambda place: 0.5, 0.9, 0.98)
    assert one.chance(0) == one.chance(9) == 0.5
    for _ in range(20):
        one.add(4, 4)
    assert min(one.offer(4)) > 0.5
    for _ in range(40):
        one.add(4, 0)
    assert one.chance(0) < 0.2
    for _ in range(300):
        one.idle()
    assert one.chance(0) == pytest.approx(0.5, abs=0.02)


def test_places_of_a_run_are_told_apart() -> None:
    """The first draft is always right and the second never: one is taken, though two are not."""
    one = Acceptance(lambda place: 0.5, 0.9, 0.98)
    for _ in range(50):
        one.add(3, 1)
    assert one.chance(0) > 0.9
    assert one.chance(1) < 0.2
    assert one.chance(2) == 0.5
    assert policy(0.3).take([one.offer(3)]) == [1]


def test_a_new_reply_begins_with_what_others_have_shown() -> None:
    engine = Chances()
    for _ in range(100):
        engine.add(Source.CHAIN, 1, 0)
    fresh = Chances(engine)
    assert fresh.of(Source.CHAIN).chance(0) == engine.of(Source.CHAIN).chance(0) < 0.1
    assert fresh.of(Source.QUOTE).chance(0) == Chances().of(Source.QUOTE).chance(0)
    for _ in range(20_000):
        engine.idle()
    assert fresh.of(Source.CHAIN).chance(0) > 0.5, "what nobody tries is tried again one day"
