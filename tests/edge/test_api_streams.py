"""Whatever a model writes, and however its tokens come, a stream adds up to the whole reply, in all
three APIs, which say the same."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamglm.edge.anthropic_fields import MESSAGES
from streamglm.edge.responses_fields import RESPONSES
from support.events import items_of, message_of, named_events
from support.said import ADDS
from support.world import CHAT, HELLO, World

BITS = (
    *("a", " ", "\n", "é", "🦉", "</think>", "<tool_call>add", "<tool_call>", "</tool_call>"),
    *("<arg_key>a</arg_key>", "<arg_value>4</arg_value>", "<arg_key>", "</arg_value>", "STOP"),
)
WRITTEN = st.lists(st.sampled_from(BITS), max_size=14).map("".join)
CHAT_TOOL = {"type": "function", "function": {"name": "add", "parameters": ADDS}}
ASKS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO, "tools": [CHAT_TOOL], "stop": "STOP"},
    MESSAGES: {
        "messages": HELLO,
        "max_tokens": 500,
        "thinking": {"type": "adaptive"},
        "tools": [{"name": "add", "input_schema": ADDS}],
        "stop_sequences": ["STOP"],
    },
    RESPONSES: {
        "input": "hi",
        "tools": [{"type": "function", "name": "add", "parameters": ADDS}],
        "stop": "STOP",
    },
}


async def both(world: World, route: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    whole = await world.whole(route, **ASKS[route])
    answer = await world.ask(route, **ASKS[route], stream=True)
    assert answer.status_code == 200
    return whole, named_events(answer.text)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(WRITTEN, st.integers(1, 9))
async def test_a_stream_adds_up_to_the_whole(world: World, written: str, a_round: int) -> None:
    world.say(written, a_round=a_round)
    message, events = await both(world, MESSAGES)
    streamed = message_of(events)
    blocks = [[{**b, "id": ""} for b in one["content"]] for one in (message, streamed)]
    assert blocks[0] == blocks[1]
    assert message["stop_reason"] == streamed["stop_reason"]
    response, events = await both(world, RESPONSES)
    items = items_of(events)
    own = ("id", "call_id")
    bare = [[{k: i[k] for k in i if k not in own} for i in x] for x in (response["output"], items)]
    assert bare[0] == bare[1]

    chat = (await world.whole(CHAT, **ASKS[CHAT]))["choices"][0]["message"]
    texts = {"thinking": "", "text": ""}
    for block in message["content"]:
        if block["type"] in texts:
            texts[block["type"]] += block["thinking" if block["type"] == "thinking" else "text"]
    assert texts["thinking"] == chat["reasoning_content"]
    assert texts["text"] == (chat["content"] or "")
    calls = [item["arguments"] for item in items if item["type"] == "function_call"]
    assert calls == [call["function"]["arguments"] for call in chat.get("tool_calls", ())]
    shas = {one["streamglm"]["token_sha"] for one in (message, response, streamed)}
    assert len(shas) == 1
