"""Requests in the shapes of coding agents: what they document that they send, written by hand."""

from __future__ import annotations

import itertools
import json
from typing import Any

import httpx
import pytest

from streamglm.edge.anthropic_fields import COUNT_TOKENS, MESSAGES
from support.asgi import sse_objects
from support.events import message_of, named_events
from support.said import ADDS
from support.world import CHAT, Make, World

READ: dict[str, Any] = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "description": "absolute path"},
        "offset": {"type": "number"},
        "limit": {"type": "number"},
    },
    "required": ["file_path"],
    "additionalProperties": False,
    "$schema": "http://json-schema.org/draft-07/schema#",
}
READS = (
    "look at it</think>I read it.<tool_call>Read<arg_key>file_path</arg_key>"
    "<arg_value>/a/b.py</arg_value><arg_key>limit</arg_key><arg_value>20</arg_value></tool_call>"
)
ANSWERS = "seen</think>It adds."
CACHED = {"cache_control": {"type": "ephemeral"}}
HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
    "authorization": "Bearer k1",
    "x-app": "cli",
}


@pytest.fixture
def world(make: Make) -> World:
    return make(api_key="k1", context=32768)


def claude(cch: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """One request of Claude Code's main loop."""
    billing = f"x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch={cch};"
    identity = "You are an agent in a terminal."
    tool = {"name": "Read", "description": "Reads a file.", "input_schema": READ}
    return {
        "model": "tiny",
        "system": [
            {"type": "text", "text": billing},
            {"type": "text", "text": identity, **CACHED},
            {"type": "text", "text": "\nBe brief. " * 40, **CACHED},
        ],
        "messages": messages,
        "tools": [tool, {"name": "Add", "description": "", "input_schema": ADDS, **CACHED}],
        "metadata": {"user_id": "user_1_account__session_2"},
        "max_tokens": 20000,
        "thinking": {"type": "enabled", "budget_tokens": 10000},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "temperature": 1,
        "stream": True,
    }


async def told(world: World, body: dict[str, Any]) -> dict[str, Any]:
    """The message that the stream adds up to."""
    path = MESSAGES + "?beta=true"
    answer = await world.http.post(path, json=body, headers=HEADERS)
    assert answer.status_code == 200, answer.text
    return message_of(named_events(answer.text))


async def test_claude_code_reads_a_file_and_answers(world: World) -> None:
    """Three turns: each prompt begins with the one before, up to where the reply began, so that it
    can resume from it, though the billing line differs each time."""
    reminder = {"type": "text", "text": "<system-reminder>\nToday is Monday.\n</system-reminder>\n"}
    asked = {"type": "text", "text": "what does b.py do?", **CACHED}
    messages: list[dict[str, Any]] = [{"role": "user", "content": [reminder, asked]}]
    world.say(READS)
    first = await told(world, claude("36ee5", messages))
    thought, text, call = first["content"]
    assert first["stop_reason"] == "tool_use"
    assert (thought["thinking"], text["text"]) == ("look at it", "I read it.")
    assert (call["name"], call["input"]) == ("Read", {"file_path": "/a/b.py", "limit": 20})

    result = {"type": "tool_result", "tool_use_id": call["id"], **CACHED}
    result["content"] = [{"type": "text", "text": "1\tdef add(a, b): return a + b"}]
    messages += [
        {"role": "assistant", "content": [thought, text, call]},
        {"role": "user", "content": [result, reminder]},
    ]
    world.say(ANSWERS)
    second = await told(world, claude("0aaa9", messages))
    assert [block["type"] for block in second["content"]] == ["thinking", "text"]
    assert second["stop_reason"] == "end_turn"

    messages += [
        {"role": "assistant", "content": second["content"]},
        {"role": "user", "content": "thanks"},
    ]
    await told(world, claude("77777", messages))
    prompts = [reply.request.prompt for reply in world.engine.replies]
    for one, following in itertools.pairwise(prompts):
        assert following[: len(one)] == one
    shown = world.tokenizer.decode(prompts[2])
    assert "x-anthropic" not in shown
    assert "<arg_value>/a/b.py</arg_value>" in shown
    assert "<tool_response>1\tdef add(a, b): return a + b</tool_response>" in shown


async def test_claude_code_names_a_conversation(world: World) -> None:
    """A side request: no tools, no thinking, a form for the answer."""
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    world.say('{"title": "b.py"}')
    body = {
        "model": "tiny",
        "system": [{"type": "text", "text": "Name it."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "what does it do?"}]}],
        "tools": [],
        "max_tokens": 512,
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
        "stream": True,
    }
    message = await told(world, body)
    (text,) = message["content"]
    assert json.loads(text["text"]) == {"title": "b.py"}


async def test_claude_code_counts_its_tools(world: World) -> None:
    body = claude("1", [{"role": "user", "content": "foo"}])
    counted = {name: body[name] for name in ("model", "messages", "tools")}
    path = COUNT_TOKENS + "?beta=true"
    answer: httpx.Response = await world.http.post(path, json=counted, headers=HEADERS)
    assert answer.json()["input_tokens"] > 100


async def test_opencode_calls_a_tool_and_answers(world: World) -> None:
    """Chat completions by way of the AI SDK: reasoning comes back under the name it was sent."""
    tools = [
        {"type": "function", "function": {"name": "Read", "description": "r", "parameters": READ}}
    ]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": [{"type": "text", "text": "what does b.py do?"}]},
    ]
    body: dict[str, Any] = {
        "model": "tiny",
        "max_tokens": 20000,
        "temperature": 0.55,
        "top_p": 1,
        "messages": messages,
        "tools": tools,
        "tool_choice": "auto",
        "stream": True,
        "stream_options": {"include_usage": True},
    }

    async def chunks() -> list[dict[str, Any]]:
        headers = {"authorization": "Bearer k1"}
        answer = await world.http.post(CHAT, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return sse_objects(answer.text)

    world.say(READS)
    first = await chunks()
    deltas = [choice["delta"] for chunk in first for choice in chunk["choices"]]
    (call, *more) = [one for delta in deltas for one in delta.get("tool_calls", ())]
    arguments = "".join(one["function"]["arguments"] for one in (call, *more))
    assert json.loads(arguments) == {"file_path": "/a/b.py", "limit": 20}
    messages += [
        {
            "role": "assistant",
            "content": "".join(delta.get("content", "") for delta in deltas),
            "reasoning_content": "".join(delta.get("reasoning_content", "") for delta in deltas),
            "tool_calls": [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": "Read", "arguments": arguments},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call["id"], "content": "1\tdef add"},
    ]
    world.say(ANSWERS)
    second = await chunks()
    assert second[-1]["usage"]["completion_tokens"] > 0
    one, following = [reply.request.prompt for reply in world.engine.replies]
    assert following[: len(one)] == one
