"""One conversation in three APIs on a real server: one prompt, one reply, one hash."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from support.server import Server

LIMIT = 40
DRAWN: dict[str, Any] = {"seed": 11, "ignore_eos": True, "return_token_ids": True}
SYSTEM = "You count. " * 12
ASKED = "How many legs has a spider?"
THOUGHT, ANSWER = "It has eight.", "Eight."


@pytest.fixture
def ours(nano: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=nano.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def theirs(nano: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=nano.url, api_key="none", max_retries=0) as made:
        yield made


def chat(client: openai.OpenAI, last: str) -> dict[str, Any]:
    reply = client.chat.completions.create(
        model="nano",
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": ASKED},
            {"role": "assistant", "content": ANSWER, "reasoning_content": THOUGHT},  # type: ignore[list-item]
            {"role": "user", "content": last},
        ],
        max_completion_tokens=LIMIT,
        temperature=0.7,
        extra_body=DRAWN,
    )
    return reply.model_dump()


def message_body(last: str) -> dict[str, Any]:
    return {
        "model": "nano",
        "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": ASKED},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": THOUGHT, "signature": "s"},
                    {"type": "text", "text": ANSWER},
                ],
            },
            {"role": "user", "content": [{"type": "text", "text": last}]},
        ],
        "max_tokens": LIMIT,
        "thinking": {"type": "adaptive"},
        "extra_body": {"temperature": 0.7, **DRAWN},  # this client has no word for it any more
    }


def response_body(last: str) -> dict[str, Any]:
    return {
        "model": "nano",
        "instructions": SYSTEM,
        "input": [
            {"role": "user", "content": ASKED},
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": THOUGHT}],
            },
            {"role": "assistant", "content": ANSWER},
            {"role": "user", "content": [{"type": "input_text", "text": last}]},
        ],
        "max_output_tokens": LIMIT,
        "temperature": 0.7,
        "extra_body": DRAWN,
    }


def test_a_reply_has_the_same_hash_through_all_three(
    ours: openai.OpenAI, theirs: anthropic.Anthropic
) -> None:
    """Cold in the first, resumed in the others, which say so each in its own words."""
    last = "And an ant?"
    first = chat(ours, last)
    message = theirs.messages.create(**message_body(last)).model_dump()
    response = ours.responses.create(**response_body(last)).model_dump()
    assert message["prompt_token_ids"] == response["prompt_token_ids"] == first["prompt_token_ids"]
    shas = {reply["streamglm"]["token_sha"] for reply in (first, message, response)}
    assert len(shas) == 1
    prompt = first["usage"]["prompt_tokens"]
    cached = message["usage"]["cache_read_input_tokens"]
    assert message["usage"]["input_tokens"] + cached == prompt
    assert response["usage"]["input_tokens"] == prompt
    assert 0 < cached == response["usage"]["input_tokens_details"]["cached_tokens"]
    assert (message["stop_reason"], response["status"]) == ("max_tokens", "incomplete")
    said = first["choices"][0]["message"]
    texts = [block.get("thinking", block.get("text")) for block in message["content"]]
    items = [item["content"][0]["text"] for item in response["output"]]
    assert texts == items == [text for text in (said["reasoning_content"], said["content"]) if text]


def test_a_stream_has_the_hash_of_the_whole_reply(
    ours: openai.OpenAI, theirs: anthropic.Anthropic
) -> None:
    last = "And a bee?"
    sha = chat(ours, last)["streamglm"]["token_sha"]
    *_, stop = theirs.messages.create(**message_body(last), stream=True)
    assert stop.type == "message_stop"
    assert (stop.model_extra or {})["streamglm"]["token_sha"] == sha
    *_, done = ours.responses.create(**response_body(last), stream=True)
    assert done.type == "response.incomplete"
    assert (done.response.model_extra or {})["streamglm"]["token_sha"] == sha


def test_without_thinking_two_apis_agree_as_well(nano: Server) -> None:
    asked = [{"role": "user", "content": ASKED}]
    fields = {"messages": asked, "max_tokens": LIMIT, **DRAWN}
    message = nano.post("/v1/messages", fields)
    plain = nano.chat(
        asked, max_tokens=LIMIT, **DRAWN, chat_template_kwargs={"enable_thinking": False}
    )
    assert message["streamglm"]["token_sha"] == plain["streamglm"]["token_sha"]
    assert [block["type"] for block in message["content"]] == ["text"]
    counted = nano.post("/v1/messages/count_tokens", {"messages": asked})
    assert counted["input_tokens"] == plain["usage"]["prompt_tokens"]


def test_a_client_that_leaves_a_message_gives_its_lane_back(nano: Server) -> None:
    body = {
        "messages": [{"role": "user", "content": ASKED}],
        "max_tokens": 4000,
        "ignore_eos": True,
        "stream": True,
    }
    for path, sent in (
        ("/v1/messages", body),
        ("/v1/responses", {"input": ASKED, "ignore_eos": True, "stream": True}),
    ):
        with nano.client() as client, client.stream("POST", path, json=sent) as answer:
            lines = answer.iter_lines()
            assert any("delta" in line for line in lines)
        nano.wait_idle()


ADDS = {"type": "object", "properties": {"a": {"enum": [4, 9]}}, "required": ["a"]}


@pytest.mark.slow
def test_a_forced_call_is_the_same_call_in_all_three(
    ours: openai.OpenAI, theirs: anthropic.Anthropic
) -> None:
    """The random model has to call: the constraint is the engine's, the spelling each API's."""
    pytest.importorskip("xgrammar")
    function = {"name": "add", "description": "d", "parameters": ADDS}
    asked = [{"role": "user", "content": ASKED}]
    chat_fields: dict[str, Any] = {
        "model": "nano",
        "messages": asked,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_completion_tokens": 400,
        "extra_body": {"seed": 5, "thinking": {"type": "disabled"}},
    }
    message_fields: dict[str, Any] = {
        "model": "nano",
        "messages": asked,
        "tools": [{"name": "add", "description": "d", "input_schema": ADDS}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "max_tokens": 400,
        "extra_body": {"seed": 5},
    }
    response_fields: dict[str, Any] = {
        "model": "nano",
        "input": ASKED,
        "tools": [{"type": "function", **function}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_output_tokens": 400,
        "extra_body": {"seed": 5, "chat_template_kwargs": {"enable_thinking": False}},
    }
    said = ours.chat.completions.create(**chat_fields).model_dump()
    message = theirs.messages.create(**message_fields).model_dump()
    response = ours.responses.create(**response_fields).model_dump()
    (call,) = said["choices"][0]["message"]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert list(arguments) == ["a"]
    (block,) = message["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "add", arguments)
    assert message["stop_reason"] == "tool_use"
    (item,) = response["output"]
    assert (item["name"], json.loads(item["arguments"])) == ("add", arguments)
    shas = {reply["streamglm"]["token_sha"] for reply in (said, message, response)}
    assert len(shas) == 1


def test_a_budget_closes_the_thought_of_a_message(theirs: anthropic.Anthropic) -> None:
    message = theirs.messages.create(
        model="nano",
        messages=[{"role": "user", "content": ASKED}],
        thinking={"type": "enabled", "budget_tokens": 6},
        max_tokens=20,
        extra_body={"seed": 3, "ignore_eos": True},
    ).model_dump()
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    assert message["usage"]["output_tokens_details"]["thinking_tokens"] <= 7
