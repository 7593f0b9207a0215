"""What a begin carries of a request's sampling, and what comes back beside a token."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest

from streamglm.core.draws import draw_of, seen_of
from streamglm.core.service import EngineService
from streamglm.errors import EngineFailed
from streamglm.request import Request, SamplingParams, Tokens
from streamglm.step import Begin, Draw, Drawn, LogProbs, Step, StepResult, pack
from support.clock import LoopClock, virtual_time
from support.fakes import FakeRanks, shape
from support.house import House, cache_of, read, request, serving, tokens_of
from support.stub import logprobs_at

OF = shape()


@pytest.fixture(params=["fake", "process"])
def house(request: pytest.FixtureRequest) -> House:
    return House(request.param)


def sampled(asked: Request, **changed: Any) -> Request:
    return replace(asked, sampling=replace(asked.sampling, **changed))


def test_packed_ids_are_bits_without_zeros_at_the_end() -> None:
    assert pack([]) == b""
    assert pack([0]) == b"\x01"
    assert pack([9, 0, 9]) == b"\x01\x02"
    assert len(pack(range(154_880))) == 19_360


def test_a_draw_has_every_field_of_the_sampling() -> None:
    sampling = SamplingParams(0.5, 3, 0.9, 0.1, 7, 1.2, 0.5, -0.5, ((1, 2.0),), pack([4]), 6)
    names = [field.name for field in fields(SamplingParams)]
    assert names == [field.name for field in msgspec.structs.fields(Draw)]
    draw = draw_of(sampling)
    assert [getattr(draw, name) for name in names] == [getattr(sampling, name) for name in names]


def test_a_history_is_sent_only_where_a_penalty_asks() -> None:
    plain = request((5, 3, 5))
    assert seen_of(plain) == b""
    assert seen_of(sampled(plain, presence_penalty=1.0, frequency_penalty=1.0)) == b""
    assert seen_of(sampled(plain, repetition_penalty=1.1)) == pack([3, 5])


@virtual_time
async def test_a_resumed_lane_begins_with_the_whole_prompts_ids() -> None:
    """Its restored rows are never computed, so no rank could find their ids out."""
    prompt = (*range(20), *range(20))
    asked = sampled(request((*prompt, 30, 31, 32)), repetition_penalty=1.5)
    ranks = FakeRanks(OF, LoopClock(), slots=4)
    async with serving(OF, ranks, cache=cache_of(4)) as engine:
        await read(engine.submit(request(prompt)))
        await read(engine.submit(asked))
    begins: list[Begin] = [begin for step in ranks.steps for begin in step.begins]
    assert [begin.restore is None for begin in begins] == [True, False]
    assert [begin.seen for begin in begins] == [b"", pack([*range(20), 30, 31, 32])]


def test_each_token_comes_with_its_log_probabilities(house: House) -> None:
    """Through rounds, beside lanes that asked for none or other numbers, read late and at once."""

    async def told(engine: EngineService, asked: Request, *, late: bool) -> None:
        reply = engine.submit(asked)
        if late:
            await asyncio.sleep(0.5)
        ids: tuple[int, ...] = ()
        found: tuple[LogProbs, ...] = ()
        async for event in reply:
            if isinstance(event, Tokens):
                ids, found = ids + event.ids, found + event.logprobs
        count, start = asked.sampling.logprobs, len(asked.prompt)
        assert ids == tokens_of(asked)
        places = enumerate(ids, start)
        wanted = () if count is None else tuple(logprobs_at(t, at, count) for at, t in places)
        assert found == wanted

    async def body(engine: EngineService) -> None:
        counts = [None, 0, 3, 20, None, 1]
        asked = [sampled(request(9 + i, 12, i), logprobs=count) for i, count in enumerate(counts)]
        await asyncio.gather(*(told(engine, one, late=i % 2 > 0) for i, one in enumerate(asked)))

    house.run(body)


class Silent(FakeRanks):
    """Tells no log-probabilities, whoever asks."""

    async def run(self, step: Step, digest: int) -> StepResult:
        result = await super().run(step, digest)
        drawn = tuple(Drawn(one.lane, one.tokens) for one in result.drawn)
        return StepResult(drawn, result.prompt_seconds, result.window_seconds)


@virtual_time
async def test_an_answer_without_what_was_asked_is_a_failure() -> None:
    async with serving(OF, Silent(OF, LoopClock())) as engine:
        _, end = await read(engine.submit(sampled(request(), logprobs=2)))
        assert isinstance(end, EngineFailed)
        assert "has 0 log-probabilities" in end.message
