"""Every field has one verdict, and the verdict holds (the table in `edge/fields.py`)."""

from __future__ import annotations

from typing import Any

import openai.types.chat.completion_create_params as chat_params
import openai.types.completion_create_params as completion_params
import pytest

from streamglm.edge.fields import FIELDS, ROUTES, Field, Verdict
from support.world import CHAT, COMPLETIONS, World

GIVEN: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    COMPLETIONS: {"prompt": "hi"},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [1]},
}
# a value that a client would really send, for each refused field
WANTED: dict[str, Any] = {
    "skip_special_tokens": False,
    "n": 2,
    "best_of": 3,
    "prompt_logprobs": 1,
    "echo": True,
    "suffix": "end",
    "functions": [{"name": "f"}],
    "function_call": "auto",
    "min_tokens": 4,
    "stop_token_ids": [3],
    "include_stop_str_in_output": True,
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "wav"},
    "verbosity": "low",
    "web_search_options": {},
    "moderation": {"model": "m"},
    "add_generation_prompt": False,
    "continue_final_message": True,
    "chat_template": "{{ 1 }}",
    "documents": [{"text": "x"}],
}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
# values that are right, wrong in kind, and out of range, for each honoured field of a generation
RIGHT: dict[str, list[Any]] = {
    "draft": [True, False],
    "model": ["tiny"],
    "max_tokens": [1],
    "max_completion_tokens": [1],
    "temperature": [0, 0.0, 2, 1.5],
    "top_p": [1, 0.001],
    "top_k": [-1, 0, 40],
    "min_p": [0, 0.5, 1],
    "seed": [0, 2**63 - 1],
    "repetition_penalty": [1, 0.01, 1.3, 100],
    "presence_penalty": [-2, 0, 0.5, 2],
    "frequency_penalty": [-2, 0.0, 2],
    "logit_bias": [{}, {"0": -100, "5": 100, "2047": 0.5}, {str(i): 1 for i in range(512)}],
    "allowed_token_ids": [[5], [0, 2047], [7, 7]],
    "chat logprobs": [True, False],
    "top_logprobs": [0],
    "completions logprobs": [0, 5, 20],
    "stop": ["a", [], ["a", "b"], ["x"] * 16, "x" * 1000],
    "stream": [True, False],
    "stream_options": [{}, {"include_usage": True}, {"include_obfuscation": True}],
    "ignore_eos": [True],
    "return_token_ids": [True],
    "tools": [[], [TOOL], [{"type": "function", "function": {"name": "mcp.a/b-c_1"}}]],
    "tool_choice": ["auto", "none"],
    "parallel_tool_calls": [True, False],
    "thinking": [
        *({"type": "enabled"}, {"type": "disabled"}, {"type": "enabled", "budget_tokens": 5}),
        {"type": "enabled", "clear_thinking": True},
    ],
    "thinking_token_budget": [0, 1, 2**31 - 1],
    "response_format": [
        *({"type": "text"}, {"type": "json_object"}),
        {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
    ],
    "structured_outputs": [
        *({"json": SCHEMA}, {"regex": "a+"}, {"choice": ["a"]}, {"grammar": 'root ::= "a"'}),
        {"json_object": True, "disable_any_whitespace": True},
    ],
    "guided_json": [{}, SCHEMA, '{"type": "object"}', True],
    "guided_regex": ["[ab]+"],
    "guided_choice": [["a"], ["a", "b"]],
    "guided_grammar": ['root ::= "a"'],
    "reasoning_effort": ["none", "minimal", "low", "xhigh"],
    "chat_template_kwargs": [{}, {"clear_thinking": True}],
    "priority": ["background", "foreground", 0],
    "cache_salt": ["a", "x" * 256],
    "learn": [True, False],
    "messages": [],
    "prompt": [],
}
WRONG: dict[str, list[Any]] = {
    "draft": [0, "false", []],
    "model": [1, ["tiny"]],
    "max_tokens": [-1, 0, "8", 1.5, True, [], 2**40],
    "max_completion_tokens": [0, "8", True],
    "temperature": [-0.1, 2.1, "1", True, []],
    "top_p": [0, 1.01, -1, "1"],
    "top_k": [-2, 1.5, "4", True],
    "min_p": [-0.1, 1.1],
    "seed": [-1, 2**63, 1.5, "1", True],
    "repetition_penalty": [0, -1, 0.001, 101, "1", True],
    "presence_penalty": [-2.1, 2.1, "0", True],
    "frequency_penalty": [-3, 2.001, [], False],
    "logit_bias": [
        *([], "x", {"2048": 1}, {"-1": 1}, {"x": 1}, {"05": 1}, {"٣": 1}, {"1.0": 1}, {"": 1}),
        *({"5": 100.5}, {"5": -101}, {"5": "1"}, {"5": None}, {"5": True}),
        {str(i): 1 for i in range(1025)},
    ],
    "allowed_token_ids": [[], [2048], [-1], ["5"], [1.0], [True], 5, {}],
    "chat logprobs": [1, 0, "true", 3],
    "top_logprobs": [-1, 21, 1.0, "3", True, 5],
    "completions logprobs": [-1, 21, True, False, "3", 1.5],
    "stop": ["", [""], 5, ["x"] * 17, "x" * 1001, [5], {}],
    "stream": [1, "true", "yes"],
    "stream_options": [[], "x", {"include_usage": 1}, {"other": 1}],
    "ignore_eos": [1],
    "return_token_ids": ["yes"],
    "tools": [
        *(5, "x", {}, [5], [{}], [{"type": "function"}], [{"type": "web", "function": {}}]),
        *([{"type": "function", "function": {"name": name}}] for name in ("", "a b", "<", 5)),
        *([TOOL, TOOL], [TOOL] * 1025, [{**TOOL, "function": {"name": "f", "parameters": []}}]),
    ],
    "tool_choice": [
        *("required", "always", 5, [], {}, {"type": "function"}, {"type": "allowed_tools"}),
        {"type": "function", "function": {"name": "f"}},
    ],
    "parallel_tool_calls": [1, "no", []],
    "thinking": [
        *(True, "x", {}, {"type": "off"}, {"type": "enabled", "budget_tokens": 0}),
        {"type": "enabled", "budget": 5},
    ],
    "thinking_token_budget": [-1, "5", 1.5, True, 2**31],
    "response_format": [
        *("json", [], {}, {"type": 5}, {"type": "structural_tag"}, {"type": "json_schema"}),
        {"type": "json_schema", "json_schema": []},
        {"type": "json_schema", "json_schema": {"name": "x"}},
    ],
    "structured_outputs": [
        *(5, [], {}, {"json": None}, {"regex": ""}, {"regex": 5}, {"choice": []}, {"other": 1}),
        *({"json": {}, "regex": "a"}, {"json_object": False}, {"json": {"type": "x"}}),
    ],
    "guided_json": ["{", 5, [], {"type": 5}, {"properties": {"a": []}}, {"not": {}}],
    "guided_regex": ["", 5, []],
    "guided_choice": ["a", [], [5], [""], ["x"] * 4097],
    "guided_grammar": ["", 5],
    "reasoning_effort": [5, "x" * 65],
    "chat_template_kwargs": [[], "x"],
    "priority": [1, -1, "high", False, ""],
    "cache_salt": ["", "x" * 257, 5],
    "learn": ["no", 0],
    "messages": [[], "hi", {}, 7],
    "prompt": [7, {}],
}


def rows(verdict: Verdict) -> list[Any]:
    """(field, route) of the generation routes, as parameters of a test."""
    return [
        pytest.param(field, route, id=f"{route.rpartition('/v1')[2]} {field.name}")
        for field in FIELDS
        for route in field.routes
        if field.verdict is verdict and route in (CHAT, COMPLETIONS)
    ]


@pytest.fixture(autouse=True)
def reply(world: World) -> None:
    world.say("a")


async def status(world: World, route: str, body: dict[str, Any]) -> tuple[int, Any]:
    answer = await world.http.post(route, json=GIVEN[route] | body)
    assert len(answer.content) < 10_000
    param = answer.json()["error"]["param"] if answer.status_code == 400 else None
    return answer.status_code, param


def test_a_field_has_one_verdict_on_a_route() -> None:
    pairs = [(field.name, route) for field in FIELDS for route in field.routes]
    assert len(pairs) == len(set(pairs))
    assert {route for _, route in pairs} == set(ROUTES)


@pytest.mark.parametrize(
    ("route", "params"), [(CHAT, chat_params), (COMPLETIONS, completion_params)]
)
def test_every_field_of_the_official_client_has_a_verdict(route: str, params: Any) -> None:
    known = {field.name for field in FIELDS if route in field.routes}
    theirs = set(params.CompletionCreateParamsBase.__annotations__) | {"stream"}
    assert theirs <= known


@pytest.mark.parametrize(("field", "route"), rows(Verdict.REFUSED))
async def test_a_refused_field_is_named(world: World, field: Field, route: str) -> None:
    wanted = {field.name: WANTED[field.name]}
    assert await status(world, route, wanted) == (400, field.name)
    assert world.engine.replies == []


@pytest.mark.parametrize(("field", "route"), rows(Verdict.REFUSED))
async def test_a_refused_field_may_ask_for_nothing(world: World, field: Field, route: str) -> None:
    for value in (None, *field.neutral):
        assert await status(world, route, {field.name: value}) == (200, None)


@pytest.mark.parametrize(("name", "value"), [("n", True), ("logprobs", 0)])
async def test_a_value_of_another_type_is_not_neutral(world: World, name: str, value: Any) -> None:
    """In Python True equals 1."""
    assert await status(world, CHAT, {name: value}) == (400, name)


@pytest.mark.parametrize(("field", "route"), rows(Verdict.INERT))
async def test_an_inert_field_changes_nothing(world: World, field: Field, route: str) -> None:
    await world.ask(route, **GIVEN[route], seed=1)
    plain = world.engine.replies[-1].request
    for value in (None, True, "x", {"a": [1]}):
        assert await status(world, route, {field.name: value, "seed": 1}) == (200, None)
        asked = world.engine.replies[-1].request
        assert (asked.prompt, asked.sampling, asked.max_tokens, asked.stop_ids) == (
            plain.prompt,
            plain.sampling,
            plain.max_tokens,
            plain.stop_ids,
        )


@pytest.mark.parametrize(("field", "route"), rows(Verdict.HONOURED))
async def test_an_honoured_field_has_a_type_and_a_range(
    world: World, field: Field, route: str
) -> None:
    name = field.name
    if name == "logprobs":  # the one name with two meanings
        name = "chat logprobs" if route == CHAT else "completions logprobs"
    for value in RIGHT[name]:
        assert (await status(world, route, {field.name: value}))[0] == 200, value
    for value in WRONG[name]:
        code, param = await status(world, route, {field.name: value})
        assert code == 400, value
        assert param.partition(".")[0].partition("[")[0] == field.name


@pytest.mark.parametrize("route", [CHAT, COMPLETIONS])
async def test_priority_and_salt_reach_the_engine(world: World, route: str) -> None:
    await world.ask(route, **GIVEN[route])
    await world.ask(route, **GIVEN[route], priority="background", cache_salt="mine")
    asked = [reply.request for reply in world.engine.replies]
    assert [(one.background, one.salt) for one in asked] == [(False, ""), (True, "mine")]


@pytest.mark.parametrize("route", ROUTES)
async def test_an_unknown_field_is_named(world: World, route: str) -> None:
    assert await status(world, route, {"max_token": 5}) == (400, "max_token")


async def test_a_long_unknown_name_is_cut(world: World) -> None:
    body: dict[str, Any] = {"x" * 50_000: 1}
    error = await world.refused(**body)
    assert len(error["param"]) < 100
    assert len(error["message"]) < 300
