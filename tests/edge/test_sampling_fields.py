"""Sampling fields reach the engine as they were meant, or are refused by their name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamglm.edge.sampling import sampling_of
from streamglm.edge.schemas import completion_body
from streamglm.errors import InvalidRequest
from streamglm.request import SamplingParams
from streamglm.step import pack
from support.world import CHAT, COMPLETIONS, Make, World

BOTH = pytest.mark.parametrize("route", [CHAT, COMPLETIONS])


@pytest.fixture(autouse=True)
def reply(world: World) -> None:
    world.say("a")


async def asked(world: World, route: str = CHAT, **body: Any) -> SamplingParams:
    """What the engine is asked to draw by."""
    given = {} if route == CHAT else {"prompt": "hi"}
    answer = await world.ask(route, **given, **body)
    assert answer.status_code == 200, answer.text
    return world.engine.replies[-1].request.sampling


@BOTH
async def test_every_field_reaches_the_engine(world: World, route: str) -> None:
    found = await asked(
        world,
        route,
        seed=3,
        repetition_penalty=1.25,
        presence_penalty=-0.5,
        frequency_penalty=2,
        logit_bias={"40": -100, "7": 1.5},
        allowed_token_ids=[9, 1, 9],
    )
    assert found == SamplingParams(
        temperature=0.75,
        top_p=0.95,
        seed=3,
        repetition_penalty=1.25,
        presence_penalty=-0.5,
        frequency_penalty=2.0,
        bias=((7, 1.5), (40, -100.0)),
        allowed=pack([1, 9]),
    )


@BOTH
async def test_values_that_ask_for_nothing_are_a_plain_draw(world: World, route: str) -> None:
    """So they cost nothing, and the draw keeps its bits."""
    plain = await asked(world, route, seed=1)
    nothing = {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1}
    empty: dict[str, Any] = {"logit_bias": {}, "allowed_token_ids": None}
    assert await asked(world, route, seed=1, **nothing, **empty) == plain
    assert await asked(world, route, seed=1, logit_bias={"5": 0}) == plain
    nulls = dict.fromkeys((*nothing, *empty, "logprobs"))
    assert await asked(world, route, seed=1, **nulls) == plain


async def test_what_logprobs_means_on_each_route(world: World) -> None:
    cases: list[tuple[str, dict[str, Any], int | None]] = [
        (CHAT, {}, None),
        (CHAT, {"logprobs": False, "top_logprobs": 0}, None),
        (CHAT, {"top_logprobs": 0}, None),
        (CHAT, {"logprobs": True}, 0),
        (CHAT, {"logprobs": True, "top_logprobs": 20}, 20),
        (COMPLETIONS, {}, None),
        (COMPLETIONS, {"logprobs": 0}, 0),
        (COMPLETIONS, {"logprobs": 20}, 20),
    ]
    for route, body, wanted in cases:
        assert (await asked(world, route, **body)).logprobs == wanted, body


async def test_top_logprobs_alone_is_refused_with_its_remedy(world: World) -> None:
    for logprobs in (None, False):
        error = await world.refused(top_logprobs=3, logprobs=logprobs)
        assert error["param"] == "top_logprobs"
        assert "`logprobs` true" in error["message"]


async def test_an_id_outside_the_vocabulary_is_named_with_the_range(world: World) -> None:
    error = await world.refused(logit_bias={"3": 1, "99999": 2})
    assert error["param"] == "logit_bias"
    assert "`99999`" in error["message"]
    assert f"0 to {world.model.vocab_size - 1}" in error["message"]
    error = await world.refused(allowed_token_ids=[1, 99999])
    assert error["param"] == "allowed_token_ids"
    assert str(world.model.vocab_size - 1) in error["message"]


async def test_a_long_key_is_cut(world: World) -> None:
    error = await world.refused(logit_bias={"9" * 5000: 1})
    assert len(error["message"]) < 300


async def test_a_set_without_any_text_is_refused(world: World) -> None:
    """A vocabulary may have rows that no token spells; they are never drawn."""
    size = world.tokenizer.size
    model = replace(world.model, vocab_size=size + 8)

    def read(ids: list[int]) -> bytes:
        return sampling_of(
            completion_body({"prompt": "x", "allowed_token_ids": ids}), model
        ).allowed

    with pytest.raises(InvalidRequest, match=f"below {size}") as caught:
        read([size, size + 7])
    assert caught.value.param == "allowed_token_ids"
    assert read([size, 4]) == pack([4, size])


async def test_the_checkpoints_own_repetition_penalty_is_the_default(make: Make) -> None:

    own = SamplingParams(temperature=0.5, repetition_penalty=1.1)
    model = replace(make().model, defaults=own)
    assert sampling_of(completion_body({"prompt": "x"}), model).repetition_penalty == 1.1
    body = completion_body({"prompt": "x", "repetition_penalty": 1.0})
    assert sampling_of(body, model).repetition_penalty == 1.0
