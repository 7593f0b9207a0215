"""One engine, over fake ranks in virtual time or over a real rank process, for the same tests.

What a test shows on the fake is thereby shown of the real thing, and the fake is proved to be one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from streamglm.core.engine import Reply
from streamglm.core.keeping import PromptCache
from streamglm.core.service import EngineService
from streamglm.core.shape import EngineShape
from streamglm.errors import StreamglmError
from streamglm.ranks.client import RankClient, start_ranks
from streamglm.ranks.group import Limits
from streamglm.ranks.wire import RankSettings
from streamglm.request import Failed, Finished, FinishReason, Request, SamplingParams, Tokens
from support.clock import LoopClock, run_virtual
from support.disk import MemoryDisk
from support.fakes import FakeRanks, shape, spec_numbers
from support.stub import expected

STUB = "support.stub:build"

Body = Callable[[EngineService], Coroutine[Any, Any, None]]


def request(
    prompt: int | tuple[int, ...] = 10,
    max_tokens: int = 5,
    seed: int = 1,
    stop_ids: frozenset[int] = frozenset(),
    id: str = "r",
) -> Request:
    """A request with a prompt of so many tokens, or of these."""
    tokens = (
        tuple((7 * i + seed) % 50 for i in range(prompt)) if isinstance(prompt, int) else prompt
    )
    return Request(id, tokens, max_tokens, SamplingParams(seed=seed), stop_ids)


def tokens_of(wanted: Request, vocab: int = 50) -> tuple[int, ...]:
    """The whole reply to a request that nothing ends early."""
    return expected(wanted.prompt, wanted.sampling.seed, wanted.max_tokens, vocab)


async def read(reply: Reply) -> tuple[tuple[int, ...], FinishReason | StreamglmError]:
    """A reply to its end: its tokens, and how it ended."""
    ids: tuple[int, ...] = ()
    end: FinishReason | StreamglmError | None = None
    async for event in reply:
        assert end is None, "an event after the last one"
        match event:
            case Tokens(more):
                ids += more
            case Finished(reason):
                end = reason
            case Failed(error):
                end = error
    assert end is not None, "a reply without an end"
    return ids, end


async def rounds(engine: EngineService, count: int) -> None:
    """Wait until `count` more rounds were run; of an engine that failed there are none."""
    goal = engine.rounds.totals.rounds + count
    while engine.rounds.totals.rounds < goal:  # rounds ring no bell
        assert engine.failure is None, engine.failure
        await asyncio.sleep(0.001)


def assert_idle(engine: EngineService) -> None:
    """Every lane is back, and every page is free or can be evicted."""
    engine.rounds.check()
    stats = engine.stats()
    assert (stats.running, stats.pages_free + stats.pages_kept) == (0, stats.pages_total)
    assert stats.cache.slots - stats.cache.slots_free == stats.cache.states["shared"]
    assert not engine.rounds.queue
    assert engine.rounds.book.digest() == 0


def cache_of(slots: int = 0, *, budget: int = 0, host: int = 0, wait: float = 60.0) -> PromptCache:
    """A prompt cache in which a copy takes 100 bytes and 10 a token."""
    return PromptCache(
        slots=slots,
        budget=budget,
        host=host,
        state_bytes=lambda at: 100 + 10 * at,
        wait_seconds=wait,
    )


def settings(of: EngineShape, model: str = "stub", slots: int = 0) -> RankSettings:
    """Settings of a rank that runs the stub."""
    return RankSettings(
        model=model,
        device="cpu",
        threads=1,
        pages=of.pages,
        lanes=of.lanes,
        slots=slots,
        kv_poison=True,
        spelled_ids=None,
        spec=spec_numbers(of),
    )


@asynccontextmanager
async def serving(
    of: EngineShape, ranks: FakeRanks | RankClient, **options: Any
) -> AsyncIterator[EngineService]:
    """An engine at work, its book proved after every round; drained at the end."""
    engine = EngineService(of, ranks, LoopClock(), checks=True, shuffle=7, **options)
    if isinstance(disk := options.get("cache", PromptCache()).disk, MemoryDisk):
        disk.wake = engine.rounds.ring
    async with asyncio.TaskGroup() as group:
        group.create_task(engine.run())
        yield engine
        await engine.drain(600.0)


class House:
    """Where a test's engine lives: 'fake', or 'process' on the event loop of the real server."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def run(self, body: Body, of: EngineShape | None = None, **options: Any) -> None:
        """Run `body` over an engine that must be idle afterwards, and healthy unless drained."""
        of = of or shape()
        if self.kind == "fake":
            run_virtual(self._fake(body, of, options))
        else:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._process(body, of, options))

    async def _fake(self, body: Body, of: EngineShape, options: dict[str, Any]) -> None:
        cache = options.get("cache", PromptCache())
        ranks = FakeRanks(
            of,
            LoopClock(),
            slots=cache.slots,
            row_seconds=0.01,
            window_seconds=0.01,
            disk=cache.disk,
        )
        engine = await self._serve(body, of, ranks, options)
        assert not ranks.mirror.live, "the ranks were not told of every end"
        states = engine.rounds.keeping.kept._states.items()
        kept = {number: one.slot for number, one in states}
        told = {number: one.slot for number, one in ranks.mirror.kept.items()}
        assert told == kept, "the ranks were not told of every state"

    async def _process(self, body: Body, of: EngineShape, options: dict[str, Any]) -> None:
        limits = Limits(silence=30.0, step=30.0, ping_every=0.5)
        slots = options.get("cache", PromptCache()).slots
        ranks = await start_ranks(settings(of, slots=slots), limits=limits, build=STUB)
        try:
            await self._serve(body, of, ranks, options)
        finally:
            await ranks.close()

    async def _serve(
        self, body: Body, of: EngineShape, ranks: FakeRanks | RankClient, options: dict[str, Any]
    ) -> EngineService:
        async with serving(of, ranks, **options) as engine:
            await body(engine)
            assert engine.health().reason in (None, "the server is shutting down")
            await engine.rounds.idle.wait()
            assert_idle(engine)
            return engine
