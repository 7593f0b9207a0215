"""A server's day in small: prompts that go on, repeat, part and are edited; readers who leave.

`busy` asks for many replies, some side by side, and holds each to what it is alone. It knows the
engine only, so that any cache and any fault can be put under it.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace

from streamglm.core.engine import Reply
from streamglm.core.service import EngineService
from streamglm.request import Failed, Request, Started, Tokens
from support.house import request, tokens_of

LONGEST = 90


@dataclass
class Day:
    """How long a person's second is, and what happened: replies that resumed, readers who left."""

    scale: float
    resumed: int = 0
    left: int = 0


class Prompts:
    """Prompts of a few conversations, often longer ones of what came before."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._old: list[tuple[int, ...]] = [()]

    def next(self) -> tuple[int, ...]:
        draw = self._draw
        old = draw.choice(self._old)
        if old and draw.random() < 0.3:
            return old
        cut = len(old) if draw.random() < 0.5 else draw.randrange(len(old) + 1)
        new = tuple(draw.randrange(50) for _ in range(draw.randrange(1, 30)))
        prompt = (old[:cut] + new)[-LONGEST:] if cut + len(new) > LONGEST else old[:cut] + new
        self._old.append(prompt)
        del self._old[1:-12]
        return prompt


async def busy(
    engine: EngineService, count: int, seed: int, *, together: int = 12, scale: float = 1.0
) -> Day:
    """Ask for `count` replies, `together` at a time; `scale` makes people quick or slow."""
    draw, day = random.Random(seed), Day(scale)
    prompts = Prompts(draw)
    for start in range(0, count, together):
        asked = [_request(draw, prompts) for _ in range(min(together, count - start))]
        await asyncio.gather(*(_read(engine, one, draw, day) for one in asked))
    return day


def _request(draw: random.Random, prompts: Prompts) -> Request:
    asked = request(prompts.next(), draw.randrange(1, 10), seed=draw.randrange(9))
    salt = "other" if draw.random() < 0.1 else ""
    return replace(asked, background=draw.random() < 0.2, salt=salt)


async def _read(engine: EngineService, asked: Request, draw: random.Random, day: Day) -> None:
    await asyncio.sleep(draw.choice([0.0, 0.0, 0.02, 0.2]) * day.scale)
    reply = engine.submit(asked)
    leaving = None
    if draw.random() < 0.3:
        patience = draw.choice([0.0, 0.01, 0.05, 0.3, 2.0]) * day.scale
        leaving = asyncio.create_task(_leave(reply, patience))
    ids: tuple[int, ...] = ()
    async for event in reply:
        match event:
            case Started(cached):
                day.resumed += cached > 0
            case Tokens(more):
                ids += more
            case Failed(error):
                raise AssertionError(error.message)
    if leaving is not None:
        await leaving
    wanted = tokens_of(asked)
    assert ids == wanted[: len(ids)], "a reply depends on more than its request"
    day.left += ids != wanted
    assert ids == wanted or leaving is not None, "a reply is cut short"


async def _leave(reply: Reply, seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)
    reply.stop()
