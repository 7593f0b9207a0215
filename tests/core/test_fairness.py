"""Who waits for whom, in virtual time: a prompt row takes a millisecond, a window ten."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from streamglm.core.engine import Reply
from streamglm.core.service import EngineService
from streamglm.core.shape import EngineShape
from streamglm.request import Tokens
from streamglm.step import Step
from support.clock import LoopClock, run_virtual, virtual_time
from support.fakes import FakeRanks, shape
from support.house import cache_of, read, request, serving

ROW = 0.001
WINDOW = 0.01
LARGE = shape(page_rows=64, chunk_rows=256, kda_chunk=64, context=16384, lanes=8, pages=2048)
PASS = LARGE.chunk_rows * ROW


@asynccontextmanager
async def engine_of(
    of: EngineShape = LARGE, share: float = 0.5, slots: int = 0
) -> AsyncIterator[tuple[EngineService, FakeRanks]]:
    ranks = FakeRanks(of, LoopClock(), slots=slots, row_seconds=ROW, window_seconds=WINDOW)
    async with serving(of, ranks, decode_share=share, cache=cache_of(slots)) as engine:
        yield engine, ranks


async def arrivals(reply: Reply) -> list[float]:
    """Moments at which tokens came, to the reply's end."""
    times = []
    async for event in reply:
        if isinstance(event, Tokens):
            times += [asyncio.get_running_loop().time()] * len(event.ids)
    return times


def largest_gap(times: list[float]) -> float:
    return max(after - before for before, after in itertools.pairwise(times))


def rows_of(steps: list[Step]) -> list[int]:
    """Prompt rows of each prompt pass."""
    return [sum(len(chunk.tokens) for chunk in step.chunks) for step in steps if step.chunks]


@pytest.mark.parametrize("slots", [0, 32])
def test_a_short_prompt_overtakes_a_long_one_and_all_three_finish_in_time(slots: int) -> None:
    """The numbers of case CO-10; the marks of a prompt hold up nobody else."""
    run_virtual(_overtake(slots))


async def _overtake(slots: int) -> None:
    async with engine_of(slots=slots) as (engine, _):
        loop = asyncio.get_running_loop()
        alone = 10_240 * ROW
        stream = asyncio.create_task(arrivals(engine.submit(request(20, 200, seed=1))))
        await asyncio.sleep(0.3)
        start = loop.time()
        long = asyncio.create_task(arrivals(engine.submit(request(10_240, 4, seed=2))))
        await asyncio.sleep(1.0)
        asked = loop.time()
        short = await arrivals(engine.submit(request(20, 8, seed=3)))
        assert short[0] - asked <= 0.2 * alone
        assert largest_gap(await stream) <= 3 * PASS
        assert (await long)[0] - start <= 1.5 * (alone + 200 * WINDOW + 8 * WINDOW)


@virtual_time
async def test_a_short_prompt_joins_the_very_next_pass_beside_a_long_one() -> None:
    async with engine_of() as (engine, ranks):
        long = engine.submit(request(10_000, 2, seed=1))
        await asyncio.sleep(10.5 * PASS)
        before = len(ranks.steps)
        short = engine.submit(request(20, 2, seed=2))
        await read(short)
        passes = [step for step in ranks.steps[before:] if step.chunks]
        assert [chunk.tokens for chunk in passes[0].chunks if chunk.last] == [
            request(20, 2, 2).prompt
        ]
        assert len(passes[0].chunks) == 2, "the long prompt has the rest of the pass"
        long.stop()


@virtual_time
async def test_a_rain_of_short_prompts_does_not_starve_a_long_one() -> None:
    """Short prompts come faster than a pass can take them; the long one still gets half."""
    async with engine_of(share=0.0) as (engine, ranks):
        long = asyncio.create_task(read(engine.submit(request(8192, 1, seed=1))))

        async def rain() -> None:
            for seed in itertools.count(2):
                await read(engine.submit(request(250, 1, seed=seed)))

        drops = [asyncio.create_task(rain()) for _ in range(7)]
        await long
        for drop in drops:
            drop.cancel()
        passes = sum(bool(step.chunks) for step in ranks.steps)
        assert passes <= 2 * 8192 / 256 + 3


@virtual_time
async def test_two_equal_prompts_run_one_after_the_other() -> None:
    """Taking turns would make the first wait and gain the second nothing."""
    async with engine_of() as (engine, ranks):
        replies = [engine.submit(request(8192, 1, seed=seed)) for seed in range(2)]
        first, second = await asyncio.gather(*(arrivals(reply) for reply in replies))
        assert [*first, *second] == pytest.approx([8192 * ROW, 16384 * ROW])
        assert rows_of(ranks.steps) == [LARGE.chunk_rows] * 64


