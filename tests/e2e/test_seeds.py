"""CO-27: a seeded reply is its request's alone, whatever is drawn beside it and however often.

Each reply is compared by ids and log-probabilities, so that a neighbour's noise shows even where it
changes no token. Red with noise from a generator that lanes share, or with a history that is kept
over from the lane's last reply.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.server import Server, serving

Told = tuple[list[int], dict[str, Any]]

PLAIN: dict[str, Any] = {
    "temperature": 0.9,
    "top_p": 0.95,
    "seed": 42,
    "max_tokens": 48,
    "ignore_eos": True,
    "logprobs": 3,
}
PENALISED: dict[str, Any] = PLAIN | {
    "repetition_penalty": 1.2,
    "presence_penalty": 0.4,
    "frequency_penalty": 0.3,
    "logit_bias": {"5": 2.0, "9": -100},
    "allowed_token_ids": list(range(0, 400, 3)),
}


def prompt(seed: int, length: int = 300) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(300) for _ in range(length)]


def told(reply: dict[str, Any]) -> Told:
    """The ids of a reply, and what is told of them."""
    (choice,) = reply["choices"]
    return choice["token_ids"], choice["logprobs"]


def beside(server: Server, asked: dict[str, Any], others: Callable[[int], dict[str, Any]]) -> Told:
    """The reply to `asked` while seven others run."""
    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(server.complete, **others(i)) for i in range(7)]
        reply = pool.submit(server.complete, **asked)
        for one in running:
            one.result()
        return told(reply.result())


@pytest.mark.parametrize("fields", [PLAIN, PENALISED], ids=["plain", "penalised"])
def test_a_seeded_reply_beside_strangers(nano: Server, fields: dict[str, Any]) -> None:
    asked = {"prompt": prompt(len(fields))} | fields
    first = nano.complete(**asked)
    alone = told(first)
    assert len(set(alone[0])) > 10  # it is a draw
    for _ in range(2):
        again = nano.complete(**asked)
        assert told(again) == alone
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0

    def unseeded(i: int) -> dict[str, Any]:
        return {"prompt": prompt(50 + i, 70), "max_tokens": 60, "temperature": 1.0}

    def seeded(i: int) -> dict[str, Any]:
        return PENALISED | {"prompt": prompt(60 + i, 90), "seed": i, "logprobs": i}

    def long(i: int) -> dict[str, Any]:
        return {"prompt": prompt(70 + i, 2500 if i == 0 else 20), "max_tokens": 8}

    assert beside(nano, asked, unseeded) == alone
    assert beside(nano, asked, seeded) == alone
    assert beside(nano, asked, long) == alone
    assert told(nano.complete(**asked | {"seed": 43}))[0] != alone[0]
    with serving("nano", "--parallel", "2", "--kv-poison") as restarted:
        assert told(restarted.complete(**asked)) == alone


def test_what_is_not_allowed_is_not_drawn(nano: Server) -> None:
    ids, logprobs = told(nano.complete(prompt(4, 40), **PENALISED))
    assert set(ids) <= set(PENALISED["allowed_token_ids"]) - {9}
    # told of the raw logits: the likeliest tokens are not all allowed
    pairs = zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True)
    assert any(top[token] < max(top.values()) for token, top in pairs)
