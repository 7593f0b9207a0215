"""Ids to pieces: however the rounds fall, the same text, the same ids used."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamglm.text.assemble import Assembler
from streamglm.text.markup import Kind, Piece
from streamglm.text.tokenizer import Tokenizer
from streamglm.text.tools import Tool

Told = tuple[str, str, int, bool, int]


def tell(assembler: Assembler, rounds: Sequence[Sequence[int]]) -> Told:
    """(reasoning, content, ids used, stopped, reasoning tokens)."""
    pieces: list[Piece] = []
    used = 0
    for ids in rounds:
        found, count = assembler.feed(ids)
        assert all(a.kind is not b.kind for a, b in itertools.pairwise(found))
        pieces += found
        used += count
        if assembler.stopped:
            break
    pieces += assembler.finish()
    reasoning, content = (
        "".join(piece.text for piece in pieces if piece.kind is kind)
        for kind in (Kind.REASONING, Kind.CONTENT)
    )
    return reasoning, content, used, assembler.stopped, assembler.reasoning_tokens


def rounds_of(ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    return [ids[a:b] for a, b in itertools.pairwise(edges)]


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(st.sampled_from(["</think>", "</thi", "stop", "sto", "🦉", "早", "a ", "\n"])),
    cuts=st.lists(st.integers(0, 60)),
    thinking=st.booleans(),
    cut_at=st.integers(0, 60),
)
def test_every_way_to_cut_ids_into_rounds_gives_the_same(
    tokenizer: Tokenizer, text: list[str], cuts: list[int], thinking: bool, cut_at: int
) -> None:
    ids = tokenizer.encode("".join(text))[:cut_at]

    def told(rounds: Sequence[Sequence[int]]) -> Told:
        return tell(Assembler(tokenizer, thinking=thinking, stops=("stop", "aa")), rounds)

    one_by_one = told([[token] for token in ids])
    assert told(rounds_of(ids, cuts)) == one_by_one == told([ids])


def test_stops_are_not_looked_for_in_reasoning(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("halt here</think>now halt there")
    reasoning, content, used, stopped, _ = tell(
        Assembler(tokenizer, thinking=True, stops=("halt",)), [ids]
    )
    assert (reasoning, content, stopped) == ("halt here", "now ", True)
    assert used < len(ids)


def test_used_ends_with_the_id_that_completed_the_stop_string(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("one two three four")
    _, content, used, _, _ = tell(Assembler(tokenizer, stops=("o th",)), [ids])
    assert content == "one tw"
    assert "o th" in tokenizer.decode(ids[:used])
    assert "o th" not in tokenizer.decode(ids[: used - 1])


def test_an_end_token_says_nothing_and_counts(tokenizer: Tokenizer) -> None:
    (tag,) = tokenizer.encode("<think>")  # spelled out unless it ends the reply
    ids = [*tokenizer.encode("done"), tag]
    told = tell(Assembler(tokenizer, stop_ids=frozenset({tag})), [ids])
    assert told[1:3] == ("done", len(ids))
    assert tell(Assembler(tokenizer), [ids])[1] == "done<think>"


def test_reasoning_tokens_count_up_to_the_closing_tag(tokenizer: Tokenizer) -> None:
    before, after = tokenizer.encode("think hard</think>"), tokenizer.encode("so")
    assert tell(Assembler(tokenizer, thinking=True), [before + after])[4] == len(before)
    assert tell(Assembler(tokenizer, thinking=True), [before[:-1]])[4] == len(before) - 1
    assert tell(Assembler(tokenizer, thinking=False), [before])[4] == 0


@pytest.mark.parametrize("thinking", [True, False])
def test_a_cut_inside_a_character_goes_to_the_open_kind(
    tokenizer: Tokenizer, thinking: bool
) -> None:
    reasoning, content, *_ = tell(
        Assembler(tokenizer, thinking=thinking), [tokenizer.encode("🦉")[:1]]
    )
    assert (reasoning, content) == (("\ufffd", "") if thinking else ("", "\ufffd"))


def test_a_stop_string_does_not_reach_over_a_call(tokenizer: Tokenizer) -> None:
    assembler = Assembler(tokenizer, stops=("10",), tools=[Tool("f", "", {})])
    pieces, _ = assembler.feed(tokenizer.encode("a 1<tool_call>f</tool_call>0 b"))
    assert [*pieces, *assembler.finish()] == [
        Piece(Kind.CONTENT, "a 1"),
        Piece(Kind.CALL, "f"),
        Piece(Kind.ARGUMENTS, "{}"),
        Piece(Kind.CONTENT, "0 b"),
    ]
    assert not assembler.stopped
