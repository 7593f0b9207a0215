"""A reply that is held to a form has it, even of a model that draws at random (CO-33).

Drafts, neighbours and streaming change nothing of it, and a form that cannot be compiled changes
nothing for others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from support.schemas import SCHEMAS
from support.server import Server, serving
from support.talk import ids

HELLO = [{"role": "user", "content": "hi"}]
POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "minimum": 0, "maximum": 90},
        "side": {"enum": ["left", "right"]},
        "on": {"type": "boolean"},
        "note": {"type": "string", "maxLength": 5},
    },
    "required": ["x", "side", "on"],
}
TOOLS = [
    {"type": "function", "function": {"name": "point", "parameters": POINT}},
    {
        "type": "function",
        "function": {"name": "rest", "parameters": {"type": "object", "properties": {}}},
    },
]
POINTED = {"type": "function", "function": {"name": "point"}}
OFF = {"thinking": {"type": "disabled"}}
SLOW = {"enum": [f"value {i:07}" for i in range(10_000)]}
"""A schema that is small enough to be tried and takes longer than it may."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("nano", "--context", "2048", "--parallel", "4", "--drafts", "3") as running:
        yield running


def content(reply: dict[str, Any]) -> str:
    """The answer of a reply that ended by itself."""
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "stop", choice
    text = choice["message"]["content"]
    assert isinstance(text, str)
    return text


@pytest.mark.slow
def test_fifty_schemas(server: Server) -> None:
    def judged(case: tuple[int, Any]) -> str:
        seed, schema = case
        reply = server.chat(HELLO, seed=seed, max_tokens=1500, guided_json=schema, **OFF)
        text = content(reply)
        Draft202012Validator(schema).validate(json.loads(text))
        return text

    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(judged, enumerate(SCHEMAS)))
    assert len(texts) >= 50
    assert len(set(texts)) > 40, "the replies are drawn, not forced"


def test_a_regular_expression_and_a_choice(server: Server) -> None:
    for seed in range(3):
        form = "[0-9]{3}-[a-f]{1,9}x"
        text = content(server.chat(HELLO, seed=seed, guided_regex=form, **OFF))
        assert re.fullmatch(form, text)
        chosen = {"choice": ["red", "green", "blue"]}
        assert content(server.chat(HELLO, seed=seed, structured_outputs=chosen, **OFF)) in (
            "red",
            "green",
            "blue",
        )
    text = content(server.chat(HELLO, guided_grammar='root ::= "a" | "b" root "c"', **OFF))
    assert re.fullmatch("b*ac*", text)


@pytest.mark.parametrize("choice", ["required", POINTED])
def test_a_call_that_is_required_is_made(server: Server, choice: Any) -> None:
    for seed in range(4):
        reply = server.chat(
            HELLO,
            seed=seed,
            tools=TOOLS,
            tool_choice=choice,
            parallel_tool_calls=False,
            thinking_token_budget=6,
            max_tokens=600,
        )
        message = reply["choices"][0]["message"]
        assert reply["choices"][0]["finish_reason"] == "tool_calls", message
        (call,) = message["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        assert (message["content"], call["function"]["name"] in ("point", "rest")) == (None, True)
        if call["function"]["name"] == "point":
            Draft202012Validator(POINT).validate(arguments)
        else:
            assert choice == "required"


@pytest.mark.parametrize("held", [{}, {"guided_json": POINT}], ids=["free", "held"])
def test_thought_comes_first_and_ends_with_its_budget(server: Server, held: dict[str, Any]) -> None:
    (tag,) = server.post("/tokenize", {"prompt": "</think>"})["tokens"]
    reply = server.chat(
        HELLO,
        seed=3,
        max_tokens=60 if not held else 600,
        thinking_token_budget=9,
        logit_bias={str(tag): -100},  # never by itself
        **held,
    )
    message = reply["choices"][0]["message"]
    assert ids(reply)[9] == tag
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 10
    assert message["reasoning_content"]
    if held:
        Draft202012Validator(POINT).validate(json.loads(content(reply)))


def test_drafts_neighbours_and_streams_change_nothing(server: Server) -> None:
    body = {
        "seed": 11,
        "max_tokens": 400,
        "thinking_token_budget": 12,
        "guided_json": {"type": "array", "items": POINT, "minItems": 2, "maxItems": 3},
    }
    alone = server.chat(HELLO, **body)
    serial = server.chat(HELLO, draft=False, **body)
    with ThreadPoolExecutor(4) as pool:
        beside = [
            pool.submit(server.chat, HELLO, **(body | {"seed": seed})) for seed in (11, 12, 13, 11)
        ]
        replies = [one.result() for one in beside]
    assert ids(alone) == ids(serial) == ids(replies[0]) == ids(replies[3])
    assert ids(alone) != ids(replies[1])
    streamed = "".join(
        choice["delta"].get("content", "")
        for chunk in _events(server, {"messages": HELLO, **body})
        for choice in chunk["choices"]
    )
    assert streamed == content(alone)


@pytest.mark.slow
def test_a_form_that_cannot_be_compiled_disturbs_nobody(server: Server) -> None:
    quiet = {"seed": 5, "max_tokens": 300, "ignore_eos": True}
    alone = server.chat(HELLO, **quiet)
    with ThreadPoolExecutor(4) as pool, server.client() as client:
        beside = pool.submit(server.chat, HELLO, **quiet)
        for schema, words in (
            ({"properties": {"a": []}}, "neither an object"),
            ({"type": "array", "items": 3}, "neither an object"),
            ({"type": "string", "pattern": "(["}, "Unclosed"),
            ({"$ref": "#/nowhere"}, "nowhere"),
            ({"$ref": "#"}, "Circular"),
            ({"enum": ["x" * 100] * 10_000}, "at most 262144"),
            (SLOW, "more than 4 s"),
        ):
            named = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
            answer = client.post(
                "/v1/chat/completions", json={"messages": HELLO, "response_format": named}
            )
            assert answer.status_code == 400, schema
            assert words in answer.json()["error"]["message"]
            assert answer.elapsed.total_seconds() < 20, "5 s, and a machine under load"
        assert ids(beside.result()) == ids(alone)
    assert content(server.chat(HELLO, guided_choice=["still here"], **OFF)) == "still here"
    recursive = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}},
        "additionalProperties": False,
    }
    deep = server.chat(HELLO, guided_json=recursive, max_tokens=300, **OFF)["choices"][0]
    text = deep["message"]["content"]
    if deep["finish_reason"] == "length":  # it may go on for ever, and within its form
        assert ('{"next": ' * 300).startswith(text)
    else:
        Draft202012Validator(recursive).validate(json.loads(text))


def _events(server: Server, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with (
        server.client() as client,
        client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as answer,
    ):
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line[6:])
