"""Bodies that are no requests, on the routes of the other APIs: a small 400 each (CO-29, CO-30)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamglm.edge import anthropic_fields, responses_fields
from streamglm.edge.anthropic_fields import COUNT_TOKENS, MESSAGES
from streamglm.edge.responses_fields import RESPONSES
from support.said import ADDS
from support.world import HELLO, World

ROUTES = pytest.mark.parametrize("route", [MESSAGES, COUNT_TOKENS, RESPONSES])
BODIES: list[bytes] = [
    *(b"[]", b"null", b"7", b'"x"', b"{", b"", b"\xff\xfe", b"[" * 100_000, b'{"a":NaN}'),
    b'{"messages":[{"role":"user","content":"cut \\ud83d"}],"max_tokens":5}',
    b'{"input":"cut \\ud83d"}',
    b'{"messages":[' + b",".join([b'{"role":"user","content":{"a":1}}'] * 5000) + b"]}",
    b'{"input":[' + b",".join([b'{"role":"user","content":{"a":1}}'] * 5000) + b"]}",
]


def nested(levels: int) -> Any:
    """An object in an object, and so on."""
    return json.loads('{"a":' * levels + "1" + "}" * levels)


@ROUTES
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:12])
async def test_a_body_that_is_no_request_is_a_small_400(
    world: World, route: str, body: bytes
) -> None:
    answer = await world.http.post(
        route, content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert len(answer.content) < 1000
    assert answer.json()["error"]["message"]
    assert world.engine.replies == []


@pytest.mark.parametrize("levels", [150, 300, 450])
@pytest.mark.parametrize("place", ["metadata", "tools", "text"])
async def test_depth_is_told_again_or_refused(world: World, levels: int, place: str) -> None:
    world.say("a")
    deep = nested(levels)
    value = {
        "metadata": deep,
        "tools": [{"type": "function", "name": "f", "parameters": deep}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": deep}},
    }[place]
    for stream in (False, True):
        answer = await world.ask(RESPONSES, input="hi", **{place: value}, stream=stream)
        assert answer.status_code == (200 if levels < 200 else 400)
        if levels > 200:
            assert answer.json()["error"]["param"].startswith(place)


@pytest.mark.parametrize("levels", [300, 900])
async def test_depth_in_a_message_is_no_failure(world: World, levels: int) -> None:
    world.say("a")
    deep = nested(levels)
    call = {"type": "tool_use", "id": "c", "name": "f", "input": deep}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    tools = [{"name": "f", "input_schema": deep}]
    for fields in ({"messages": messages}, {"messages": messages[:1], "tools": tools}):
        answer = await world.ask(MESSAGES, max_tokens=5, **fields)
        assert answer.status_code in (200, 400)


async def test_an_argument_of_any_length_is_told_as_it_was_written(world: World) -> None:
    """A number beyond 64 bits, as a model may write it."""
    number = "123456789012345678901234567890"
    world.say(
        f"<tool_call>add<arg_key>a</arg_key><arg_value>{number}</arg_value>"
        "<arg_key>b</arg_key><arg_value>1</arg_value></tool_call>"
    )
    tools = [{"name": "add", "input_schema": ADDS}]
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 200}
    answer = await world.ask(MESSAGES, **body, tools=tools)
    assert answer.status_code == 200
    (call,) = json.loads(answer.text)["content"]
    assert call["input"] == {"a": int(number), "b": 1}


KEYS = st.sampled_from(
    [
        *("type", "role", "content", "text", "thinking", "signature", "id", "name", "input"),
        *("tool_use_id", "call_id", "arguments", "output", "summary", "encrypted_content"),
        *("input_schema", "parameters", "format", "schema", "effort", "edits", "keep"),
    ]
)
WORDS = st.sampled_from(
    [
        *("user", "assistant", "system", "developer", "text", "input_text", "output_text"),
        *("thinking", "tool_use", "tool_result", "message", "reasoning", "function_call"),
        *("function_call_output", "function", "custom", "enabled", "json_schema", "auto", "any"),
        *("tool", "required", "{}", "", "all", "clear_thinking_20251015", "streamglm-plain:eA=="),
    ]
)
LEAVES = st.none() | st.booleans() | st.integers(-2, 2**40) | st.floats(-9, 9) | WORDS
ANY = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
NAMES = {
    route: sorted(field.name for field in fields if route in field.routes)
    for route, fields in (
        (MESSAGES, anthropic_fields.FIELDS),
        (COUNT_TOKENS, anthropic_fields.FIELDS),
        (RESPONSES, responses_fields.FIELDS),
    )
}


@ROUTES
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
async def test_no_value_of_any_field_is_a_failure(
    world: World, route: str, data: st.DataObject
) -> None:
    """Made of the words of these APIs, in any place: served or refused, in a small answer."""
    world.say("a</think>b")
    given_fields: dict[str, Any] = {"input": "hi"} if route == RESPONSES else {"messages": HELLO}
    if route == MESSAGES:
        given_fields["max_tokens"] = 9
    fields = data.draw(st.dictionaries(st.sampled_from(NAMES[route]), ANY, min_size=1, max_size=2))
    fields.pop("stream", None)
    for stream in (False, True):
        streamed = {} if route == COUNT_TOKENS else {"stream": stream}
        answer = await world.ask(route, **{**given_fields, **fields, **streamed})
        assert answer.status_code in (200, 400, 404)
        assert len(answer.content) < 20_000
        if answer.status_code != 200:
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
            assert answer.json()["error"]["param"] is not None
