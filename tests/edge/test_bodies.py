"""Bodies that are not what they should be (CO-29, CO-30): a small 400, and the server goes on."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from support.world import CHAT, COMPLETIONS, HELLO, Make, World


async def post(world: World, raw: bytes, kind: str | None = "application/json") -> tuple[int, Any]:
    """(status, error) of a chat with these bytes; the next request must work."""
    headers = {} if kind is None else {"content-type": kind}
    start = time.monotonic()
    answer = await world.http.post(CHAT, content=raw, headers=headers)
    assert time.monotonic() - start < 2
    assert len(answer.content) < 10_000
    assert (await world.ask()).status_code == 200
    error = answer.json().get("error")
    if answer.status_code != 200:
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        for leak in ("Error", "Exception", "msgspec", "orjson", "/", "Struct", "ChatBody"):
            assert leak not in _without_known_slashes(error["message"])
    return answer.status_code, error


def _without_known_slashes(message: str) -> str:
    """The message without routes, documentation and media types, so that a `/` is a path."""
    return re.sub(r"/v1/|docs/|(application|multipart)/[\w-]+", "", message)


def chat(**body: Any) -> bytes:
    return json.dumps({"messages": HELLO} | body).encode()


def deep(raw: bytes) -> bytes:
    """`raw` with lists in lists for "DEEP": as a body may be and Python does not follow."""
    return raw.replace(b'"DEEP"', b"[" * 1000 + b"]" * 1000)


def calling(value: Any) -> dict[str, Any]:
    """A call that is required, of a tool with `value` in its schema."""
    function = {"name": "f", "parameters": {"type": "object", "default": value}}
    tools = [{"type": "function", "function": function}]
    return {"tools": tools, "tool_choice": "required"}


@pytest.fixture(autouse=True)
def reply(world: World) -> None:
    world.say("a")


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b"7", b'"x"', b"not json", b'{"messages":', b'\xff\xfe{"a":1}'],
    ids=repr,
)
async def test_what_is_no_object_is_refused(world: World, raw: bytes) -> None:
    assert (await post(world, raw))[0] == 400


@pytest.mark.parametrize(
    "raw",
    [
        b'{"messages":[]}',
        b'{"messages":null}',
        b'{"messages":"hi"}',
        b'{"messages":[{}]}',
        b"{}",
        b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
        b'{"messages":[{"role":"user","content":"hi"}],"temperature":NaN}',
        b'{"messages":[{"role":"user","content":"hi"}],"temperature":1e999}',
        b'\xef\xbb\xbf{"messages":[{"role":"user","content":"hi"}]}',
        b'{"messages":' + b"[" * 100_000,
        b'{"metadata":' + b'{"a":' * 100_000,
        chat(messages=[{"role": "user", "content": {"a": 1}}] * 5000),
        chat(max_tokens="x" * 100_000),
        chat(messages=[{"role": "x" * 100_000, "content": ""}]),
        chat(messages=[{"role": "user", "content": [{"type": "x" * 100_000}]}]),
        chat(model="x" * 100_000),
        chat(tools=[{"type": "function", "function": {"name": "f" * 100_000}}]),
        chat(tools=[{"type": "function", "function": {"name": "f"}}] * 50_000),
        chat(tool_choice="x" * 100_000),
        chat(response_format={"type": "x" * 100_000}),
        chat(response_format={"type": "json_schema", "json_schema": {"schema": [1] * 100_000}}),
        chat(guided_json={"properties": {"x" * 100_000: 5}}),
        deep(chat(guided_json={"enum": "DEEP"})),
        chat(priority="x" * 100_000),
        chat(guided_json="[" * 100_000),
        chat(guided_choice=["x"] * 100_000),
        chat(guided_regex="(" * 500_000),
        chat(thinking={"type": "x" * 100_000}),
        chat(structured_outputs={"x" * 100_000: 1}),
        deep(chat(**calling("DEEP"))),
    ],
    ids=lambda raw: repr(raw[:40]),
)
async def test_what_is_wrong_inside_is_refused(world: World, raw: bytes) -> None:
    code, error = await post(world, raw)
    assert code in (400, 404)
    assert len(error["message"]) < 300


async def test_five_thousand_bad_messages_are_one_error(world: World) -> None:
    _, error = await post(world, chat(messages=[{"role": "user", "content": {"a": 1}}] * 5000))
    assert error["param"] == "messages[0].content"


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        ('{"messages":[{"role":"user","content":"cut \\ud83d"}]}', "messages[0].content"),
        (
            '{"messages":[{"role":"user","content":[{"type":"text","text":"\\udc00"}]}]}',
            "messages[0].content[0].text",
        ),
        (
            (
                '{"messages":[{"role":"assistant","tool_calls":[{"function":'
                '{"name":"f","arguments":"\\ud83d"}}]}]}'
            ),
            "messages[0].tool_calls[0].function.arguments",
        ),
        ('{"tools":[{"function":{"description":"\\ud83d"}}]}', "tools[0].function.description"),
        ('{"stop":["a","\\ud83dx"]}', "stop[1]"),
        ('{"metadata":{"k\\ud83d":1}}', "metadata.k?"),
        ('{"\\ud83d":1}', "?"),
        ('{"a":{"b":[[],{"c":"ok"},"\\ud83d"]}}', "a.b[2]"),
    ],
)
async def test_half_a_surrogate_pair_is_named(world: World, raw: str, param: str) -> None:
    code, error = await post(world, raw.encode())
    assert (code, error["param"]) == (400, param)
    assert "surrogate" in error["message"]


async def test_half_a_pair_on_every_route_and_while_streaming(world: World) -> None:
    for route, name in (
        (CHAT, "messages"),
        (COMPLETIONS, "prompt"),
        ("/tokenize", "prompt"),
        ("/detokenize", "tokens"),
    ):
        raw = f'{{"{name}":"\\ud83d","stream":true}}'.encode()
        answer = await world.http.post(route, content=raw)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)


async def test_a_whole_pair_and_a_nul_are_text(world: World) -> None:
    raw = b'{"messages":[{"role":"user","content":"\\ud83d\\ude00 \\u0000"}]}'
    assert (await post(world, raw))[0] == 200
    prompt = world.engine.replies[0].request.prompt
    assert "😀 \0" in world.tokenizer.decode(prompt)


async def test_duplicate_keys_are_harmless(world: World) -> None:
    raw = b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"max_tokens":2}'
    assert (await post(world, raw))[0] == 200


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (None, 200),
        ("", 200),
        ("text/plain", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/xml", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
    ],
)
async def test_the_declared_type_of_a_body(world: World, kind: str | None, status: int) -> None:
    assert (await post(world, chat(), kind))[0] == status


async def test_compressed_bodies_are_refused(world: World) -> None:
    headers = {"content-encoding": "gzip"}
    answer = await world.http.post(CHAT, content=b"\x1f\x8b", headers=headers)
    assert answer.status_code == 415


async def test_a_body_over_the_limit_is_413_declared_or_not(make: Make) -> None:
    world = make(max_body_mib=1)
    world.say("a")
    large = chat(user="x" * (1 << 20))
    assert (await post(world, large))[0] == 413

    async def pieces() -> Any:
        for start in range(0, len(large), 1 << 16):
            yield large[start : start + (1 << 16)]

    answer = await world.http.post(CHAT, content=pieces())
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"
    fits = chat(user="x" * ((1 << 20) - 1000))
    assert (await post(world, fits))[0] == 200


@pytest.mark.parametrize(
    "path", ["/page", "/v1", "/v1/chat", "/v1/chat/completions/", "/v1/models/"]
)
async def test_unknown_routes_are_404_in_the_same_shape(world: World, path: str) -> None:
    answer = await world.http.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] in ("not_found", "model_not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", CHAT), ("PUT", COMPLETIONS), ("POST", "/health"), ("DELETE", "/v1/models")],
)
async def test_wrong_methods_are_405_and_say_which_are_right(
    world: World, method: str, path: str
) -> None:
    answer = await world.http.request(method, path)
    assert answer.status_code == 405
    assert answer.json()["error"]["code"] == "method_not_allowed"
    assert "allow" in answer.headers