@virtual_time
async def test_an_old_prompt_takes_turns_with_a_newer_and_shorter_one() -> None:
    async with engine_of() as (engine, _):
        old, new = (engine.submit(request(rows, 1, seed=rows)) for rows in (10_240, 5120))
        await asyncio.sleep(20.5 * PASS)
        done = [prompt.done for prompt in engine.stats().prompts]
        assert done == [10 * LARGE.chunk_rows] * 2
        old.stop()
        new.stop()


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.9])
def test_windows_get_their_share_between_two_prompt_passes(share: float) -> None:
    """Exact: no more than one window beyond what is owed, no less than owed; but for the last pass
    of the prompt, which may come on credit."""

    @virtual_time
    async def run() -> None:
        async with engine_of(share=share) as (engine, ranks):
            stream = engine.submit(request(20, 10_000, seed=1))
            await asyncio.sleep(0.2)
            del ranks.steps[:]
            await read(engine.submit(request(2048, 1, seed=2)))
            stream.stop()
        passes = [place for place, step in enumerate(ranks.steps) if step.chunks]
        assert len(passes) == 2048 // 256
        owed = PASS * share / (1 - share)
        for before, after in itertools.pairwise(passes[:-1]):
            windows = sum(bool(step.rows) for step in ranks.steps[before:after]) * WINDOW
            assert owed - 1e-9 <= windows
            assert windows < max(owed, WINDOW) + WINDOW

    run()


@virtual_time
async def test_prompts_run_back_to_back_while_nobody_decodes() -> None:
    async with engine_of(share=0.95) as (engine, ranks):
        start = asyncio.get_running_loop().time()
        await read(engine.submit(request(2048, 1)))
        assert asyncio.get_running_loop().time() - start == pytest.approx(2048 * ROW)
        assert rows_of(ranks.steps) == [256] * 8


@virtual_time
async def test_a_prompt_that_ran_alone_leaves_no_debt() -> None:
    """Nobody was held up by it. The next one holds up a reply, and owes it a pass."""
    async with engine_of() as (engine, ranks):
        stream = engine.submit(request(2048, 1000, seed=1))
        await asyncio.sleep(7.5 * PASS)
        late = engine.submit(request(768, 1, seed=2))
        await read(late)
        stream.stop()
        passes = [place for place, step in enumerate(ranks.steps) if step.chunks]
        alone, first, second, _ = passes[-4:]
        assert len(passes) == 8 + 3
        assert first == alone + 1
        windows = sum(bool(step.rows) for step in ranks.steps[first:second])
        assert windows * WINDOW == pytest.approx(PASS, abs=WINDOW)


async def _burst(of: EngineShape, count: int, apart: float) -> float:
    """Equal requests that come `apart` seconds apart: seconds until the last one ends."""
    async with engine_of(of) as (engine, _):
        loop = asyncio.get_running_loop()
        start, tasks = loop.time(), []
        for seed in range(count):
            tasks.append(asyncio.create_task(arrivals(engine.submit(request(64, 40, seed=seed)))))
            await asyncio.sleep(apart)
        times = await asyncio.gather(*tasks)
        return max(one[-1] for one in times) - start


@virtual_time
async def test_prompts_that_come_while_a_round_runs_cost_no_half_empty_windows() -> None:
    """Eight requests a millisecond apart: all prompts, then all replies side by side, but for the
    rounds that carry both. One after the other, with the share between, took 0.2 s more."""
    seconds = await _burst(replace(LARGE, window_rows=8), 8, 0.001)
    prompts, windows = 8 * 64 * ROW, 39 * WINDOW
    assert seconds <= prompts + windows + 3 * WINDOW


@virtual_time
async def test_a_burst_on_credit_holds_up_a_running_reply_for_a_pass_at_a_time() -> None:
    async with engine_of() as (engine, _):
        stream = asyncio.create_task(arrivals(engine.submit(request(20, 300, seed=99))))
        await asyncio.sleep(0.5)
        await asyncio.gather(*(read(engine.submit(request(250, 1, seed=n))) for n in range(7)))
        assert largest_gap(await stream) <= PASS + WINDOW + 1e-9


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
def test_a_rain_of_short_prompts_leaves_replies_their_share(share: float) -> None:
    """Credit is given once; over a longer time windows have what they are owed."""

    @virtual_time
    async def run() -> None:
        async with engine_of(share=share) as (engine, ranks):
            stream = engine.submit(request(20, 10_000, seed=1))
            await asyncio.sleep(0.2)

            async def rain() -> None:
                for seed in itertools.count(2):
                    await read(engine.submit(request(250, 1, seed=seed)))

            drops = [asyncio.create_task(rain()) for _ in range(3)]
            del ranks.steps[:]
            await asyncio.sleep(15)
            for drop in drops:
                drop.cancel()
            stream.stop()
            windows = sum(bool(step.rows) for step in ranks.steps) * WINDOW
            prompts = sum(rows_of(ranks.steps)) * ROW
            assert windows >= 0.9 * share * (windows + prompts)

    run()


@virtual_time
async def test_prompts_that_arrive_together_share_a_pass() -> None:
    async with engine_of() as (engine, ranks):
        replies = [engine.submit(request(60 + seed, 1, seed=seed)) for seed in range(4)]
        await asyncio.gather(*(read(reply) for reply in replies))
        assert rows_of(ranks.steps) == [246]


@virtual_time
async def test_a_window_serves_the_least_recently_served_lanes() -> None:
    """Nine lanes and windows of four: nobody waits for more than three windows."""
    of = shape(lanes=9, window_rows=4)
    async with engine_of(of) as (engine, ranks):
        replies = [engine.submit(request(2, 40, seed=seed)) for seed in range(9)]
        times = await asyncio.gather(*(arrivals(reply) for reply in replies))
        assert all(largest_gap(one) <= 3 * WINDOW + 18 * ROW for one in times)
        assert max(len(step.rows) for step in ranks.steps) == 4
