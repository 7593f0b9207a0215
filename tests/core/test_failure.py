"""When ranks, the loop or the server's patience end, every reply ends by name."""

from __future__ import annotations

import asyncio
import logging

import pytest

from streamglm.core.engine import Health
from streamglm.core.service import EngineService
from streamglm.errors import EngineFailed, ShuttingDown
from streamglm.request import Failed, FinishReason
from streamglm.step import Drawn, Step, StepResult
from support.clock import LoopClock, virtual_time
from support.fakes import FakeRanks, shape
from support.house import assert_idle, cache_of, read, request, rounds, serving
from support.stub import RAISES

OF = shape(lanes=2)


def ranks_of(window_seconds: float = 0.01) -> FakeRanks:
    return FakeRanks(OF, LoopClock(), row_seconds=0.001, window_seconds=window_seconds)


@virtual_time
async def test_a_rank_lost_in_a_step_fails_every_reply_and_turns_health() -> None:
    ranks = ranks_of()
    async with serving(OF, ranks) as engine:
        replies = [engine.submit(request(max_tokens=100, seed=seed)) for seed in range(4)]
        await rounds(engine, 5)
        ranks.lose("rank 0 ended with exit code 3")
        for reply in replies:
            _, end = await read(reply)
            assert isinstance(end, EngineFailed)
            assert end.message == "rank 0 ended with exit code 3"
        assert engine.health() == Health(False, "rank 0 ended with exit code 3")
        with pytest.raises(EngineFailed, match="exit code 3"):
            engine.submit(request())
        assert engine.stats().requests_total == {"failed": 4, "refused": 1}
        assert_idle(engine)


@virtual_time
async def test_a_rank_lost_while_prompts_resume_and_are_kept_leaves_nothing_borrowed() -> None:
    ranks = FakeRanks(OF, LoopClock(), slots=4, row_seconds=0.001, window_seconds=0.01)
    async with serving(OF, ranks, cache=cache_of(slots=4)) as engine:
        await read(engine.submit(request(60, max_tokens=3)))
        replies = [engine.submit(request(60 + 40 * more, max_tokens=3)) for more in (0, 1)]
        stats = engine.rounds.keeping.kept.stats()
        assert (stats.borrowed, stats.pending) == (2, 1)
        ranks.lose("gone")
        for reply in replies:
            assert isinstance((await read(reply))[1], EngineFailed)
        stats = engine.rounds.keeping.kept.stats()
        assert (stats.borrowed, stats.pending) == (0, 0)
        assert_idle(engine)


@virtual_time
async def test_a_rank_lost_between_steps_turns_health_without_a_request() -> None:
    ranks = ranks_of()
    async with serving(OF, ranks) as engine:
        await read(engine.submit(request()))
        await engine.rounds.idle.wait()
        ranks.lose("rank 0 was killed by signal 9 (SIGKILL)")
        await asyncio.sleep(0.001)
        assert engine.health() == Health(False, "rank 0 was killed by signal 9 (SIGKILL)")


@virtual_time
async def test_a_step_that_fails_is_named() -> None:
    async with serving(OF, ranks_of()) as engine:
        _, end = await read(engine.submit(request(seed=RAISES)))
        assert isinstance(end, EngineFailed)
        assert "RuntimeError: the stub was asked to fail" in end.message


class Liar(FakeRanks):
    """Answers for a lane that was not asked for."""

    async def run(self, step: Step, digest: int) -> StepResult:
        result = await super().run(step, digest)
        drawn = tuple(Drawn(one.lane + 1, one.tokens) for one in result.drawn)
        return StepResult(drawn, 0.0, 0.0)


@virtual_time
async def test_an_answer_for_other_lanes_is_a_failure() -> None:
    async with serving(OF, Liar(OF, LoopClock())) as engine:
        _, end = await read(engine.submit(request()))
        assert isinstance(end, EngineFailed)
        assert "drew for lanes [1], asked for [0]" in end.message


