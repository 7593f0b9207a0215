"""Background requests run on what the others leave: in the queue, in prompts and in windows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from streamglm.core.engine import Reply
from streamglm.core.shape import EngineShape
from streamglm.request import Request, Tokens
from support.clock import LoopClock, virtual_time
from support.fakes import FakeRanks, shape
from support.house import read, request, rounds, serving, tokens_of

ROW, WINDOW = 0.001, 0.01


def background(asked: Request) -> Request:
    return replace(asked, background=True)


async def order_of(replies: Mapping[str, Reply]) -> list[str]:
    """Names in the order in which their first tokens come."""
    came: list[str] = []

    async def follow(name: str, reply: Reply) -> None:
        async for event in reply:
            if isinstance(event, Tokens) and name not in came:
                came.append(name)

    await asyncio.gather(*(follow(name, reply) for name, reply in replies.items()))
    return came


def ranks_of(of: EngineShape) -> FakeRanks:
    return FakeRanks(of, LoopClock(), row_seconds=ROW, window_seconds=WINDOW)


@virtual_time
async def test_in_the_queue_background_comes_after_all_others_and_keeps_its_own_order() -> None:
    of = shape(lanes=1)
    async with serving(of, ranks_of(of)) as engine:
        running = engine.submit(request(max_tokens=20))
        names = ("b1", "f1", "b2", "f2")
        replies = {
            name: engine.submit(replace(request(8, 3, seed=place), background=name.startswith("b")))
            for place, name in enumerate(names)
        }
        assert await order_of(replies) == ["f1", "f2", "b1", "b2"]
        await read(running)


@virtual_time
async def test_a_prompt_in_the_background_has_what_the_others_leave_of_a_pass() -> None:
    """Shorter and older, and still behind: but what is left of each pass is its own."""
    of = shape(lanes=2, chunk_rows=16)
    ranks = ranks_of(of)
    async with serving(of, ranks) as engine:
        low = engine.submit(background(request(40, 2, seed=1)))
        high = engine.submit(request(60, 2, seed=2))
        assert await order_of({"low": low, "high": high}) == ["high", "low"]
        lane_of = {begin.lane: begin.draw.seed for step in ranks.steps for begin in step.begins}
        shared = [
            [(lane_of[chunk.lane], len(chunk.tokens)) for chunk in step.chunks]
            for step in ranks.steps
            if step.chunks
        ]
        assert shared[:4] == [[(2, 16)], [(2, 16)], [(2, 16)], [(2, 12), (1, 4)]]


@virtual_time
async def test_an_old_background_prompt_never_goes_first_in_a_pass() -> None:
    """The rule that protects an old prompt from a rain of short ones is not for it."""
    of = shape(lanes=8, chunk_rows=16, pages=200)
    ranks = ranks_of(of)
    async with serving(of, ranks, decode_share=0.0) as engine:
        low = engine.submit(background(request(200, 1, seed=1)))
        rain = [engine.submit(request(64, 1, seed=seed)) for seed in range(2, 8)]
        await asyncio.gather(*map(read, rain))
        begun = {begin.lane: begin.draw.seed for step in ranks.steps for begin in step.begins}
        lanes = [begun[chunk.lane] for step in ranks.steps for chunk in step.chunks]
        assert 1 not in lanes[: 6 * 64 // 16], "a chunk while others wanted whole passes"
        await read(low)


@virtual_time
async def test_a_window_serves_background_last() -> None:
    """Three lanes and windows of two: the foreground has every round, the background the rest."""
    of = shape(lanes=3, window_rows=2)
    ranks = ranks_of(of)
    async with serving(of, ranks) as engine:
        low = engine.submit(background(request(4, 30, seed=1)))
        high = [engine.submit(request(4, 30, seed=seed)) for seed in (2, 3)]
        times: dict[int, float] = {}
        for place, reply in enumerate((*high, low)):
            await read(reply)
            times[place] = asyncio.get_running_loop().time()
        assert times[1] < 30 * WINDOW + 1
        windows = [step.rows for step in ranks.steps if len(step.rows) == 2]
        begun = {begin.lane: begin.draw.seed for step in ranks.steps for begin in step.begins}
        assert all(1 not in {begun[row.lane] for row in rows} for rows in windows[3:25])


@virtual_time
async def test_a_background_reply_is_not_interrupted_and_is_the_same() -> None:
    of = shape(lanes=1)
    async with serving(of, ranks_of(of)) as engine:
        asked = background(request(20, 30, seed=1))
        low = engine.submit(asked)
        await rounds(engine, 5)
        high = engine.submit(request(20, 3, seed=2))
        assert engine.stats().waiting["lanes"] == 1
        assert (await read(low))[0] == tokens_of(asked)
        assert (await read(high))[0] == tokens_of(request(20, 3, seed=2))


@virtual_time
async def test_a_foreground_request_that_waits_for_pages_is_not_passed_by_background() -> None:
    of = shape(pages=10)
    async with serving(of, ranks_of(of)) as engine:
        running = engine.submit(request(40, 20))
        large = engine.submit(request(60, 10))
        small = engine.submit(background(request(4, 2)))
        assert engine.stats().waiting["pages"] == 2
        assert await order_of({"large": large, "small": small}) == ["large", "small"]
        await read(running)
