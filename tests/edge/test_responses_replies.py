"""Replies of OpenAI's Responses: items, how they end, usage, and the streams of them."""

from __future__ import annotations

from typing import Any

import pytest

from streamglm.edge.responses_fields import RESPONSES
from streamglm.errors import EngineFailed
from streamglm.request import Failed, Started, Tokens
from support.events import items_of, named_events
from support.manual import settle
from support.world import World

ASK: dict[str, Any] = {"input": "hi"}


async def both(world: World, **body: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The response whole, and that of the stream's last event, which the events before it must
    add up to; ids of their own left out."""
    whole = await world.whole(RESPONSES, **ASK | body)
    answer = await world.ask(RESPONSES, **ASK | body, stream=True)
    assert answer.status_code == 200, answer.text
    events = named_events(answer.text)
    items_of(events)
    streamed = events[-1]["response"]
    assert events[-1]["type"] == f"response.{streamed['status']}"
    for response in (whole, streamed):
        assert response["id"].startswith("resp_")
        for item in response["output"]:
            assert item.pop("id").startswith(("rs_", "msg_", "fc_"))
            item.pop("call_id", None)
        response["streamglm"].pop("seed")
        for name in ("id", "created_at", "completed_at"):
            response.pop(name)
    return whole, streamed


@pytest.mark.parametrize("a_round", [1, 3, 100])
async def test_a_stream_adds_up_to_the_whole_response(world: World, a_round: int) -> None:
    count = world.say("weigh 🦉 it</think>the answer é", cached=3, a_round=a_round)
    whole, streamed = await both(world)
    assert streamed == whole
    reasoning, message = whole["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "weigh 🦉 it"}]
    assert "encrypted_content" not in reasoning
    assert message["content"][0]["text"] == "the answer é"
    assert {item["status"] for item in whole["output"]} == {whole["status"]} == {"completed"}
    prompt = len(world.engine.replies[-1].request.prompt)
    usage = whole["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (prompt, count)
    assert usage["total_tokens"] == prompt + count
    assert usage["input_tokens_details"]["cached_tokens"] == 3
    assert usage["prompt_tokens_details"] == {"cached_tokens": 3}
    assert 0 < usage["output_tokens_details"]["reasoning_tokens"] < count


@pytest.mark.parametrize(("limit", "kinds"), [(2, 1), (8, 2)])
async def test_a_response_that_was_cut_is_incomplete(world: World, limit: int, kinds: int) -> None:
    """In its reasoning, and in its answer: the last item is the one that was cut."""
    world.say("weigh it</think>the answer is long")
    whole, streamed = await both(world, max_output_tokens=limit)
    assert streamed == whole
    assert whole["status"] == "incomplete"
    assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
    statuses = [item["status"] for item in whole["output"]]
    assert statuses == ["completed"] * (kinds - 1) + ["incomplete"]


async def test_sealed_reasoning_can_be_sent_back(world: World) -> None:
    world.say("weigh</think>so")
    whole, streamed = await both(world, include=["reasoning.encrypted_content"])
    assert streamed == whole
    sealed = whole["output"][0]["encrypted_content"]
    plain = {"type": "reasoning", "summary": [], "content": whole["output"][0]["content"]}
    opened = {"type": "reasoning", "summary": [], "encrypted_content": sealed}
    prompts = []
    for item in (plain, opened):
        turns = [{"role": "user", "content": "a"}, item, {"role": "assistant", "content": "so"}]
        await world.whole(RESPONSES, input=[*turns, {"role": "user", "content": "b"}])
        prompts.append(world.engine.replies[-1].request.prompt)
    assert prompts[0] == prompts[1]


async def test_a_response_repeats_what_it_was_asked(world: World) -> None:
    world.say("a")
    asked: dict[str, Any] = {
        "instructions": "be brief",
        "max_output_tokens": 9,
        "metadata": {"k": "v"},
        "temperature": 0.5,
        "top_p": 0.25,
        "reasoning": {"effort": "low", "summary": None},
    }
    whole, _ = await both(world, **asked)
    assert {name: whole[name] for name in asked} == asked
    assert whole["store"] is False
    assert whole["previous_response_id"] is None


async def test_token_ids_are_named_where_they_are_asked_for(world: World) -> None:
    count = world.say("weigh</think>so")
    whole, streamed = await both(world, return_token_ids=True)
    assert streamed == whole
    assert whole["prompt_token_ids"] == list(world.engine.replies[-1].request.prompt)
    assert len(whole["token_ids"]) == count


async def test_a_limit_beyond_the_window_names_this_apis_field(world: World) -> None:
    error = await world.refused(400, RESPONSES, **ASK, max_output_tokens=4096)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "max_output_tokens")
    assert "`max_output_tokens` asks for 4096" in error["message"]
    long = "word " * 5000
    error = await world.refused(400, RESPONSES, input=long)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")


async def test_a_failure_inside_a_stream_is_a_failed_response(world: World) -> None:
    world.engine.script = lambda _: [Started(0), Tokens((40,)), Failed(EngineFailed("gone"))]
    *_, last = named_events((await world.ask(RESPONSES, **ASK, stream=True)).text)
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {"code": "server_error", "message": "gone"}


async def test_a_failure_before_the_start_is_an_error_event(world: World) -> None:
    world.engine.script = lambda _: [Failed(EngineFailed("gone"))]
    (event,) = named_events((await world.ask(RESPONSES, **ASK, stream=True)).text)
    assert event == {
        "type": "error",
        "sequence_number": 0,
        "code": "engine_failed",
        "message": "gone",
        "param": None,
    }


async def test_comments_fill_the_silence(world: World) -> None:
    """CO-35."""
    call = world.call(RESPONSES, **ASK, stream=True)
    await settle()
    assert call.writes == [b": \n\n"]
    for minute in range(1, 13):
        await world.clock.advance(5)
        assert len(call.writes) > minute
    assert named_events(call.text) == []
    call.close()
    await call.task
