"""One of two ranks is lost: every reply ends by its name, nothing waits, and the other one ends.

In each phase: at rest, in a prompt, in decode, and while the other rank waits for it in the middle
of an exchange. Without `RankClient._latch` ending the group, the other rank runs on. Who is named
when several end at once is `test_culprit.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable

import pytest

from streamglm.core.engine import Health
from streamglm.core.service import EngineService
from streamglm.errors import EngineFailed, StartError
from streamglm.ranks.client import RankClient, start_ranks
from streamglm.ranks.group import Limits, RankGroup
from support.alive import alive
from support.fakes import shape
from support.house import STUB, read, request, serving, settings
from support.stub import SLOW
from support.trading import LATE, TRADING

OF = shape(context=2048, pages=300)
LIMITS = Limits(silence=30.0, step=30.0, ping_every=0.1, ping=0.8, life=0.8, stop=0.5)
KILLED = "rank 1 was killed by signal 9 (SIGKILL)"


@contextlib.asynccontextmanager
async def two_ranks(build: str) -> AsyncIterator[tuple[RankClient, EngineService]]:
    """An engine over two ranks, none of which runs afterwards."""
    ranks = await start_ranks(settings(OF), world=2, limits=LIMITS, build=build)
    pids = ranks.pids
    try:
        async with serving(OF, ranks) as engine:
            yield ranks, engine
    finally:
        await ranks.close()
        assert not any(map(alive, pids))


async def until(met: Callable[[], bool], seconds: float = 5.0) -> None:
    """Return once `met`; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        await asyncio.sleep(0.01)


async def lost(engine: EngineService, ranks: RankClient, replies: list[object], line: str) -> None:
    """Every reply fails with `line`, health says it, and no rank is left, within seconds."""
    pids = ranks.pids
    async with asyncio.timeout(5.0):
        for reply in replies:
            _, end = await read(reply)  # type: ignore[arg-type]
            assert isinstance(end, EngineFailed)
            assert end.message == line
        await until(lambda: not engine.health().ok)
    assert engine.health() == Health(False, line)
    await until(lambda: not any(map(alive, pids)))


def stands_late(capfd: pytest.CaptureFixture[str]) -> Callable[[], bool]:
    """Whether the last rank has said that it stands still."""
    said = []

    def late() -> bool:
        said.append(capfd.readouterr().out)
        return "late\n" in "".join(said)

    return late


async def in_a_prompt(engine: EngineService) -> list[object]:
    """Replies of which the longest prompt takes seconds to fill."""
    replies = [engine.submit(request(1500, max_tokens=5, seed=SLOW)) for _ in range(2)]
    await until(lambda: engine.rounds.totals.rounds >= 3)
    return list(replies)


async def in_decode(engine: EngineService) -> list[object]:
    """Replies that have begun."""
    replies = [engine.submit(request(8, max_tokens=400, seed=SLOW)) for _ in range(3)]
    for reply in replies:
        await anext(reply)
    return list(replies)


async def at_rest(engine: EngineService) -> list[object]:
    """No replies."""
    return []


Phase = Callable[[EngineService], object]


@pytest.mark.parametrize("phase", [at_rest, in_a_prompt, in_decode], ids=lambda one: one.__name__)
async def test_a_killed_rank_ends_replies_and_the_other_rank(phase: Phase) -> None:
    async with two_ranks(STUB) as (ranks, engine):
        replies = await phase(engine)  # type: ignore[misc]
        os.kill(ranks.pids[1], signal.SIGKILL)
        await lost(engine, ranks, replies, KILLED)


@pytest.mark.parametrize("phase", [at_rest, in_decode], ids=lambda one: one.__name__)
async def test_a_rank_that_stands_still_meets_the_watchdog(phase: Phase) -> None:
    """In decode the step's own limit is 30 s here: signs of life tell it in one."""
    stood = "not answered" if phase is at_rest else "given no sign of life"
    async with two_ranks(STUB) as (ranks, engine):
        replies = await phase(engine)  # type: ignore[misc]
        os.kill(ranks.pids[1], signal.SIGSTOP)
        await lost(engine, ranks, replies, f"rank 1 has {stood} for 0.8 s")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda one: one.name)
async def test_a_rank_lost_in_an_exchange_is_named_and_not_the_one_that_waits(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    async with two_ranks(TRADING) as (ranks, engine):
        wanted = request(8, max_tokens=3)
        assert len((await read(engine.submit(wanted)))[0]) == 3
        replies: list[object] = [engine.submit(request(8, max_tokens=5, seed=LATE))]
        await until(stands_late(capfd))
        os.kill(ranks.pids[1], number)
        stood = "rank 1 has given no sign of life for 0.8 s"
        await lost(engine, ranks, replies, KILLED if number == signal.SIGKILL else stood)


async def test_a_rank_killed_while_ranks_meet_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    """Rank 0 waits for it, and is ended."""
    group = RankGroup(LIMITS)
    start = asyncio.create_task(group.start(settings(OF, "late"), 2, TRADING, lambda *_: None))
    await until(stands_late(capfd), 20.0)
    pids = [rank.pid for rank in group.ranks]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(StartError, match=r"^rank 1 was killed by signal 9 \(SIGKILL\) before"):
        await start
    assert not any(map(alive, pids))
