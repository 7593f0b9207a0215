"""The engine behind the edge: submit, health and stats over the rounds.

Owns who may come in and how the whole ends: refusals, the queue's limit, failure and shutdown.
Knows no HTTP and no processes. Invariant: every reply that was handed out ends with `Finished` or
`Failed`, whatever happens to the ranks or to this process's tasks.

`run` owns every task; it returns when a rank is lost or after `drain`, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TypeVar

from streamglm.clock import Clock
from streamglm.core.admission import refuse
from streamglm.core.bell import Bell
from streamglm.core.engine import EngineStats, Health, PoolView
from streamglm.core.holders import PageHolders
from streamglm.core.keeping import PromptCache
from streamglm.core.lane import Lane
from streamglm.core.loop import Ranks, Rounds
from streamglm.core.reply import ReplyStream
from streamglm.core.shape import EngineShape
from streamglm.core.views import holders_of, pool_of, stats_of
from streamglm.drafts.replies import DraftLimits
from streamglm.errors import EngineFailed, Overloaded, ShuttingDown, StreamglmError
from streamglm.request import Request

STALL_SECONDS = 60.0
"""From when on a round that does not end makes the server unhealthy. It may still end: a client or
a balancer had better go elsewhere until then."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class EngineService:
    """The `Engine` of `core/engine.py`.

    `decode_share` is below 1; `max_queue` requests may wait, at least 1; `cache` is where prompts
    are kept, by default nowhere. `checks` and `shuffle` are for tests: prove the book after every
    round, and lease page ids in a shuffled order.
    """

    def __init__(
        self,
        shape: EngineShape,
        ranks: Ranks,
        clock: Clock,
        *,
        decode_share: float = 0.5,
        max_queue: int = 256,
        cache: PromptCache | None = None,
        drafts: DraftLimits | None = None,
        checks: bool = False,
        shuffle: int | None = None,
    ) -> None:
        self.rounds = Rounds(
            shape,
            ranks,
            clock,
            cache or PromptCache(),
            decode_share=decode_share,
            drafts=drafts,
            checks=checks,
            shuffle=shuffle,
        )
        self._ranks = ranks
        self._clock = clock
        self._bell = Bell(clock.now)
        self._max_queue = max_queue
        self._arrivals = 0
        self._failure: EngineFailed | None = None
        self._closing = False
        self._closed = asyncio.Event()

    @property
    def failure(self) -> EngineFailed | None:
        """Why the engine is of no more use, or None while it is."""
        return self._failure

    def submit(self, request: Request) -> ReplyStream:
        try:
            self._refuse(request)
        except StreamglmError:
            self.rounds.totals.ended["refused"] += 1
            raise
        self._arrivals += 1
        lane = Lane(request, self._clock.now(), self._arrivals)
        reply = ReplyStream(lane, self._clock, self.rounds.stop, self._bell)
        self.rounds.enqueue(reply)
        return reply

    def _refuse(self, request: Request) -> None:
        if self._failure is not None:
            raise EngineFailed(self._failure.message)
        if self._closing:
            raise ShuttingDown("the server is shutting down and takes no more requests")
        refuse(self.rounds.shape, request)
        waiting = len(self.rounds.queue)
        if waiting >= self._max_queue:
            raise Overloaded(f"{waiting} requests wait, as many as `--max-queue` allows")

    def health(self) -> Health:
        if self._failure is not None:
            return Health(False, self._failure.message)
        if self._closing:
            return Health(False, "the server is shutting down")
        stalled = self.rounds.stalled
        if stalled >= STALL_SECONDS:
            running = len(self.rounds.live)
            return Health(False, f"no round has ended for {stalled:.0f} s while {running} run")
        return Health(True)

    def stats(self) -> EngineStats:
        return stats_of(self.rounds)

    def pool(self) -> PoolView:
        return pool_of(self.rounds)

    def holders(self) -> PageHolders:
        return holders_of(self.rounds)

    async def run(self) -> None:
        """Serve until a rank is lost or `drain` is through. Whatever is live then fails by name;
        so it does when this is cancelled."""
        error: StreamglmError = ShuttingDown("the server shut down before the reply was whole")
        try:
            ended = await _first(self._run_rounds(), self._ranks.failed(), self._until_closed())
            if ended is not None:
                error = self._failure = ended
                _log.error("engine failed: %s", ended.message)
        finally:
            self._closing = True
            self.rounds.fail(error)

    async def drain(self, seconds: float, learn_seconds: float = 0.0) -> None:
        """Take no more requests, fail those that wait, and let what runs finish for at most
        `seconds`, and what is to be written to the disk for `learn_seconds` more; then `run` ends.
        Cancelled, it leaves `run` as it is."""
        self._closing = True
        self.rounds.refuse_queue(ShuttingDown("the server is shutting down"))
        await _first(self._until_idle(), self._clock.sleep(seconds))
        if learn_seconds and self._failure is None:
            learned = self.rounds.keeping.learning.settled()
            await _first(learned, self._clock.sleep(learn_seconds))
        self._closed.set()

    async def _run_rounds(self) -> EngineFailed:
        try:
            await self.rounds.run()
        except EngineFailed as error:
            return error
        except Exception as error:
            _log.exception("a round failed")
            return EngineFailed(f"a round failed: {type(error).__name__}: {error}")

    async def _until_closed(self) -> None:
        await self._closed.wait()

    async def _until_idle(self) -> None:
        await self.rounds.idle.wait()


async def _first(*coroutines: Coroutine[None, None, T]) -> T:
    """The result of the first to return; the others are cancelled and have ended."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    return next(task.result() for task in tasks if task in done)
