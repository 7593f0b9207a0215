"""Prompt and reply must fit the window (CO-25), and what omitted fields mean."""

from __future__ import annotations

from typing import Any

import pytest

from support.world import COMPLETIONS, Make, World


@pytest.fixture
def world(make: Make) -> World:
    world = make(context=1024)
    world.say("a")
    return world


async def room(world: World, length: int, **body: int) -> int:
    """The `max_tokens` that the engine was asked for."""
    answer = await world.ask(COMPLETIONS, prompt=[5] * length, **body)
    assert answer.status_code == 200, answer.text
    return world.engine.replies[-1].request.max_tokens


@pytest.mark.parametrize("length", [1100, 1024])
async def test_a_prompt_that_fills_the_window_is_refused(world: World, length: int) -> None:
    error = await world.refused(path=COMPLETIONS, prompt=[5] * length)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    assert str(length) in error["message"]
    assert "1024" in error["message"]
    assert world.engine.replies == []


async def test_a_chat_that_fills_the_window_names_its_messages(world: World) -> None:
    error = await world.refused(messages=[{"role": "user", "content": "x7 " * 2000}])
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert "1024" in error["message"]


async def test_omitted_max_tokens_is_the_rest_of_the_window(world: World) -> None:
    assert await room(world, 1023) == 1
    assert await room(world, 500) == 524
    assert await room(world, 500, max_tokens=524) == 524


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_more_than_the_window_is_refused_under_both_names(world: World, name: str) -> None:
    body: dict[str, Any] = {name: 4096}
    error = await world.refused(**body)
    assert (error["code"], error["param"]) == ("context_length_exceeded", name)
    assert "4096" in error["message"]
    assert "1024" in error["message"]


async def test_two_limits_must_agree(world: World) -> None:
    assert (await world.ask(max_tokens=7, max_completion_tokens=7)).status_code == 200
    error = await world.refused(max_tokens=7, max_completion_tokens=8)
    assert error["param"] == "max_completion_tokens"


async def test_omitted_sampling_is_the_checkpoints(world: World) -> None:
    await world.ask()
    sampling = world.engine.replies[-1].request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.75, 0.95, 0)
    await world.ask(temperature=0, top_p=1, top_k=-1, min_p=0.1, seed=3)
    sampling = world.engine.replies[-1].request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.0, 1.0, 0)
    assert (sampling.min_p, sampling.seed) == (0.1, 3)


async def test_an_omitted_seed_is_random_and_reported(world: World) -> None:
    first, second = await world.whole(), await world.whole()
    seeds = [reply.request.sampling.seed for reply in world.engine.replies]
    assert [first["streamglm"]["seed"], second["streamglm"]["seed"]] == seeds
    assert seeds[0] != seeds[1]
    assert all(0 <= seed < 2**53 for seed in seeds)


async def test_end_tokens_end_a_reply_unless_ignored(world: World) -> None:
    await world.ask()
    assert world.engine.replies[-1].request.stop_ids == world.model.eos_ids
    await world.ask(ignore_eos=True)
    assert world.engine.replies[-1].request.stop_ids == frozenset()


async def test_the_models_name_may_be_left_out_but_not_be_another(world: World) -> None:
    assert (await world.ask(model="tiny")).status_code == 200
    error = await world.refused(404, model="gpt-9")
    assert (error["code"], error["param"]) == ("model_not_found", "model")
