"""Messages as agents send them, rendered: seen through /tokenize and /detokenize."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from support.world import COMPLETIONS, World

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 4}'}}
USER = {"role": "user", "content": "hi"}


async def rendered(world: World, messages: list[Any], **body: Any) -> str:
    answer = await world.http.post("/tokenize", json={"messages": messages, **body})
    assert answer.status_code == 200, answer.text
    ids = answer.json()["tokens"]
    assert answer.json()["count"] == len(ids)
    assert answer.json()["max_model_len"] == world.model.context
    back = await world.http.post("/detokenize", json={"tokens": ids})
    text = back.json()["prompt"]
    assert isinstance(text, str)
    return text


async def refused(world: World, messages: list[Any]) -> tuple[str, str]:
    """(param, message) of a refusal, the same on every route that renders."""
    error = await world.refused(messages=messages)
    answer = await world.http.post("/tokenize", json={"messages": messages})
    assert answer.json()["error"] == error
    return error["param"], error["message"]


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


ORDERS: dict[str, tuple[list[Any], str]] = {
    "system in the middle": (
        [USER, said("assistant", "a"), said("system", "be brief"), USER],
        "<|user|>hi<|assistant|><think></think>a<|system|>be brief<|user|>hi",
    ),
    "two systems": (
        [said("system", "one"), said("system", "two"), USER],
        "<|system|>one<|system|>two<|user|>hi",
    ),
    "developer": ([said("developer", "dev"), USER], "<|system|>dev<|user|>hi"),
    "empty system": ([said("system", ""), USER], "<|system|><|user|>hi"),
    "system alone": ([said("system", "alone")], "<|system|>alone"),
    "assistant last": (
        [USER, said("assistant", "a")],
        "<|user|>hi<|assistant|><think></think>a",
    ),
    "two users": ([USER, USER], "<|user|>hi<|user|>hi"),
}


@pytest.mark.parametrize(("messages", "middle"), ORDERS.values(), ids=ORDERS.keys())
async def test_any_order_of_messages_renders(
    world: World, messages: list[Any], middle: str
) -> None:
    """CO-32."""
    head = "[gMASK]<sop><|system|>Reasoning Effort: Max"
    assert await rendered(world, messages) == head + middle + "<|assistant|><think>"


async def test_text_parts_are_joined(world: World) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"]
    joined = await rendered(world, [{"role": "user", "content": parts}])
    assert joined == await rendered(world, [{"role": "user", "content": "abc"}])


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "refusal"])
async def test_other_parts_are_refused_by_their_type(world: World, kind: str) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": kind, kind: {"url": "x"}}]
    param, message = await refused(world, [USER, {"role": "user", "content": parts}])
    assert param == "messages[1].content[1].type"
    assert kind in message


@pytest.mark.parametrize(
    ("part", "param"),
    [
        (7, "messages[0].content[0]"),
        ({}, "messages[0].content[0]"),
        ({"type": 3}, "messages[0].content[0]"),
        ({"type": "text"}, "messages[0].content[0].text"),
        ({"type": "text", "text": 5}, "messages[0].content[0].text"),
    ],
)
async def test_parts_that_are_none_are_named(world: World, part: Any, param: str) -> None:
    assert (await refused(world, [{"role": "user", "content": [part]}]))[0] == param


@pytest.mark.parametrize(
    "absent", [{"content": None}, {"content": ""}, {}], ids=["null", "empty", "missing"]
)
async def test_a_tool_round_trip_renders(world: World, absent: dict[str, Any]) -> None:
    """CO-21: arguments come as JSON in a text; absent content is absent in three spellings."""
    messages = [
        {"role": "user", "content": "4?"},
        {"role": "assistant", "tool_calls": [CALL], **absent},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "13"}]},
    ]
    text = await rendered(world, messages)
    assert "<arg_key>a</arg_key><arg_value>4</arg_value>" in text
    assert "<tool_response>13</tool_response>" in text
    assert text == await rendered(world, [*messages[:2], messages[2] | {"content": "13"}])


def with_arguments(arguments: Any) -> list[Any]:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": arguments}}
    return [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]


@pytest.mark.parametrize("arguments", ["", "  ", "{}", None, {}])
async def test_a_call_without_arguments(world: World, arguments: Any) -> None:
    assert "<tool_call>add</tool_call>" in await rendered(world, with_arguments(arguments))


@pytest.mark.parametrize(
    "arguments",
    ["[1]", "not json", "7", "null", '{"a": NaN}', "[" * 100_000, '{"a": "\\ud83d"}', [1], 3],
    ids=lambda value: str(value)[:12],
)
async def test_arguments_that_are_no_object_are_named(world: World, arguments: Any) -> None:
    param, _ = await refused(world, with_arguments(arguments))
    assert param == "messages[1].tool_calls[0].function.arguments"


async def test_arguments_keep_long_numbers(world: World) -> None:
    text = await rendered(world, with_arguments('{"n": 12345678901234567890123}'))
    assert "12345678901234567890123" in text


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "wizard", "content": "x"}, "messages[0].role"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "tool", "content": None}, "messages[0].content"),
        ({"role": "user", "content": {"a": 1}}, "messages[0].content"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "messages[0].function_call"),
        ({"role": "assistant", "audio": {"id": "x"}}, "messages[0].audio"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
        (
            {"role": "assistant", "tool_calls": [{"type": "x", "function": {"name": "f"}}]},
            "messages[0].tool_calls[0].type",
        ),
        ("hi", "messages[0]"),
    ],
)
async def test_a_bad_message_is_named(world: World, message: Any, param: str) -> None:
    assert (await refused(world, [message]))[0] == param


async def test_what_replies_carry_may_come_back(world: World) -> None:
    """Clients send a message as they got it, with keys of other servers beside."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "4",
        "reasoning_content": "two and two",
        "refusal": None,
        "annotations": [],
        "name": "bot",
        "tool_calls": None,
        "function_call": None,
        "audio": None,
    }
    text = await rendered(world, [USER, message])
    assert "<|assistant|><think>two and two</think>4" in text


