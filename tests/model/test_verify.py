"""Acceptance on its own: the rows of one lane, a sampler that is told what to draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from streamglm.model.verify import accept
from streamglm.step import Choice, Draw, Drawn, LogProbs

START = 10


class Scripted:
    """Draws `tokens` by their position; knows what was pushed."""

    def __init__(self, tokens: Sequence[int], *, logprobs: bool = False) -> None:
        self._tokens = tokens
        self._logprobs = logprobs
        self.pushed: list[int] = []
        self.plain: Draw | None = None
        self.spelled: int | None = None

    def choose(self, logits: object, position: int) -> Choice:
        place = position - START - 1
        assert place == len(self.pushed), "a row was looked at before the token before it counted"
        told = LogProbs(-float(place), ()) if self._logprobs else None
        return Choice(self._tokens[place], told)

    def push(self, token: int) -> None:
        self.pushed.append(token)


def drawn(sampler: Scripted, drafts: Sequence[int]) -> Drawn:
    return accept(3, sampler, np.zeros((1 + len(drafts), 8), np.float32), START, drafts)


@pytest.mark.parametrize(
    ("drafts", "tokens"),
    [
        ((), (5,)),
        ((5, 6, 7), (5, 6, 7, 8)),  # all true, and the token behind them for free
        ((5, 6, 1), (5, 6, 7)),
        ((5, 1, 7), (5, 6)),
        ((1, 6, 7), (5,)),
        ((1, 5, 6), (5,)),  # true one place late is false
    ],
)
def test_up_to_the_first_that_is_false_and_one_more(
    drafts: tuple[int, ...], tokens: tuple[int, ...]
) -> None:
    sampler = Scripted((5, 6, 7, 8))
    assert drawn(sampler, drafts) == Drawn(3, tokens)
    assert sampler.pushed == list(tokens)


def test_log_probabilities_go_with_their_tokens() -> None:
    found = drawn(Scripted((5, 6, 7), logprobs=True), (5, 1))
    assert [one.logprob for one in found.logprobs] == [0.0, -1.0]


def test_a_row_without_a_token_ends_the_run_and_is_not_history() -> None:
    sampler = Scripted((5, -1, 7), logprobs=True)
    found = drawn(sampler, (5, 6))
    assert found.tokens == (5, -1)
    assert sampler.pushed == [5]
