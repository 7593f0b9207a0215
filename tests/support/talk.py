"""What end-to-end tests say to a server, and what they read of its answers."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from typing import Any

from support.server import Server


def words(seed: int, length: int) -> list[int]:
    """A prompt of `length` token ids without specials."""
    draw = random.Random(seed)
    return [draw.randrange(300) for _ in range(length)]


def greedy(tokens: int) -> dict[str, Any]:
    """Fields of a request for exactly `tokens` tokens."""
    return {"temperature": 0, "ignore_eos": True, "max_tokens": tokens}


def cached(reply: dict[str, Any]) -> int:
    """Prompt tokens that were not computed."""
    value = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert isinstance(value, int)
    return value


def ids(reply: dict[str, Any]) -> list[int]:
    """The reply's tokens."""
    value = reply["choices"][0]["token_ids"]
    assert isinstance(value, list)
    return value


@contextlib.contextmanager
def stream(server: Server, prompt: list[int], **fields: Any) -> Iterator[Iterator[list[int]]]:
    """A streamed completion: the token ids of its chunks, as they come. Leaving the block closes
    the connection."""
    body = {"prompt": prompt, "stream": True, "return_token_ids": True, **fields}
    with server.client() as client, client.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        yield _chunks(answer.iter_lines())


def _chunks(lines: Iterator[str]) -> Iterator[list[int]]:
    for line in lines:
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        chunk = json.loads(line[6:])
        assert "error" not in chunk, chunk
        for choice in chunk["choices"]:
            if choice.get("token_ids"):
                yield choice["token_ids"]
