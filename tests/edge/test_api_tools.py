"""Tool calls in Anthropic's Messages and OpenAI's Responses: streamed as whole, cut, and chosen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamglm.edge.anthropic_fields import COUNT_TOKENS, MESSAGES
from streamglm.edge.responses_fields import RESPONSES
from support.events import items_of, message_of, named_events
from support.said import ADDS, CALLS, CALLS_AT_ONCE
from support.world import CHAT, HELLO, Make, World

THEIRS = {"name": "add", "description": "sum", "input_schema": ADDS}
OURS = {"type": "function", "name": "add", "description": "sum", "parameters": ADDS}
ASK: dict[str, Any] = {"messages": HELLO, "max_tokens": 200, "tools": [THEIRS]}
ASK_RESPONSE: dict[str, Any] = {"input": "hi", "tools": [OURS]}
THINKS = {"thinking": {"type": "adaptive"}}
TWO = CALLS_AT_ONCE + CALLS_AT_ONCE.replace("9", "-1")


@pytest.mark.parametrize("a_round", [1, 4, 500])
async def test_a_message_that_calls(world: World, a_round: int) -> None:
    world.say("weigh</think>I add." + TWO, a_round=a_round)
    whole = await world.whole(MESSAGES, **ASK, **THINKS)
    answer = await world.ask(MESSAGES, **ASK, **THINKS, stream=True)
    streamed = message_of(named_events(answer.text))
    thought, text, *calls = whole["content"]
    assert (thought["thinking"], text["text"]) == ("weigh", "I add.")
    assert [call["input"] for call in calls] == [{"a": 4, "b": 9}, {"a": 4, "b": -1}]
    assert {call["name"] for call in calls} == {"add"}
    assert whole["stop_reason"] == streamed["stop_reason"] == "tool_use"
    ids = [block.pop("id") for one in (whole, streamed) for block in one["content"][2:]]
    assert len(set(ids)) == 4
    assert all(one.startswith("toolu_") for one in ids)
    assert streamed["content"] == whole["content"]


async def test_a_call_that_was_cut_is_no_call(world: World) -> None:
    """CO-19: at every length, streamed and not."""
    count = world.say(CALLS_AT_ONCE)
    for limit in range(1, count + 1):
        whole = await world.whole(MESSAGES, **ASK | {"max_tokens": limit})
        text = (await world.ask(MESSAGES, **ASK | {"max_tokens": limit}, stream=True)).text
        events = named_events(text)
        (reason,) = [one["delta"]["stop_reason"] for one in events if "usage" in one]
        kinds = [block["type"] for block in whole["content"]]
        if limit == count:
            assert (whole["stop_reason"], reason, kinds) == ("tool_use", "tool_use", ["tool_use"])
        else:
            assert (whole["stop_reason"], reason) == ("max_tokens", "max_tokens")
            called = [block["input"] for block in whole["content"] if block["type"] == "tool_use"]
            assert called in ([], [{"a": 4, "b": 9}])  # without its end token it is whole
        assert "arg_key" not in json.dumps(whole) + text


@pytest.mark.parametrize("a_round", [1, 4, 500])
async def test_a_response_that_calls(world: World, a_round: int) -> None:
    world.say("weigh</think>I add." + TWO, a_round=a_round)
    whole = await world.whole(RESPONSES, **ASK_RESPONSE)
    answer = await world.ask(RESPONSES, **ASK_RESPONSE, stream=True)
    streamed = items_of(named_events(answer.text))
    kinds = ["reasoning", "message", "function_call", "function_call"]
    assert [item["type"] for item in whole["output"]] == kinds
    arguments = [json.loads(item["arguments"]) for item in whole["output"][2:]]
    assert arguments == [{"a": 4, "b": 9}, {"a": 4, "b": -1}]
    both = [*whole["output"], *streamed]
    ids = [item.pop("call_id") for item in both if item["type"] == "function_call"]
    assert len(set(ids)) == 4
    assert len({item.pop("id") for item in both}) == 8
    assert streamed == whole["output"]
    assert whole["status"] == "completed"


async def test_a_response_cut_inside_a_call_is_incomplete(world: World) -> None:
    world.say(CALLS)
    limit = len(world.tokenizer.encode(CALLS.partition("9")[0]))
    whole = await world.whole(RESPONSES, **ASK_RESPONSE, max_output_tokens=limit)
    answer = await world.ask(RESPONSES, **ASK_RESPONSE, max_output_tokens=limit, stream=True)
    items = items_of(named_events(answer.text))
    assert whole["status"] == "incomplete"
    for item in (whole["output"][-1], items[-1]):
        assert (item["type"], item["status"]) == ("function_call", "incomplete")
        with pytest.raises(ValueError):
            json.loads(item["arguments"])


# -- what is asked of the engine


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "any"}, "required"),
        ({"type": "tool", "name": "add"}, {"type": "function", "function": {"name": "add"}}),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize("parallel", [True, False])
async def test_choices_are_those_of_chat_completions(
    world: World, theirs: dict[str, Any], ours: Any, parallel: bool
) -> None:
    """The same request reaches the engine by all three ways, constraint and all."""
    world.say(CALLS_AT_ONCE)
    off = {"type": "disabled"}
    tool = {"type": "function", "function": {"name": "add", "description": "sum"}}
    tool["function"]["parameters"] = ADDS  # type: ignore[index]
    await world.whole(
        CHAT,
        tools=[tool],
        tool_choice=ours,
        parallel_tool_calls=parallel,
        thinking=off,
        seed=1,
        max_tokens=200,
    )
    choice = {**theirs, "disable_parallel_tool_use": not parallel}
    await world.whole(MESSAGES, **ASK, tool_choice=choice, seed=1)
    if isinstance(ours, dict):
        ours = {"type": "function", "name": "add"}
    await world.whole(
        RESPONSES,
        **ASK_RESPONSE,
        tool_choice=ours,
        parallel_tool_calls=parallel,
        seed=1,
        chat_template_kwargs={"enable_thinking": False},
        max_output_tokens=200,
    )
    asked = [reply.request for reply in world.engine.replies]
    assert len(asked) == 3
    assert len({(one.prompt, one.sampling, one.max_tokens) for one in asked}) == 1


async def test_a_format_is_that_of_chat_completions(world: World) -> None:
    world.say("{}")
    schema = {"type": "object"}
    form = {"type": "json_schema", "schema": schema}
    await world.whole(
        CHAT,
        seed=1,
        max_tokens=9,
        thinking={"type": "disabled"},
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": schema, "strict": True},
        },
    )
    plain: dict[str, Any] = {"messages": HELLO, "max_tokens": 9, "seed": 1}
    await world.whole(MESSAGES, **plain, output_config={"format": form})
    await world.whole(MESSAGES, **plain, output_format=form)
    await world.whole(
        RESPONSES,
        input="hi",
        max_output_tokens=9,
        seed=1,
        chat_template_kwargs={"enable_thinking": False},
        text={"format": {**form, "name": "output", "strict": True}},
    )
    asked = [reply.request for reply in world.engine.replies]
    assert len({(one.prompt, one.sampling) for one in asked}) == 1
    begun = [*HELLO, {"role": "assistant", "content": "{"}]
    for fields in ({"output_format": form}, {"tools": [THEIRS], "tool_choice": {"type": "any"}}):
        error = await world.refused(400, MESSAGES, **plain | {"messages": begun}, **fields)
        assert error["param"] == "messages"


async def test_a_budget_of_thinking_is_that_of_chat_completions(world: World) -> None:
    world.say("a</think>b")
    thinking = {"type": "enabled", "budget_tokens": 1024}
    await world.whole(CHAT, max_tokens=9, thinking=thinking, seed=1)
    await world.whole(MESSAGES, messages=HELLO, max_tokens=9, thinking=thinking, seed=1)
    chat, message = [reply.request for reply in world.engine.replies]
    assert (message.prompt, message.sampling) == (chat.prompt, chat.sampling)
    await world.whole(
        MESSAGES, messages=HELLO, max_tokens=9, thinking=thinking | {"budget_tokens": 7}
    )
    assert world.engine.replies[-1].request.sampling != chat.sampling


async def test_tools_are_counted(world: World) -> None:
    world.say("a")
    fields = {"messages": HELLO, "tools": [THEIRS], "tool_choice": {"type": "auto"}}
    counted = (await world.ask(COUNT_TOKENS, **fields)).json()["input_tokens"]
    whole = await world.whole(MESSAGES, **fields, max_tokens=5)
    assert counted == whole["usage"]["input_tokens"]
    assert counted > (await world.ask(COUNT_TOKENS, messages=HELLO)).json()["input_tokens"]


# -- errors name what the client sent


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [THEIRS, THEIRS]}, "tools[1].name"),
        ({"tools": [THEIRS | {"name": "a b"}]}, "tools[0].name"),
        ({"tools": [THEIRS], "tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name"),
        ({"output_config": {"effort": "x" * 65}}, "output_config.effort"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_error_names_the_field_of_a_message(
    world: World, fields: dict[str, Any], param: str
) -> None:
    error = await world.refused(400, MESSAGES, messages=HELLO, max_tokens=9, **fields)
    assert error["param"] == param
    assert param in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [OURS, OURS]}, "tools[1].name"),
        ({"tools": [OURS | {"name": "a b"}]}, "tools[0].name"),
        ({"tools": [OURS], "tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"reasoning": {"effort": "x" * 65}}, "reasoning.effort"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_error_names_the_field_of_a_response(
    world: World, fields: dict[str, Any], param: str
) -> None:
    error = await world.refused(400, RESPONSES, input="hi", **fields)
    assert error["param"] == param
    assert param in error["message"]


async def test_without_the_grammar_library_a_forced_call_is_refused(make: Make) -> None:
    world = make(grammars=False)
    error = await world.refused(400, MESSAGES, **ASK, tool_choice={"type": "any"})
    assert error["param"] == "tool_choice"
    form = {"format": {"type": "json_schema", "schema": {}}}
    error = await world.refused(400, MESSAGES, messages=HELLO, max_tokens=9, output_config=form)
    assert error["param"].startswith("output_config.format")
    error = await world.refused(400, RESPONSES, input="hi", text=form | {})
    assert error["param"].startswith("text.format")
