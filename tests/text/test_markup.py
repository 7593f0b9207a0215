"""Reasoning and answer are told apart, however the text is cut (CO-22, CO-23)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamglm.text.markup import CLOSE, Kind, Markup, Piece

# texts in which tags and beginnings of tags are frequent
TEXTS = st.lists(st.sampled_from(["</think>", "</thi", "<", "/", "think>", "a", "\n"])).map("".join)


def split(parts: Iterable[str], *, thinking: bool = True) -> tuple[str, str]:
    markup = Markup(thinking=thinking)
    pieces: list[Piece] = []
    for part in parts:
        pieces += markup.feed(part)
    pieces += markup.finish()
    return tuple(  # type: ignore[return-value]
        "".join(piece.text for piece in pieces if piece.kind is kind)
        for kind in (Kind.REASONING, Kind.CONTENT)
    )


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("plan a</think>answer b", "plan a", "answer b"),
        ("x</thi y</think>z", "x</thi y", "z"),
        ("a\n</think>\n\nb", "a\n", "\n\nb"),
        ("</think>b", "", "b"),
        ("a</think>b</think>c", "a", "b</think>c"),
        ("<</think>b", "<", "b"),
        ("never closed </thin", "never closed </thin", ""),
        ("", "", ""),
    ],
)
def test_text_splits_at_the_first_closing_tag(text: str, reasoning: str, content: str) -> None:
    assert split([text]) == (reasoning, content)
    assert split(text) == (reasoning, content)  # one character at a time


@given(text=TEXTS, cuts=st.lists(st.integers(0, 60)), thinking=st.booleans())
def test_every_way_to_cut_gives_the_same(text: str, cuts: list[int], thinking: bool) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    parts = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert split(parts, thinking=thinking) == split([text], thinking=thinking)


@given(text=TEXTS)
def test_no_more_than_a_beginning_of_the_tag_is_held_back(text: str) -> None:
    markup, out = Markup(thinking=True), 0
    for place, character in enumerate(text, 1):
        out += sum(len(piece.text) for piece in markup.feed(character))
        if not markup.thinking:
            return
        held = text[out:place]
        assert CLOSE.startswith(held)
        assert held != CLOSE


def test_without_a_think_block_everything_is_content() -> None:
    assert split("a</think>b", thinking=False) == ("", "a</think>b")
    assert split("<think>a", thinking=False) == ("", "<think>a")
