"""Usage and limits on every path (CO-24, CO-25), and text whole in every chunk (CO-16, CO-17)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.say import say
from support.server import Server, serving


def stream(server: Server, route: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a streamed reply; every line must be valid, the last one [DONE]."""
    chunks: list[dict[str, Any]] = []
    with server.client() as client, client.stream("POST", route, json=body | {"stream": True}) as r:
        assert r.status_code == 200, r.read()
        lines = [line for line in r.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line[6:]) for line in lines[:-1]]
    return chunks


CHAT = "/v1/chat/completions"


def said(chunks: list[dict[str, Any]]) -> tuple[str, str]:
    """Answer and reasoning of a streamed chat."""
    deltas = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
    answer = "".join(delta.get("content") or "" for delta in deltas)
    return answer, "".join(delta.get("reasoning_content") or "" for delta in deltas)


GREEDY = {"temperature": 0, "ignore_eos": True}


def test_usage_is_whole_and_equal_streamed_and_not(nano: Server) -> None:
    body = {"prompt": "Count to ten:", "max_tokens": 12, **GREEDY}
    whole = nano.post("/v1/completions", body)["usage"]
    chunks = stream(nano, "/v1/completions", body | {"stream_options": {"include_usage": True}})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole
    assert all(not c.get("usage") for c in chunks[:-1])
    assert whole["total_tokens"] == whole["prompt_tokens"] + whole["completion_tokens"]
    assert whole["prompt_tokens_details"]["cached_tokens"] == 0
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]].count("length") == 1


def test_prompt_tokens_are_what_tokenize_says(nano: Server) -> None:
    messages = [{"role": "user", "content": "早安, how many?"}]
    ids = nano.post("/tokenize", {"messages": messages})["tokens"]
    reply = nano.chat(messages, max_tokens=2)
    assert reply["usage"]["prompt_tokens"] == len(ids)
    assert reply["prompt_token_ids"] == ids


@pytest.fixture(scope="module")
def small() -> Iterator[Server]:
    """A window of 1,024 tokens."""
    with serving("nano", "--context", "1024") as server:
        yield server


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("length", "limit"),
    [(1100, {}), (1024, {}), (500, {"max_tokens": 4096}), (500, {"max_tokens": 525})],
    ids=["longer", "exact", "limit-far", "limit-by-one"],
)
def test_what_passes_the_window_is_refused_before_any_event(
    small: Server, length: int, limit: dict[str, int], streamed: bool
) -> None:
    body = {"prompt": [5] * length, "stream": streamed, **limit}
    with small.client() as client:
        answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "1024" in error["message"]
    assert str(length) in error["message"]


def test_the_last_token_of_the_window_can_be_had(small: Server) -> None:
    reply = small.complete([5] * 1023, ignore_eos=True)
    assert reply["usage"]["completion_tokens"] == 1
    assert reply["choices"][0]["finish_reason"] == "length"


def test_an_omitted_limit_means_the_rest_of_the_window(small: Server) -> None:
    reply = small.complete([5] * 1000, ignore_eos=True)
    assert reply["usage"]["completion_tokens"] == 24


def test_a_stream_cut_at_every_token_has_the_text_of_the_reply_cut_there(nano: Server) -> None:
    """The tokens of the answer are bytes of its characters, so these are cut in the middle here."""
    text = "🦉 早安 👩🏽‍🌾!"
    body = say(text)
    answers = []
    for limit in range(2, 30):
        message = nano.post(CHAT, body | {"max_tokens": limit})["choices"][0]["message"]
        answer, reasoning = said(stream(nano, CHAT, body | {"max_tokens": limit}))
        assert answer == (message["content"] or "")
        assert reasoning == (message["reasoning_content"] or "")
        answers.append(answer)
    assert answers[-1] == text
    assert len(set(answers)) >= len(set(text))


def test_stop_strings_over_token_borders_cut_exactly(nano: Server) -> None:
    text = "alphabet soup, 12 spoons; 3 bowls"
    stop, never = "t soup, 12 sp", "t soup, 13"
    body = say(text) | {"max_tokens": 80}
    full = nano.post(CHAT, body)["usage"]["completion_tokens"]
    for stops in ([stop], stop, [never, stop]):
        whole = nano.post(CHAT, body | {"stop": stops})
        assert whole["choices"][0]["message"]["content"] == "alphabe"
        assert whole["choices"][0]["finish_reason"] == "stop"
        usage = {"stream_options": {"include_usage": True}}
        chunks = stream(nano, CHAT, body | usage | {"stop": stops})
        assert said(chunks)[0] == "alphabe"
        assert chunks[-1]["usage"] == whole["usage"]
        assert whole["usage"]["completion_tokens"] < full
    last = nano.post(CHAT, body | {"stop": [never]})["choices"][0]["message"]
    assert last["content"] == text
