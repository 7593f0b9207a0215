"""The official openai client against a real server: chat, completions, streamed and not."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from support.say import say
from support.server import Server


@pytest.fixture
def client(nano: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=nano.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


ASK: list[Any] = [{"role": "user", "content": "How many legs has a spider?"}]


def test_a_streamed_chat_equals_the_same_chat_not_streamed(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {
        "model": "nano",
        "messages": ASK,
        "max_tokens": 40,
        "temperature": 0.7,
        "seed": 11,
        "extra_body": {"return_token_ids": True, "ignore_eos": True},
    }
    whole = client.chat.completions.create(**options)
    content, reasoning = "", ""
    ids: list[int] = []
    finish, last = None, None
    for chunk in client.chat.completions.create(
        stream=True, stream_options={"include_usage": True}, **options
    ):
        last = chunk
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            ids += (choice.model_extra or {}).get("token_ids") or []
            finish = choice.finish_reason or finish
    message = whole.choices[0].message
    assert content == (message.content or "")
    assert reasoning == (getattr(message, "reasoning_content", None) or "")
    assert finish == whole.choices[0].finish_reason == "length"
    assert last is not None
    assert last.usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.completion_tokens == len(ids) == 40
    packed = b"".join(struct.pack("<I", token) for token in ids)
    extra = whole.model_extra or {}
    assert extra["streamglm"]["token_sha"] == hashlib.sha256(packed).hexdigest()


def test_characters_of_many_bytes_come_whole_in_every_event(client: openai.OpenAI) -> None:
    text = "👩🏽‍🌾 早安 🇩🇪 naïve"
    pieces = [
        choice.delta.content or ""
        for chunk in client.chat.completions.create(model="nano", stream=True, **say(text))
        for choice in chunk.choices
    ]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert len([piece for piece in pieces if piece]) > 1, "drafts bring several tokens at once"


def test_a_completion_takes_text_and_reports_usage(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="nano", prompt="One, two,", max_tokens=5)
    assert reply.usage is not None
    assert reply.usage.completion_tokens <= 5
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 0


def test_models_list_the_window(client: openai.OpenAI) -> None:
    model = client.models.list().data[0]
    assert model.id == "nano"
    assert (model.model_extra or {})["context_length"] == 32768


def test_a_refusal_is_the_clients_own_exception(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="nano", messages=ASK, n=2)
    assert caught.value.param == "n"


def test_log_probabilities_of_a_chat(client: openai.OpenAI) -> None:
    """CO-28, greedy: the token itself is alternative 0, streamed equals whole."""
    options: dict[str, Any] = {
        "model": "nano",
        "messages": ASK,
        "max_tokens": 40,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 3,
        "extra_body": {"return_token_ids": True, "ignore_eos": True},
    }
    (choice,) = client.chat.completions.create(**options).choices
    assert choice.logprobs is not None
    entries = choice.logprobs.content
    assert entries is not None
    assert len(entries) == 40
    for entry in entries:
        assert [entry.token, entry.logprob] == [
            entry.top_logprobs[0].token,
            entry.top_logprobs[0].logprob,
        ]
        found = [one.logprob for one in entry.top_logprobs]
        assert len(found) == 3
        assert found == sorted(found, reverse=True)
        assert all(logprob <= 0.0 for logprob in found)
    assert len({entry.logprob for entry in entries}) > 20  # each token has its own
    spoken = b"".join(bytes(entry.bytes or []) for entry in entries).decode("utf-8", "replace")
    message = choice.message
    reasoning = getattr(message, "reasoning_content", None) or ""
    assert spoken.replace("</think>", "", 1) == reasoning + (message.content or "")
    streamed = [
        entry
        for chunk in client.chat.completions.create(stream=True, **options)
        for one in chunk.choices
        if one.logprobs is not None
        for entry in one.logprobs.content or []
    ]
    assert streamed == entries


def test_an_emoji_of_several_tokens_has_its_bytes(nano: Server, client: openai.OpenAI) -> None:
    """CO-28. Only the emoji's own ids may be drawn, one by one, so that a random model says it."""
    ids = nano.post("/tokenize", {"prompt": "🦉"})["tokens"]
    assert len(ids) > 1
    said = []
    for token in ids:
        reply = client.chat.completions.create(
            model="nano",
            messages=ASK,
            max_tokens=1,
            logprobs=True,
            extra_body={"allowed_token_ids": [token], "return_token_ids": True},
        )
        assert (reply.choices[0].model_extra or {})["token_ids"] == [token]
        assert reply.choices[0].logprobs is not None
        (entry,) = reply.choices[0].logprobs.content or []
        said.append(bytes(entry.bytes or []))
    assert b"".join(said).decode() == "🦉"


def test_log_probabilities_of_a_completion(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {
        "model": "nano",
        "prompt": "One, two,",
        "max_tokens": 12,
        "seed": 3,
        "logprobs": 2,
        "extra_body": {"ignore_eos": True},
    }
    (choice,) = client.completions.create(**options).choices
    found = choice.logprobs
    assert found is not None
    assert found.tokens is not None
    assert found.token_logprobs is not None
    assert found.top_logprobs is not None
    assert found.text_offset is not None
    assert len(found.tokens) == len(found.text_offset) == 12
    for token, logprob, top in zip(
        found.tokens, found.token_logprobs, found.top_logprobs, strict=True
    ):
        assert top[token] == logprob
    chunks = client.completions.create(stream=True, **options)
    told = [one.logprobs for chunk in chunks for one in chunk.choices if one.logprobs]
    assert [token for one in told for token in one.tokens or []] == found.tokens
    assert [at for one in told for at in one.text_offset or []] == found.text_offset
    assert [x for one in told for x in one.token_logprobs or []] == found.token_logprobs


def test_penalties_and_bias_change_what_is_said(client: openai.OpenAI) -> None:
    def said(**fields: Any) -> list[int]:
        extra = {"return_token_ids": True, "ignore_eos": True}
        extra |= {k: fields.pop(k) for k in ("repetition_penalty",) if k in fields}
        reply = client.completions.create(
            model="nano", prompt=[7] * 30, max_tokens=30, temperature=0, extra_body=extra, **fields
        )
        ids: list[int] = (reply.choices[0].model_extra or {})["token_ids"]
        return ids

    plain = said()
    assert said(presence_penalty=0, frequency_penalty=0, logit_bias={}) == plain
    once = said(frequency_penalty=2, presence_penalty=2)
    assert len(set(once)) > len(set(plain))
    assert plain[0] not in said(logit_bias={str(plain[0]): -100})
    assert said(logit_bias={"9": 100}) == [9] * 30
    assert said(repetition_penalty=50.0) != plain
