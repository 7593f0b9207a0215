"""Several ranks, each a process, through HTTP: one reply, whatever runs beside it, and the tokens
that one rank gives.

Bits may differ between numbers of ranks, since partial sums round; within one number they may not.
So hashes are compared on one server, and between servers the greedy tokens, behind which stand
equal texts. Drafts are on, pages poisoned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.server import Server, serving
from support.talk import cached, greedy, ids, words

LENGTHS = (1, 65, 133, 300)
"""On both sides of the dense limit, and twice behind it."""
LONG = 2090
"""Rows on 33 pages."""
TEXT = [{"role": "user", "content": "Count from 3 to 9."}]
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 90}},
    "required": ["x"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request: pytest.FixtureRequest) -> Iterator[Server]:
    flags = ("--ranks", str(request.param), "--threads", "1", "--parallel", "4")
    with serving("nano", *flags, "--context", "4096", "--drafts", "3", "--kv-poison") as server:
        yield server


def requests() -> list[dict[str, Any]]:
    """One a length, the second and the fourth sampled."""
    drawn = {"temperature": 0.9, "top_p": 0.95, "seed": 5, "ignore_eos": True, "max_tokens": 8}
    return [
        {"prompt": words(length, length), **(drawn if place % 2 else greedy(8))}
        for place, length in enumerate(LENGTHS)
    ]


def shas(server: Server, salt: str, together: int) -> list[str]:
    """Token hashes of the requests in an order, at most `together` at a time; a salt of its own
    resumes nothing of another's."""
    with ThreadPoolExecutor(together) as pool:
        asked = [{**one, "cache_salt": salt} for one in requests()]
        replies = list(pool.map(lambda fields: server.complete(**fields), asked))
    return [reply["streamglm"]["token_sha"] for reply in replies]


def test_replies_alone_and_together_and_of_one_rank(ranks: Server, nano: Server) -> None:
    alone = shas(ranks, "alone", 1)
    assert shas(ranks, "together", 4) == alone
    assert len(set(alone)) == len(LENGTHS)
    for place, one in enumerate(requests()):
        if not one["temperature"]:
            assert nano.complete(**one)["streamglm"]["token_sha"] == alone[place]
    ranks.wait_idle()


@pytest.mark.parametrize("ranks", [3], indirect=True)
def test_a_prompt_on_many_pages_resumes_as_it_was(ranks: Server, nano: Server) -> None:
    prompt = words(LONG, LONG)
    first, again = (ranks.complete(prompt, **greedy(8)) for _ in range(2))
    assert (cached(first), cached(again)) == (0, LONG - LONG % 64)
    assert ids(again) == ids(first)
    assert ids(first) == ids(nano.complete(prompt, **greedy(8)))


def test_a_longer_prompt_resumes_as_a_fresh_one(ranks: Server) -> None:
    first = words(1, 129)
    longer = first + words(2, 9)
    ranks.complete(first, **greedy(2))
    resumed = ranks.complete(longer, **greedy(8))
    fresh = ranks.complete(longer, cache_salt="fresh", **greedy(8))
    assert (cached(resumed), cached(fresh)) == (128, 0)
    assert ids(resumed) == ids(fresh)


def test_a_chat_says_what_one_rank_says(ranks: Server, nano: Server) -> None:
    """Drafts are accepted; log-probabilities are of whole rows of the vocabulary."""
    fields = {"temperature": 0, "max_tokens": 30, "logprobs": True, "top_logprobs": 3}
    mine, one = ranks.chat(TEXT, **fields), nano.chat(TEXT, **fields)
    assert mine["choices"][0]["message"] == one["choices"][0]["message"]
    assert mine["streamglm"]["token_sha"] == one["streamglm"]["token_sha"]
    assert mine["streamglm"]["accepted"] > 0
    pairs = zip(
        mine["choices"][0]["logprobs"]["content"],
        one["choices"][0]["logprobs"]["content"],
        strict=True,
    )
    for left, right in pairs:
        assert left["logprob"] == pytest.approx(right["logprob"], abs=1e-3)
        assert [top["token"] for top in left["top_logprobs"]] == [
            top["token"] for top in right["top_logprobs"]
        ]


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_a_guided_reply_has_its_form_on_every_rank(ranks: Server) -> None:
    """Each rank draws for itself, and one that drew otherwise would end them all."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": FORM, "strict": True}}
    fields = {"max_tokens": 60, "seed": 3, "thinking": {"type": "disabled"}}
    reply = ranks.chat(TEXT, response_format=form, **fields)
    assert 0 <= json.loads(reply["choices"][0]["message"]["content"])["x"] <= 90
