"""Every field of Anthropic's Messages and of OpenAI's Responses has one verdict, and it holds."""

from __future__ import annotations

from typing import Any

import anthropic.types.beta.message_create_params as beta_params
import anthropic.types.message_count_tokens_params as count_params
import anthropic.types.message_create_params as message_params
import openai.types.responses.response_create_params as response_params
import pytest

from streamglm.edge import anthropic_fields, responses_fields
from streamglm.edge.anthropic_fields import COUNT_TOKENS, MESSAGES
from streamglm.edge.fields import Field, Verdict
from streamglm.edge.responses_fields import RESPONSES
from support.walk import Walk, top
from support.world import HELLO, World

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"name": "add", "input_schema": SCHEMA}
NO_BLOCKS: list[Any] = [[], [{}], [7], [{"type": 5}]]
NO_CONTENT: list[Any] = [None, 5, {}, [{}], ["x"]]
# what all three APIs have under one name
SHARED_RIGHT: dict[str, list[Any]] = {
    "model": ["tiny"],
    "stream": [True, False],
    "temperature": [0, 1.5],
    "top_p": [1, 0.001],
    "top_k": [-1, 0, 40],
    "min_p": [0, 0.5, 1],
    "seed": [0, 2**63 - 1],
    "stop": ["a", ["a", "b"]],
    "repetition_penalty": [1, 1.3],
    "presence_penalty": [-2, 2],
    "frequency_penalty": [-2, 2],
    "logit_bias": [{}, {"5": 100}],
    "allowed_token_ids": [[5], [0, 2047]],
    "ignore_eos": [True],
    "return_token_ids": [True],
    "learn": [True, False],
    "draft": [True, False],
    "chat_template_kwargs": [{}, {"clear_thinking": True}],
    "priority": ["background", "foreground", 0],
    "cache_salt": ["a"],
}
SHARED_WRONG: dict[str, list[Any]] = {
    "model": [1, ["tiny"]],
    "stream": [1, "true"],
    "temperature": [-0.1, 2.1, "1", True],
    "top_p": [0, 1.01, "1"],
    "top_k": [-2, 1.5, "4"],
    "min_p": [-0.1, 1.1],
    "seed": [-1, 2**63, 1.5],
    "stop": ["", [""], 5, ["x"] * 17],
    "repetition_penalty": [0, "1"],
    "presence_penalty": [-2.1, "0"],
    "frequency_penalty": [2.001, []],
    "logit_bias": [[], {"x": 1}, {"5": 101}],
    "allowed_token_ids": [[], [2048], 5],
    "ignore_eos": [1],
    "return_token_ids": ["yes"],
    "learn": [1],
    "draft": [],
    "chat_template_kwargs": [[], "x", {"messages": []}],
    "priority": [1, "high"],
    "cache_salt": ["", 5],
}
ANTHROPIC_RIGHT: dict[str, Any] = SHARED_RIGHT | {
    "messages": [[{"role": "user", "content": [{"type": "text", "text": "x"}]}]],
    "system": ["", "be brief", [], [{"type": "text", "text": "x", "cache_control": {}}]],
    "max_tokens": [1],
    "stop_sequences": [[], ["a"], ["x"] * 16],
    "tools": [[], [TOOL], [TOOL | {"type": "custom", "cache_control": {"type": "ephemeral"}}]],
    "tool_choice": [{"type": "auto"}, {"type": "none"}],
    "thinking": [
        {"type": "disabled"},
        {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
        {"type": "adaptive"},
    ],
    "output_config": [{}, {"effort": "low"}, {"effort": "xhigh", "format": None}],
    "output_format": [],
    "context_management": [
        {},
        {"edits": []},
        {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    ],
}
ANTHROPIC_WRONG: dict[str, Any] = SHARED_WRONG | {
    "messages": [
        *([], "hi", {}, [{}], [{"role": "wizard", "content": "x"}], [{"role": "user"}]),
        *([{"role": "user", "content": blocks}] for blocks in NO_BLOCKS),
        [{"role": "user", "content": [{"type": "image", "source": {}}]}],
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}],
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": 5}]}],
        [
            {"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]},
            *HELLO,
        ],
        [{"role": "assistant", "content": "alone"}],
    ],
    "system": [5, {}, [{"type": "image"}], [{"type": "text"}]],
    "max_tokens": [0, -1, "8", 1.5, True, 2**40],
    "stop_sequences": ["a", [""], [5], ["x"] * 17],
    "tools": [
        *({}, [{}], [{"name": "f"}], [{"name": "", "input_schema": {}}], [TOOL | {"name": 5}]),
        [{"type": "web_search_20250305", "name": "web_search"}],
    ],
    "tool_choice": ["auto", {}, {"type": "some"}, {"type": "tool"}, {"type": "any"}],
    "thinking": [True, {}, {"type": "enabled", "budget_tokens": 0}, {"type": "between_tools"}],
    "output_config": ["x", {"effort": 5}, {"other": 1}, {"format": {"type": "text"}}],
    "output_format": ["x", {"type": "json_schema"}],
    "context_management": [
        "x",
        {"edits": [{"type": "clear_tool_uses_20250919"}]},
        {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns"}}]},
    ],
}
ANTHROPIC_WANTED: dict[str, Any] = {
    "speed": "fast",
    "container": "c1",
    "mcp_servers": [{"type": "url", "url": "x", "name": "n"}],
    "fallbacks": [{"model": "m"}],
    "compaction": {"enabled": True},
    "thread": {"id": "t"},
}
RESPONSES_RIGHT: dict[str, Any] = SHARED_RIGHT | {
    "input": ["x", [{"role": "user", "content": "x"}]],
    "instructions": ["", "be brief"],
    "max_output_tokens": [1],
    "stream_options": [{}, {"include_obfuscation": False}],
    "tools": [[], [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": None}]],
    "tool_choice": ["auto", "none"],
    "parallel_tool_calls": [True],
    "reasoning": [
        {},
        {"effort": "low", "summary": "auto"},
        {"mode": "standard"},
    ],
    "text": [{}, {"format": {"type": "text"}, "verbosity": "medium"}],
    "include": [[], ["reasoning.encrypted_content"]],
}
RESPONSES_WRONG: dict[str, Any] = SHARED_WRONG | {
    "input": [
        *([], 5, {}, [5], [{"type": "computer_call"}], [{"type": 5}]),
        *([{"role": role, "content": "x"}] for role in ("tool", "wizard", 5, None)),
        *([{"role": "user", "content": content}] for content in NO_CONTENT),
        [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
        [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "not json"}],
        [{"type": "function_call", "name": "f", "arguments": "{}"}],
        [{"type": "function_call_output", "call_id": "c"}],
        [{"type": "item_reference", "id": "x"}],
        [{"type": "reasoning", "summary": [], "encrypted_content": "streamglm-plain:%%"}],
    ],
    "instructions": [5, []],
    "max_output_tokens": [0, "8", True],
    "stream_options": [[], {"include_usage": True}],
    "tools": [{}, [{}], [{"type": "function"}], [{"type": "web_search"}], [{"type": "custom"}]],
    "tool_choice": ["any", {}, {"type": "file_search"}, "required"],
    "parallel_tool_calls": ["yes"],
    "reasoning": ["low", {"effort": 5}, {"mode": "pro"}, {"other": 1}],
    "text": ["x", {"verbosity": "low"}, {"format": {"type": "grammar"}}, {"other": 1}],
    "include": ["x", ["message.output_text.logprobs"], [5]],
}
RESPONSES_WANTED: dict[str, Any] = {
    "store": True,
    "previous_response_id": "resp_1",
    "conversation": "conv_1",
    "prompt": {"id": "p"},
    "background": True,
    "background_options": {"completion_window": "soonest"},
    "truncation": "auto",
    "context_management": [{"type": "compaction"}],
    "top_logprobs": 3,
    "moderation": {"model": "m"},
    "image": {"context_compression": "auto"},
    "access_programs": {"cyber": "standard"},
}
WALKS = (
    Walk(
        MESSAGES,
        anthropic_fields.FIELDS,
        {"messages": HELLO, "max_tokens": 8},
        ANTHROPIC_WANTED,
        ANTHROPIC_RIGHT,
        ANTHROPIC_WRONG,
    ),
    Walk(
        COUNT_TOKENS,
        anthropic_fields.FIELDS,
        {"messages": HELLO},
        ANTHROPIC_WANTED,
        ANTHROPIC_RIGHT,
        ANTHROPIC_WRONG,
    ),
    Walk(
        RESPONSES,
        responses_fields.FIELDS,
        {"input": "hi"},
        RESPONSES_WANTED,
        RESPONSES_RIGHT,
        RESPONSES_WRONG,
    ),
)
OFFICIAL = [
    (MESSAGES, message_params.MessageCreateParamsBase),
    (MESSAGES, beta_params.MessageCreateParamsBase),
    (COUNT_TOKENS, count_params.MessageCountTokensParams),
    (RESPONSES, response_params.ResponseCreateParamsBase),
]
HEADERS = {"betas", "user_profile_id", "workspace_id"}
"""Parameters of the official client that travel as headers."""


def rows(*verdicts: Verdict) -> list[Any]:
    return [
        pytest.param(walk, field, id=f"{walk.route.removeprefix('/v1/')} {field.name}")
        for walk in WALKS
        for verdict in verdicts
        for field in walk.rows(verdict)
    ]


@pytest.fixture(autouse=True)
def reply(world: World) -> None:
    world.say("a")


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.route)
def test_a_field_has_one_verdict_on_a_route(walk: Walk) -> None:
    names = [field.name for field in walk.fields if walk.route in field.routes]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("route", "params"), OFFICIAL)
def test_every_field_of_the_official_client_has_a_verdict(route: str, params: Any) -> None:
    (walk,) = [walk for walk in WALKS if walk.route == route]
    known = {field.name for field in walk.fields if route in field.routes}
    assert set(params.__annotations__) - HEADERS <= known


@pytest.mark.parametrize(("walk", "field"), rows(Verdict.REFUSED))
async def test_a_refused_field_is_named_and_may_ask_for_nothing(
    world: World, walk: Walk, field: Field
) -> None:
    wanted = {field.name: walk.wanted[field.name]}
    assert await walk.status(world, **wanted) == (400, field.name)
    assert world.engine.replies == []
    for value in (None, *field.neutral):
        assert await walk.status(world, **{field.name: value}) == (200, None)


@pytest.mark.parametrize(("walk", "field"), rows(Verdict.INERT))
async def test_an_inert_field_changes_nothing(world: World, walk: Walk, field: Field) -> None:
    seed = {} if walk.route == COUNT_TOKENS else {"seed": 1}
    for value in (None, True, "x", {"a": [1]}):
        assert await walk.status(world, **seed, **{field.name: value}) == (200, None)
    asked = [reply.request for reply in world.engine.replies]
    assert len({(one.prompt, one.sampling, one.max_tokens, one.stop_ids) for one in asked}) <= 1


@pytest.mark.parametrize(("walk", "field"), rows(Verdict.HONOURED))
async def test_an_honoured_field_has_a_type_and_a_range(
    world: World, walk: Walk, field: Field
) -> None:
    for value in walk.right[field.name]:
        assert await walk.status(world, **{field.name: value}) == (200, None), value
    for value in walk.wrong[field.name]:
        status, param = await walk.status(world, **{field.name: value})
        assert (status, top(param)) == (400, field.name), value


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.route)
async def test_an_unknown_field_is_named(world: World, walk: Walk) -> None:
    assert await walk.status(world, max_token=5) == (400, "max_token")


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.route)
async def test_another_model_is_not_found(world: World, walk: Walk) -> None:
    assert await walk.status(world, model="other") == (404, "model")
