"""Tool calls over HTTP: shapes as client libraries check them, streamed as not streamed
(CO-18 to CO-23)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamglm.text.tokenizer import Tokenizer
from support.world import CHAT, HELLO, Make, World


def tool(name: str = "f", **properties: Any) -> dict[str, Any]:
    """A tool in OpenAI's shape."""
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("f", q={"type": "string"}, n={"type": "integer"}), tool("now")]
CALL = (
    "<tool_call>f<arg_key>q</arg_key><arg_value>10 🦉</arg_value>"
    "<arg_key>n</arg_key><arg_value>10</arg_value></tool_call>"
)
OFF = {"chat_template_kwargs": {"enable_thinking": False}}


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream's deltas add up to, checked as clients check them."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "calls": []}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    for delta in deltas[1:]:
        for key in ("content", "reasoning_content"):
            message[key] += delta.get(key, "")
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                assert set(call) == {"index", "id", "type", "function"}
                assert call["index"] == len(message["calls"])
                assert call["type"] == "function"
                message["calls"].append({**call["function"], "id": call["id"]})
            else:
                assert set(call) == {"index", "function"}
                assert set(call["function"]) == {"arguments"}
                assert call["index"] == len(message["calls"]) - 1
                message["calls"][-1]["arguments"] += call["function"]["arguments"]
    return message


async def both(world: World, **body: Any) -> tuple[dict[str, Any], str]:
    """The message and the finish reason, the same streamed and not."""
    given = {"tools": TOOLS, **body}
    whole = (await world.whole(**given))["choices"][0]
    chunks = await world.stream(**given)
    streamed = joined(chunks)
    reasons = [one["choices"][0]["finish_reason"] for one in chunks]
    assert [reason for reason in reasons if reason] == [whole["finish_reason"]]
    message = whole["message"]
    assert streamed["content"] == (message["content"] or "")
    assert streamed["reasoning_content"] == message.get("reasoning_content", "")
    told = message.get("tool_calls", [])
    pairs = [(one["function"]["name"], one["function"]["arguments"]) for one in told]
    assert pairs == [(one["name"], one["arguments"]) for one in streamed["calls"]]
    return message, whole["finish_reason"]


@pytest.mark.parametrize("a_round", [1, 3, 1000])
async def test_a_reply_with_reasoning_prose_and_calls(world: World, a_round: int) -> None:
    world.say(f"plan</think>Both: {CALL}<tool_call>now</tool_call>", a_round=a_round)
    message, reason = await both(world)
    assert reason == "tool_calls"
    assert (message["reasoning_content"], message["content"]) == ("plan", "Both: ")
    first, second = message["tool_calls"]
    assert first["type"] == "function"
    assert json.loads(first["function"]["arguments"]) == {"q": "10 🦉", "n": 10}
    assert second["function"] == {"name": "now", "arguments": "{}"}


async def test_a_reply_of_calls_alone_has_null_content(world: World) -> None:
    world.say(f"</think>\n{CALL}")
    message, _ = await both(world)
    assert message["content"] is None


async def test_ids_of_calls_are_unique_across_replies(world: World) -> None:
    world.say(f"</think>{CALL}{CALL}")
    found = []
    for _ in range(2):
        found += [one["id"] for one in joined(await world.stream(tools=TOOLS))["calls"]]
    assert len(set(found)) == 4
    assert all(found)


async def test_a_call_cut_by_max_tokens_is_length(world: World) -> None:
    count = world.say(f"</think>{CALL}")
    for limit in range(1, count):
        message, reason = await both(world, max_tokens=limit)
        assert reason == "length"
        assert "<" not in (message["content"] or "")
    assert (await both(world, max_tokens=count))[1] == "tool_calls"


async def test_a_call_in_thought_that_never_closes_is_delivered(world: World) -> None:
    world.say(f"let me {CALL}")
    message, reason = await both(world)
    assert (message["reasoning_content"], reason) == ("let me ", "tool_calls")
    assert [one["function"]["name"] for one in message["tool_calls"]] == ["f"]
    world.say(f"let me {CALL}</think>done")
    message, reason = await both(world)
    assert (message["reasoning_content"], message["content"]) == (f"let me {CALL}", "done")
    assert (reason, "tool_calls" in message) == ("stop", False)


async def test_stop_strings_are_not_looked_for_in_calls(world: World) -> None:
    world.say(f"</think>a 1{CALL} 10 b")
    message, reason = await both(world, stop=["10"])
    assert (message["content"], reason) == ("a 1 ", "tool_calls")
    assert json.loads(message["tool_calls"][0]["function"]["arguments"])["n"] == 10


