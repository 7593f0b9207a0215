"""Replies of Anthropic's Messages: blocks, why they end, usage, errors, and the streams of them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from streamglm.edge.anthropic_fields import COUNT_TOKENS, MESSAGES
from streamglm.errors import EngineFailed, Overloaded
from streamglm.request import Failed, Started, Tokens
from support.events import message_of, named_events
from support.manual import settle
from support.world import CHAT, HELLO, Make, World

ASK: dict[str, Any] = {"messages": HELLO, "max_tokens": 40}
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


async def both(world: World, **body: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message whole, and streamed and put together; ids of their own left out."""
    whole = await world.whole(MESSAGES, **ASK | body)
    answer = await world.ask(MESSAGES, **ASK | body, stream=True)
    assert answer.status_code == 200, answer.text
    streamed = message_of(named_events(answer.text))
    for message in (whole, streamed):
        assert message.pop("id").startswith("msg_")
        for block in message["content"]:
            block.pop("id", None)
        message["streamglm"].pop("seed")
    return whole, streamed


@pytest.mark.parametrize("a_round", [1, 3, 100])
async def test_a_stream_adds_up_to_the_whole_message(world: World, a_round: int) -> None:
    count = world.say("weigh 🦉 it</think>the answer é", cached=3, a_round=a_round)
    whole, streamed = await both(world, **THINKS)
    assert streamed == whole
    assert [(block["type"], block.get("text")) for block in whole["content"]] == [
        ("thinking", None),
        ("text", "the answer é"),
    ]
    assert whole["content"][0]["thinking"] == "weigh 🦉 it"
    assert whole["content"][0]["signature"]
    usage = whole["usage"]
    prompt = len(world.engine.replies[-1].request.prompt)
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (prompt - 3, 3)
    assert usage["output_tokens"] == count
    assert 0 < usage["output_tokens_details"]["thinking_tokens"] < count
    assert usage["prompt_tokens_details"] == {"cached_tokens": 3}


@pytest.mark.parametrize(
    ("body", "said", "reason", "sequence"),
    [
        ({}, "so halt now", "end_turn", None),
        ({"max_tokens": 2}, "so halt now", "max_tokens", None),
        ({"stop_sequences": ["now", "halt"]}, "so halt now", "stop_sequence", "halt"),
        ({"stop_sequences": ["never"]}, "so halt now", "end_turn", None),
    ],
)
async def test_why_a_message_ends(
    world: World, body: dict[str, Any], said: str, reason: str, sequence: str | None
) -> None:
    world.say(said)
    whole, streamed = await both(world, **body)
    assert (whole["stop_reason"], whole["stop_sequence"]) == (reason, sequence)
    assert streamed == whole
    if sequence:
        assert whole["content"] == [{"type": "text", "text": "so "}]


async def test_without_thinking_asked_for_the_prompt_opens_no_thought(world: World) -> None:
    world.say("plain")
    whole, _ = await both(world)
    assert whole["content"] == [{"type": "text", "text": "plain"}]
    off = world.engine.replies[-1].request.prompt
    await both(world, **THINKS)
    on = world.engine.replies[-1].request.prompt
    assert on != off
    await world.whole(CHAT, chat_template_kwargs={"enable_thinking": False})
    assert world.engine.replies[-1].request.prompt == off
    await world.whole(CHAT)
    assert world.engine.replies[-1].request.prompt == on


async def test_an_empty_reply_has_no_block(world: World) -> None:
    world.say("")
    whole, streamed = await both(world)
    assert whole["content"] == streamed["content"] == []
    assert whole["stop_reason"] == "end_turn"


async def test_token_ids_are_named_where_they_are_asked_for(world: World) -> None:
    world.say("weigh</think>so")
    whole, streamed = await both(world, **THINKS, return_token_ids=True)
    assert streamed == whole
    assert whole["prompt_token_ids"] == list(world.engine.replies[-1].request.prompt)
    assert len(whole["token_ids"]) == whole["usage"]["output_tokens"]
    assert "token_ids" not in (await both(world))[0]


async def test_counted_tokens_are_the_prompts(world: World) -> None:
    world.say("a")
    fields = {"messages": HELLO, "system": "be brief", **THINKS}
    counted = (await world.ask(COUNT_TOKENS, **fields)).json()
    whole = await world.whole(MESSAGES, **fields, max_tokens=5)
    assert counted == {"input_tokens": whole["usage"]["input_tokens"]}


