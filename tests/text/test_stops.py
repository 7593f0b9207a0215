"""A stop string spread over pieces of text is found, and nothing of it is passed on (CO-17)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamglm.text.stops import StopStrings, held_length

LETTERS = st.text("ab", max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3)


def run(parts: Iterable[str], stops: list[str]) -> tuple[str, bool]:
    words = StopStrings(stops)
    text = "".join([words.feed(part) for part in parts])
    return text + words.finish(), words.matched


def expected(text: str, stops: list[str]) -> tuple[str, bool]:
    """The first end of a stop string; of those that end there, the longest."""
    for end in range(1, len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)], True
    return text, False


@given(text=LETTERS, stops=STOPS)
def test_one_character_at_a_time_gives_the_first_completed(text: str, stops: list[str]) -> None:
    assert run(text, stops) == expected(text, stops)


@given(text=LETTERS, stops=STOPS, cuts=st.lists(st.integers(0, 12)))
def test_every_way_to_cut_gives_the_same(text: str, stops: list[str], cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    parts = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert run(parts, stops) == expected(text, stops)


@given(text=LETTERS, stops=STOPS)
def test_held_back_is_the_longest_partial_match(text: str, stops: list[str]) -> None:
    if any(stop in text for stop in stops):
        return
    beginnings = [stop[:k] for stop in stops for k in range(len(stop))]
    longest = max(len(beginning) for beginning in beginnings if text.endswith(beginning))
    assert held_length(text, stops) == longest


@pytest.mark.parametrize(
    ("text", "stops", "left"),
    [
        ("one two three", ["two"], "one "),
        ("one two three", ["three", "two"], "one "),
        ("abc", ["b", "abc"], "a"),  # "b" is completed first
        ("xab", ["b", "ab"], "x"),  # completed together: the longer one
        ("end", ["end"], ""),
    ],
)
def test_which_of_several_wins(text: str, stops: list[str], left: str) -> None:
    assert run([text], stops) == run(text, stops) == (left, True)


def test_text_after_a_match_is_dropped() -> None:
    words = StopStrings(["."])
    assert [words.feed("a.b"), words.feed("c"), words.finish()] == ["a", "", ""]


def test_a_beginning_that_never_completes_arrives_at_the_end() -> None:
    assert run("the end\u2603", ["end\u2603!"]) == ("the end\u2603", False)