async def test_without_parallel_calls_the_reply_ends_with_the_first(world: World) -> None:
    whole = world.say(f"</think>{CALL}{CALL}")
    message, reason = await both(world, parallel_tool_calls=False)
    assert (len(message["tool_calls"]), reason) == (1, "tool_calls")
    assert world.engine.replies[-1].stops
    body = await world.whole(tools=TOOLS, parallel_tool_calls=False)
    assert body["usage"]["completion_tokens"] < whole


async def test_without_tools_a_call_is_text(world: World) -> None:
    world.say(f"</think>{CALL}")
    message, reason = await both(world, tools=[])
    assert (message["content"], reason) == (CALL, "stop")


async def test_choice_none_offers_the_tools_and_bans_the_tag(
    world: World, tokenizer: Tokenizer
) -> None:
    world.say("</think>no")
    await both(world, tool_choice="none", logit_bias={"5": 1})
    none = world.engine.replies[-1].request
    await both(world)
    auto = world.engine.replies[-1].request
    (tag,) = tokenizer.encode("<tool_call>")
    assert none.prompt == auto.prompt
    assert list(none.sampling.bias) == [(5, 1), (tag, -1e9)]
    assert list(auto.sampling.bias) == []


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "now"}}])
async def test_a_choice_that_calls_is_a_constraint(world: World, choice: Any) -> None:
    world.say(f"</think>{CALL}")
    await both(world, tool_choice=choice)
    guide = world.engine.replies[-1].request.sampling.guide
    assert guide is not None
    assert guide.thinking
    calls = json.loads(guide.grammar)["calls"]
    if choice == "required":
        assert calls["type"] == "plus"
        begins = [one["begin"] for one in calls["content"]["elements"]]
        assert begins == ["<tool_call>f", "<tool_call>now"]
    else:
        assert (calls["type"], calls["begin"]) == ("tag", "<tool_call>now")
    await both(world, tool_choice=choice, parallel_tool_calls=False)
    guide = world.engine.replies[-1].request.sampling.guide
    assert guide is not None
    assert json.loads(guide.grammar)["calls"]["type"] in ("or", "tag")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice",
        ),
        ({"tools": [tool("a"), tool("b"), tool("a")]}, "tools[2].function.name"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ],
)
async def test_a_choice_that_cannot_be_met_is_named(
    world: World, body: dict[str, Any], param: str
) -> None:
    assert (await world.refused(**body))["param"] == param


async def test_without_the_library_a_call_cannot_be_required(make: Make) -> None:
    error = await make(grammars=False).refused(tools=TOOLS, tool_choice="required")
    assert error["param"] == "tool_choice"
    assert "streamglm[grammar]" in error["message"]


async def test_tools_and_results_reach_the_prompt(world: World, tokenizer: Tokenizer) -> None:
    arguments = '{"q": "x", "n": 9}'
    messages = [
        *HELLO,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "13"}]},
    ]
    world.say("</think>ok")
    await world.whole(messages=messages, tools=TOOLS)
    prompt = tokenizer.decode(world.engine.replies[-1].request.prompt)
    assert json.dumps(TOOLS[0]["function"]) in prompt
    assert (
        "<tool_call>f<arg_key>q</arg_key><arg_value>x</arg_value>"
        "<arg_key>n</arg_key><arg_value>9</arg_value></tool_call>"
        "<|observation|><tool_response>13</tool_response><|assistant|><think>"
    ) in prompt
    counted = await world.ask("/tokenize", messages=messages, tools=TOOLS)
    assert counted.json()["tokens"] == list(world.engine.replies[-1].request.prompt)


async def test_logprobs_and_ids_go_with_calls(world: World) -> None:
    count = world.say(f"</think>{CALL}")
    chunks = await world.stream(tools=TOOLS, logprobs=True, return_token_ids=True)
    choices = [chunk["choices"][0] for chunk in chunks]
    named = [token for one in choices for token in one.get("token_ids", ())]
    entries = [one["logprobs"]["content"] for one in choices if one["logprobs"]]
    assert len(named) == count == sum(map(len, entries))


async def test_calls_are_parsed_on_chat_alone(world: World) -> None:
    world.say(CALL)
    answer = await world.ask("/v1/completions", prompt="x")
    assert answer.json()["choices"][0]["text"] == CALL
    assert (await world.ask(CHAT, tools=TOOLS)).status_code == 200
