"""A guided reply thinks within its budget and then keeps to its grammar, one token at a time."""

from __future__ import annotations

import numpy as np
import pytest

from streamglm.sampling.guided import GuidedSampler, GuidedSamplers
from streamglm.sampling.lane import LaneSampler
from streamglm.sampling.vocabulary import Vocabulary, begun_tag
from streamglm.step import Draw, Guide, pack

# ids: 0 "a", 1 "b", 2 "</think>", 3 the end, 4 "</", 5 "think>", 6 "think>b", 7 "b</think>"
SAID = [b"a", b"b", b"</think>", b"", b"</", b"think>", b"think>b", b"b</think>"]
WORDS = Vocabulary(SAID, stops=(3,))
EVERY = tuple(range(len(SAID)))


class Alternates:
    """A grammar of "abab...": the ids 0 and 1 in turn."""

    def __init__(self) -> None:
        self.next = 0

    def mask(self) -> bytes:
        return pack([self.next])

    def push(self, token: int) -> None:
        assert token == self.next
        self.next = 1 - token


def guided(*, thinking: bool, budget: int | None = None, grammar: bool = True) -> GuidedSampler:
    guide = Guide(thinking, budget, (2,), (3,), b"g" if grammar else b"")
    inner = LaneSampler(Draw(0.0, 0, 1.0, 0.0, 0, guide=guide))
    return GuidedSampler(inner, guide, WORDS, Alternates() if grammar else None)


def allowed(sampler: GuidedSampler) -> list[int]:
    """The ids that may come next, found out by draws alone."""
    found = []
    for token in EVERY:
        logits = np.zeros(len(SAID), np.float32)
        logits[token] = 9
        if sampler.choose(logits, 5).token == token:
            found.append(token)
    return found


def after(sampler: GuidedSampler, *tokens: int) -> list[int]:
    for token in tokens:
        sampler.push(token)
    return allowed(sampler)


def test_a_grammar_begins_behind_the_closing_tag() -> None:
    sampler = guided(thinking=True)
    assert 3 not in allowed(sampler), "a constrained reply does not end while it thinks"
    assert after(sampler, 0, 1, 2) == [0]
    assert after(sampler, 0) == [1]


def test_a_tag_that_is_spelled_out_counts() -> None:
    assert after(guided(thinking=True), 4, 5) == [0]
    assert after(guided(thinking=True), 7) == [0]


def test_no_text_follows_the_tag_within_one_token() -> None:
    assert 6 in allowed(guided(thinking=True))
    assert 6 not in after(guided(thinking=True), 4)


def test_without_thought_a_grammar_begins_at_once() -> None:
    assert allowed(guided(thinking=False)) == [0]


@pytest.mark.parametrize("grammar", [False, True])
@pytest.mark.parametrize("budget", [0, 1, 3])
def test_a_budget_is_closed_by_force(budget: int, grammar: bool) -> None:
    sampler = guided(thinking=True, budget=budget, grammar=grammar)
    for _ in range(budget):
        assert len(allowed(sampler)) > 1
        sampler.push(0)
    assert allowed(sampler) == [2]
    assert after(sampler, 2) == ([0] if grammar else list(EVERY))


def test_a_budget_that_is_not_used_up_forces_nothing() -> None:
    assert after(guided(thinking=True, budget=3, grammar=False), 0, 2, 0, 0, 0) == list(EVERY)


def test_a_tag_of_several_tokens_is_forced_in_order() -> None:
    guide = Guide(True, 1, (4, 5), (3,), b"")
    sampler = GuidedSampler(LaneSampler(Draw(0.0, 0, 1.0, 0.0, 0)), guide, WORDS, None)
    assert after(sampler, 4) == [4]  # the thought had begun one: the whole tag follows
    assert after(sampler, 4) == [5]
    assert after(sampler, 5) == list(EVERY)


def test_choosing_changes_nothing() -> None:
    sampler = guided(thinking=False)
    assert [allowed(sampler) for _ in range(3)] == [[0]] * 3


@pytest.mark.parametrize(
    ("text", "begun"),
    [(b"", b""), (b"a<", b"<"), (b"</thi", b"</thi"), (b"</think", b"</think"), (b"</x", b"")],
)
def test_the_beginning_of_a_tag_is_its_longest(text: bytes, begun: bytes) -> None:
    assert begun_tag(text) == begun


def test_vocabulary_and_grammars_are_made_when_they_are_needed() -> None:
    made: list[str] = []

    def vocabulary(stops: tuple[int, ...]) -> Vocabulary:
        made.append(f"vocabulary {stops}")
        return WORDS

    def grammars(words: Vocabulary) -> type[Alternates]:
        made.append("grammars")
        return lambda grammar: Alternates()  # type: ignore[return-value]

    samplers = GuidedSamplers(spelled=None, vocabulary=vocabulary, grammars=grammars)
    assert isinstance(samplers(Draw(0.0, 0, 1.0, 0.0, 0), b""), LaneSampler)
    assert made == []
    for grammar in (b"", b"g", b"g"):
        guide = Guide(True, 1, (2,), (3,), grammar)
        samplers(Draw(0.0, 0, 1.0, 0.0, 0, guide=guide), b"")
    assert made == ["vocabulary (3,)", "grammars"]
