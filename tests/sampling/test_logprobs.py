"""Log-probabilities are the model's own: raw logits, whatever was done to draw."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from streamglm.kernels.arguments import Array, Wide
from streamglm.sampling.history import History
from streamglm.sampling.lane import LaneSampler
from streamglm.sampling.logprobs import logprobs
from streamglm.step import Draw, pack


def row_of(vocab: int, seed: int = 0) -> Array:
    return 3.0 * np.random.default_rng(seed).standard_normal(vocab, np.float32)


@pytest.mark.parametrize("vocab", [1, 7, 512, 154_880])
def test_they_are_transformers_log_softmax(vocab: int) -> None:
    row = row_of(vocab)
    theirs = torch.log_softmax(torch.from_numpy(row).double(), -1)
    found = logprobs(row, vocab // 2, 20)
    assert math.isclose(found.logprob, theirs[vocab // 2].item(), abs_tol=1e-12)
    values, ids = theirs.topk(min(20, vocab))
    assert [i for i, _ in found.top] == ids.tolist()
    assert np.allclose([x for _, x in found.top], values.numpy(), rtol=0, atol=1e-12)


def test_float32_log_softmax_is_within_the_promised_distance() -> None:
    row = row_of(154_880, 3)
    theirs = torch.log_softmax(torch.from_numpy(row), -1)
    for token in (0, 77, 154_879):
        assert abs(logprobs(row, token, 0).logprob - theirs[token].item()) < 1e-4


def test_equal_alternatives_stand_by_id_where_the_list_is_cut() -> None:
    row = np.array([1, 5, 3, 3, 5, 3, 3, 0], np.float32)
    for count, ids in ((1, [1]), (2, [1, 4]), (3, [1, 4, 2]), (5, [1, 4, 2, 3, 5])):
        assert [i for i, _ in logprobs(row, 0, count).top] == ids
    many = np.ones(5000, np.float32)
    many[::700] = 2.0
    assert [i for i, _ in logprobs(many, 0, 20).top] == [*range(0, 5000, 700), *range(1, 13)]
    assert len(logprobs(row, 0, 20).top) == 8
    assert logprobs(row, 0, 0).top == ()


def test_nothing_that_draws_changes_them() -> None:
    row = row_of(300)
    plain = logprobs(row, 5, 4)
    edited = Draw(
        0.7, 1, 0.5, 0.1, 3, 1.3, 1.0, 1.0, bias=((5, 100.0),), allowed=pack([5]), logprobs=4
    )
    sampler = LaneSampler(edited, pack([5]))
    sampler.push(5)
    token, found = sampler.choose(row, 9)
    assert (token, found) == (5, plain)


def test_a_greedy_token_is_the_first_alternative() -> None:
    row = np.round(row_of(500, 2))
    token, found = LaneSampler(Draw(0.0, 0, 1.0, 0.0, 0, logprobs=3)).choose(row, 0)
    assert found is not None
    assert found.top[0] == (token, found.logprob)


def test_they_are_told_only_where_asked() -> None:
    assert LaneSampler(Draw(0.0, 0, 1.0, 0.0, 0)).choose(row_of(9), 0).logprob is None
    assert LaneSampler(Draw(0.0, 0, 1.0, 0.0, 0, logprobs=0)).choose(row_of(9), 0).logprob


def test_impossible_ids_have_no_probability() -> None:
    row = np.array([0.0, -np.inf, 0.0], np.float32)
    with np.errstate(all="raise"):
        found = logprobs(row, 1, 3)
    assert found.logprob == -math.inf
    assert [i for i, _ in found.top] == [0, 2, 1]
    assert found.top[0][1] == pytest.approx(math.log(0.5))


@pytest.mark.parametrize("penalty", [1.3, 0.6])
def test_repetition_is_transformers_processor(penalty: float) -> None:
    """Theirs takes prompt and reply as one list; in float64 the two are equal bit for bit."""
    row = row_of(400, 8)
    prompt, reply = [3, 3, 77, 399], [5, 77, 0, 5]
    ids = torch.tensor([prompt + reply])
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(ids, torch.from_numpy(row[None]).double())
    history = History(Draw(1.0, 0, 1.0, 0.0, 0, repetition_penalty=penalty), pack(prompt), None)
    for token in reply:
        history.push(token)
    ours: Wide = row.astype(np.float64)
    history.apply(ours)
    assert np.array_equal(ours, theirs[0].numpy())
