"""A server whose rank was lost says so for a minute, and then ends for its supervisor."""

from __future__ import annotations

import asyncio

from streamglm.commands.serve import LOST_SECONDS, leave_lost
from streamglm.core.service import EngineService
from support.clock import LoopClock, virtual_time
from support.fakes import FakeRanks, shape


@virtual_time
async def test_a_server_stays_to_say_which_rank_was_lost_and_then_leaves() -> None:
    clock, left = LoopClock(), list[float]()
    ranks = FakeRanks(shape(), clock)
    engine = EngineService(shape(), ranks, clock)
    running = asyncio.create_task(engine.run())
    leaving = leave_lost(running, engine, clock, lambda: left.append(clock.now()))
    task = asyncio.create_task(leaving)
    await asyncio.sleep(5.0)
    ranks.lose("rank 1 is gone")
    began = clock.now()
    await asyncio.sleep(LOST_SECONDS - 1.0)
    assert (left, engine.health().reason) == ([], "rank 1 is gone")
    await task
    assert left == [began + LOST_SECONDS]


@virtual_time
async def test_a_server_that_is_drained_leaves_by_its_own_signal() -> None:
    """And one that is told to end while it says what was lost does not wait."""
    clock, left = LoopClock(), list[float]()
    ranks = FakeRanks(shape(), clock)
    engine = EngineService(shape(), ranks, clock)
    running = asyncio.create_task(engine.run())
    leaving = leave_lost(running, engine, clock, lambda: left.append(clock.now()))
    task = asyncio.create_task(leaving)
    await asyncio.sleep(1.0)
    task.cancel()
    await asyncio.sleep(1.0)
    assert (running.done(), left) == (False, [])
    await engine.drain(1.0)
    await running
    assert clock.now() < LOST_SECONDS