async def test_a_prompt_beyond_the_window_is_counted_and_refused(make: Make) -> None:
    world = make(context=64)
    world.say("a")
    long = [{"role": "user", "content": "word " * 100}]
    counted = (await world.ask(COUNT_TOKENS, messages=long)).json()["input_tokens"]
    assert counted > 64
    error = await world.refused(400, MESSAGES, messages=long, max_tokens=1)
    assert error["code"] == "context_length_exceeded"
    assert error["message"] == f"prompt is too long: {counted} tokens > 63 maximum"
    short = (await world.ask(COUNT_TOKENS, messages=HELLO)).json()["input_tokens"]
    error = await world.refused(400, MESSAGES, messages=HELLO, max_tokens=64)
    assert error["message"].startswith(
        f"input length and `max_tokens` exceed context limit: {short} + 64 > 64"
    )
    begun = [*HELLO, {"role": "assistant", "content": "word " * 100}]
    error = await world.refused(400, MESSAGES, messages=begun, max_tokens=1)
    assert error["message"].startswith("prompt is too long: ")


# -- errors


async def test_every_error_below_the_route_has_anthropics_shape(make: Make) -> None:
    world = make(api_key="k1", max_body_mib=1)
    key = {"x-api-key": "k1", "anthropic-version": "2023-06-01"}
    json_type = {"content-type": "application/json"}

    async def kind(status: int, content: bytes, path: str = MESSAGES, **headers: str) -> str:
        method = headers.pop("method", "POST")
        sent = {**key, **json_type, **headers}
        answer = await world.http.request(method, path, content=content, headers=sent)
        assert answer.status_code == status
        assert answer.json()["type"] == "error"
        return str(answer.json()["error"]["type"])

    good = json.dumps(ASK).encode()
    assert await kind(400, b"{}") == "invalid_request_error"
    assert await kind(400, b"[") == "invalid_request_error"
    assert await kind(401, good, **{"x-api-key": "no"}) == "authentication_error"
    assert await kind(404, good[:-1] + b',"model":"other"}') == "not_found_error"
    assert await kind(404, good, MESSAGES + "/batches") == "not_found_error"
    assert await kind(405, b"", method="GET") == "invalid_request_error"
    assert await kind(413, b" " * 2**20 + good) == "request_too_large"
    assert await kind(415, good, **{"content-type": "text/html"}) == "invalid_request_error"
    world.engine.refusal = Overloaded("full")
    assert await kind(503, good) == "overloaded_error"
    other = await world.http.post(CHAT, json={}, headers=key)
    assert "type" not in other.json()


async def test_both_headers_of_a_key_are_taken(make: Make) -> None:
    world = make(api_key="k1")
    world.say("a")
    for headers in ({"x-api-key": "k1"}, {"authorization": "Bearer k1"}):
        answer = await world.http.post(MESSAGES, json=ASK, headers=headers)
        assert answer.status_code == 200


async def test_a_query_changes_nothing(world: World) -> None:
    """The official client's beta calls go to `?beta=true`."""
    world.say("a")
    answer = await world.http.post(MESSAGES + "?beta=true", json=ASK)
    assert answer.status_code == 200


async def test_a_failure_inside_a_stream_is_an_error_event(world: World) -> None:
    world.engine.script = lambda _: [Started(0), Tokens((40,)), Failed(EngineFailed("gone"))]
    text = (await world.ask(MESSAGES, **ASK, stream=True)).text
    *_, last = named_events(text)
    assert last["type"] == "error"
    assert (last["error"]["type"], last["error"]["message"]) == ("api_error", "gone")
    whole = await world.ask(MESSAGES, **ASK)
    assert (whole.status_code, whole.json()["error"]["type"]) == (500, "api_error")


# -- streams


async def test_a_ping_comes_at_once_and_in_every_silence(world: World) -> None:
    """CO-35, in the queue and in the prompt."""
    call = world.call(MESSAGES, **ASK, stream=True)
    await settle()
    assert call.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [one["type"] for one in named_events(call.text)] == ["ping"]
    for minute in range(1, 7):
        await world.clock.advance(5)
        assert len(named_events(call.text)) > minute
    world.engine.replies[-1].put(Started(0))
    for minute in range(7, 13):
        await world.clock.advance(5)
        assert len(named_events(call.text)) > minute
    kinds = {one["type"] for one in named_events(call.text)}
    assert kinds == {"ping", "message_start"}
    call.close()
    await call.task
    assert world.engine.replies[-1].stops > 0


async def test_a_round_is_one_write(world: World) -> None:
    world.say("weigh</think>the answer", a_round=100)
    call = world.call(MESSAGES, **ASK, **THINKS, stream=True)
    await call.task
    kinds = [[one["type"] for one in named_events(data.decode())] for data in call.writes]
    assert kinds[:2] == [["ping"], ["message_start"]]
    assert len(kinds) == 4
    assert kinds[3][-2:] == ["message_delta", "message_stop"]


async def test_models_are_told_in_both_shapes(world: World) -> None:
    listed: httpx.Response = await world.http.get("/v1/models")
    (entry,) = listed.json()["data"]
    assert entry["object"] == "model"
    assert (entry["type"], entry["display_name"]) == ("model", "tiny")
    assert entry["created_at"] == "2023-11-14T22:13:20Z"
    assert listed.json()["has_more"] is False
