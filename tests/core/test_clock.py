"""The virtual clock jumps in order, and says so when nothing can ever happen."""

from __future__ import annotations

import asyncio

import pytest

from support.clock import AutojumpLoop, Deadlock, LoopClock, run_virtual, virtual_time


@virtual_time
async def test_waits_end_in_the_order_of_their_deadlines_and_take_no_time() -> None:
    clock = LoopClock()
    seen: list[tuple[str, float]] = []

    async def wait(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        seen.append((name, clock.now()))

    await asyncio.gather(wait("hour", 3600), wait("second", 1), wait("minute", 60))
    assert seen == [("second", 1.0), ("minute", 60.0), ("hour", 3600.0)]


def test_a_wait_for_nothing_fails_instead_of_hanging() -> None:
    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    loop = AutojumpLoop()
    task = loop.create_task(never())
    with pytest.raises(Deadlock):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_a_failing_test_fails() -> None:
    async def fails() -> None:
        raise ValueError("seen")

    with pytest.raises(ValueError, match="seen"):
        run_virtual(fails())
