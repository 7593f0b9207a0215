"""Prompt lookup against a search written to be believed, and what its proposals are called."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from streamglm.drafts.drafter import Source
from streamglm.drafts.lookup import GRAM, QUOTE, Lookup


def believed(tokens: Sequence[int], most: int) -> tuple[int, ...] | None:
    """What followed the last occurrence of the last trigram before the end."""
    end = len(tokens)
    for place in range(end - 1, GRAM - 1, -1):
        if tokens[place - GRAM : place] == tokens[end - GRAM : end]:
            found = list(tokens[place : place + most])
            while len(found) < most:
                found.append(found[len(found) - (end - place)])
            return tuple(found)
    return None


@pytest.mark.parametrize("alphabet", [2, 3, 7, 40])
@pytest.mark.parametrize("prompt", [0, 1, 2, 3, 4, 5, 60])
def test_a_proposal_is_what_a_search_finds(alphabet: int, prompt: int) -> None:
    """Token by token and several at a time; a hash collision may cost a proposal, no more."""
    draw = random.Random(100 * alphabet + prompt)
    tokens = [draw.randrange(alphabet) for _ in range(prompt + 120)]
    lookup, at, found, missed = Lookup(tokens[:prompt], 120), prompt, 0, 0
    while at < len(tokens):
        more = tokens[at : at + draw.randrange(1, 4)]
        lookup.follow(more, ())
        at += len(more)
        most = draw.randrange(1, 16)
        want, got = believed(tokens[:at], most), lookup.propose(most)
        if got is None:
            missed += want is not None
        else:
            assert got.tokens == want
            found += 1
    assert missed <= found // 10


def test_nothing_is_proposed_before_a_trigram_has_been_seen() -> None:
    lookup = Lookup([1, 2, 3], 10)
    assert lookup.propose(5) is None
    lookup.follow([1, 2], ())
    assert lookup.propose(5) is None
    lookup.follow([3], ())
    assert lookup.propose(2) == ((1, 2), Source.HINT)
    assert lookup.propose(0) is None


def test_a_long_match_is_a_quotation() -> None:
    text = list(range(30, 60))
    lookup = Lookup([*text, 1, 2], 60)
    for count in range(1, 20):
        lookup.follow(text[count - 1 : count], ())
        got = lookup.propose(4)
        if count < GRAM:
            assert got is None
            continue
        assert got is not None
        assert got.tokens == tuple(text[count : count + 4])
        assert got.source is (Source.QUOTE if count >= QUOTE else Source.HINT)


def test_a_repeat_at_the_end_goes_on() -> None:
    lookup = Lookup([9, 1, 2, 3, 1, 2, 3], 40)
    got = lookup.propose(7)
    assert got is not None
    assert got.tokens == (1, 2, 3, 1, 2, 3, 1)


def test_a_long_prompt_is_indexed_as_a_short_one() -> None:
    """At once, and with ids of the real vocabulary."""
    draw = random.Random(5)
    tokens = [draw.randrange(154_880) for _ in range(200_000)]
    lookup = Lookup(tokens, 10)
    lookup.follow(tokens[123_456:123_460], ())
    got = lookup.propose(15)
    assert got is not None
    assert got.tokens == tuple(tokens[123_460:123_475])
