"""Replies whose `cached_tokens` are asked for, and prompts that share what a test wants.

Every reply that is read here must be the right one.
"""

from __future__ import annotations

import random

from streamglm.core.engine import Reply
from streamglm.core.service import EngineService
from streamglm.request import Request, Started, Tokens
from support.house import request, tokens_of

PAGE = 8
"""Tokens of a page of the fakes."""


async def cached(reply: Reply, asked: Request) -> int:
    """`cached_tokens` of a reply, which must be the right one."""
    found: int | None = None
    ids: tuple[int, ...] = ()
    async for event in reply:
        match event:
            case Started(tokens):
                found = tokens
            case Tokens(more):
                assert found is not None, "a token before the start"
                ids += more
    assert ids == tokens_of(asked)
    assert found is not None
    return found


async def ask(engine: EngineService, *prompt: tuple[int, ...] | Request) -> list[int]:
    """`cached_tokens` of one reply after another."""
    requests = [one if isinstance(one, Request) else request(one, max_tokens=3) for one in prompt]
    return [await cached(engine.submit(one), one) for one in requests]


def tokens(count: int, seed: int = 1) -> tuple[int, ...]:
    """A prompt that shares no page with one of another seed, and has none of the ids 47 to 49."""
    draw = random.Random(seed)
    return tuple(draw.randrange(47) for _ in range(count))


def last(length: int) -> int:
    """The last page boundary before a prompt's end."""
    return (length - 1) // PAGE * PAGE
