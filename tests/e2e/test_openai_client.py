"""The official openai client against a real server: chat, completions, streamed and not."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

import openai
import pytest

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