async def test_effort_and_variables_reach_the_template(world: World) -> None:
    assert "Effort: Low" in await rendered(world, [USER], reasoning_effort="low")
    kwargs = {"reasoning_effort": "high"}
    assert "Effort: High" in await rendered(world, [USER], chat_template_kwargs=kwargs)
    error = await world.refused(reasoning_effort="low", chat_template_kwargs=kwargs)
    assert error["param"] == "reasoning_effort"
    closed = await rendered(world, [USER], add_generation_prompt=False)
    assert closed.endswith("<|user|>hi")


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
async def test_variables_of_the_server_cannot_be_set(world: World, name: str) -> None:
    error = await world.refused(chat_template_kwargs={name: []})
    assert error["param"] == f"chat_template_kwargs.{name}"


async def test_equal_input_gives_equal_tokens_long_or_short(world: World) -> None:
    """A long body is encoded in a worker thread."""
    world.say("a")
    for size in (3, 30_000):
        prompt = "w12 é🦉 " * (size // 8 + 1)
        ids = (await world.http.post("/tokenize", json={"prompt": prompt})).json()["tokens"]
        await world.ask(COMPLETIONS, prompt=prompt[:2000], max_tokens=1)
        assert tuple(ids[:20]) == world.engine.replies[-1].request.prompt[:20]
        assert world.tokenizer.decode(ids) == prompt


async def test_long_texts_are_encoded_off_the_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    encode = world.tokenizer.encode

    def watched(text: str) -> list[int]:
        threads.append(threading.current_thread())
        return encode(text)

    monkeypatch.setattr(world.tokenizer, "encode", watched)
    for size in (3, 30_000):
        for body in (
            {"prompt": "x" * size},
            {"messages": [{"role": "user", "content": "x" * size}]},
        ):
            await world.http.post("/tokenize", json=body)
    here = threading.current_thread()
    assert [thread is here for thread in threads] == [True, True, False, False]


@pytest.mark.parametrize("prompt", ["text", ["text"], [5, 6, 7], [[5, 6, 7]]])
async def test_a_prompt_is_a_text_or_ids_alone_or_in_a_list(world: World, prompt: Any) -> None:
    world.say("a")
    assert (await world.ask(COMPLETIONS, prompt=prompt)).status_code == 200


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ("", "prompt"),
        ([], "prompt"),
        ([""], "prompt"),
        ([[]], "prompt"),
        (["a", "b"], "prompt"),
        ([[1], [2]], "prompt"),
        (7, "prompt"),
        ({}, "prompt"),
        (None, "prompt"),
        ([1, "a"], "prompt[1]"),
        ([1, 2.5], "prompt[1]"),
        ([1, True], "prompt[1]"),
        ([-1], "prompt"),
        ([10**6], "prompt"),
        ([10**30], "prompt[0]"),
    ],
)
async def test_other_prompts_are_refused(world: World, prompt: Any, param: str) -> None:
    assert (await world.refused(path=COMPLETIONS, prompt=prompt))["param"] == param


async def test_detokenize_checks_its_ids(world: World) -> None:
    for tokens in ([-1], [10**6], "a", [1.5], None):
        answer = await world.http.post("/detokenize", json={"tokens": tokens})
        assert answer.status_code == 400


async def test_tokenize_wants_one_of_prompt_and_messages(world: World) -> None:
    for body in ({}, {"prompt": "a", "messages": [USER]}):
        answer = await world.http.post("/tokenize", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")