@virtual_time
async def test_a_broken_book_stops_the_engine_by_name() -> None:
    """The check after every round is alive: a page given back twice is found in that round."""
    async with serving(OF, ranks_of()) as engine:
        reply = engine.submit(request(max_tokens=100))
        await rounds(engine, 3)
        engine.rounds.book._free[0].give([reply.lane.pages[0]])
        logging.disable()
        _, end = await read(reply)
        logging.disable(logging.NOTSET)
        assert isinstance(end, EngineFailed)
        assert "AssertionError: free and held" in end.message


@virtual_time
async def test_a_page_that_did_not_come_back_is_found_at_rest() -> None:
    """Also without the check after every round: nobody's reply would show it."""
    engine = EngineService(OF, ranks_of(), LoopClock())
    async with asyncio.TaskGroup() as group:
        group.create_task(engine.run())
        reply = engine.submit(request(max_tokens=100))
        await rounds(engine, 3)
        engine.rounds.book._free[0].take(1)
        logging.disable()
        assert (await read(reply))[1] is FinishReason.LENGTH
        await asyncio.sleep(0.1)
        logging.disable(logging.NOTSET)
        assert engine.failure is not None
        assert "pages, but 64 are funded" in engine.failure.message


@virtual_time
async def test_a_drain_gives_up_when_its_time_is_over() -> None:
    ranks = ranks_of(window_seconds=1.0)
    engine = EngineService(OF, ranks, LoopClock(), checks=True)
    async with asyncio.TaskGroup() as group:
        group.create_task(engine.run())
        reply = engine.submit(request(max_tokens=100))
        await rounds(engine, 3)
        start = asyncio.get_running_loop().time()
        await engine.drain(5.0)
        assert asyncio.get_running_loop().time() - start == pytest.approx(5.0)
        ids, end = await read(reply)
        assert isinstance(end, ShuttingDown)
        assert len(ids) >= 5
    assert_idle(engine)


@virtual_time
async def test_a_cancelled_engine_ends_every_reply() -> None:
    engine = EngineService(OF, ranks_of(), LoopClock())
    task = asyncio.create_task(engine.run())
    replies = [engine.submit(request(max_tokens=100)) for _ in range(3)]
    await rounds(engine, 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for reply in replies:
        assert isinstance((await read(reply))[1], ShuttingDown)
    assert_idle(engine)


@virtual_time
async def test_a_reply_that_waits_fails_with_one_event() -> None:
    ranks = ranks_of()
    async with serving(shape(lanes=1), ranks) as engine:
        engine.submit(request(max_tokens=50))
        waiting = engine.submit(request())
        ranks.lose("gone")
        event = await anext(waiting)
        assert isinstance(event, Failed)
        with pytest.raises(StopAsyncIteration):
            await anext(waiting)


@virtual_time
async def test_a_reply_has_one_reader() -> None:
    async with serving(OF, ranks_of(), max_queue=1) as engine:
        reply = engine.submit(request(max_tokens=3))
        await anext(reply)
        first = asyncio.create_task(anext(reply))
        await asyncio.sleep(0)
        with pytest.raises(AssertionError, match="one reader"):
            await anext(reply)
        await first


@virtual_time
async def test_a_round_that_does_not_end_turns_health_until_it_does() -> None:
    ranks = ranks_of(window_seconds=100.0)
    async with serving(OF, ranks) as engine:
        await asyncio.sleep(500)
        assert engine.health() == Health(True), "nothing runs, so nothing has to move"
        reply = engine.submit(request(max_tokens=2))
        await asyncio.sleep(50)
        assert engine.health() == Health(True)
        await asyncio.sleep(30)
        health = engine.health()
        assert not health.ok
        assert health.reason == "no round has ended for 80 s while 1 run"
        await read(reply)
        assert engine.health() == Health(True)
