"""One reply on its way from the rounds to its reader.

Owns the events that wait for the reader. Knows its lane, and nothing of rounds or HTTP. What
waits is stored as it is counted: a reply that nobody reads costs its token ids, and the
log-probabilities that it asked for; a reader that falls behind gets the tokens of several rounds in
one event. A round never waits for a reader, and wakes it once however much it delivers: a reader
that iterates has its task woken, one that listens is called by the bell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamglm.clock import Clock
from streamglm.core.bell import Bell
from streamglm.core.lane import Lane, State
from streamglm.request import Event, Failed, Finished, Started, Timing, Tokens
from streamglm.step import LogProbs


class ReplyStream:
    """The `Reply` of `core/engine.py`. One reader at a time."""

    __slots__ = (
        "_bell",
        "_call",
        "_clock",
        "_end",
        "_ids",
        "_logprobs",
        "_over",
        "_rung",
        "_started",
        "_stop",
        "_wake",
        "lane",
        "stopped",
    )

    def __init__(
        self, lane: Lane, clock: Clock, stop: Callable[[ReplyStream], None], bell: Bell
    ) -> None:
        self.lane = lane
        self.stopped = False
        """The reader wants no more; the next round takes it."""
        self._clock = clock
        self._stop = stop
        self._started: Started | None = None
        self._ids: list[int] = []
        self._logprobs: list[LogProbs] = []
        self._end: Finished | Failed | None = None
        self._over = False
        self._wake: asyncio.Future[None] | None = None
        self._bell = bell
        self._call: Callable[[], None] | None = None
        self._rung = False  # the bell will make the call, or has made it and nothing was taken

    def __aiter__(self) -> ReplyStream:
        return self

    async def __anext__(self) -> Event:
        """The next event. Cancelled while it waits, it has taken nothing."""
        if self._over:
            raise StopAsyncIteration
        while (event := self._next()) is None:
            assert self._wake is None, "a reply has one reader at a time"
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        return event

    def listen(self, call: Callable[[], None]) -> None:
        assert self._call is None, "a reply has one reader at a time"
        self._call = call
        if self._started is not None or self._ids or self._end is not None:
            self._ring()

    def take(self) -> list[Event]:
        self._rung = False
        events: list[Event] = []
        while (event := self._next()) is not None:
            events.append(event)
            if event.__class__ is Tokens and self._end is None:
                break  # nothing can stand behind them: one look less a token
        return events

    def _next(self) -> Event | None:
        """The first event that waits, taken."""
        if self._started is not None:
            started, self._started = self._started, None
            return started
        if self._ids:
            ids, self._ids = self._ids, []
            logprobs: tuple[LogProbs, ...] = ()
            if self._logprobs:
                logprobs = tuple(self._logprobs)
                self._logprobs = []
            return Tokens(tuple(ids), logprobs)
        end, self._end = self._end, None
        self._over = self._over or end is not None
        return end

    def timing(self) -> Timing:
        return self.lane.timing(self._clock.now())

    def stop(self) -> None:
        if not self.stopped and self.lane.state is not State.DONE:
            self.stopped = True
            self._stop(self)

    def start(self, started: Started) -> None:
        """Deliver the first event."""
        self._started = started
        self._ring()

    def push(self, token: int, logprob: LogProbs | None = None) -> None:
        """Deliver one more token, with its log-probabilities where they are asked."""
        self._ids.append(token)
        if logprob is not None:
            self._logprobs.append(logprob)
        self._ring()

    def finish(self, end: Finished | Failed) -> None:
        """Deliver the last event."""
        self._end = end
        self._ring()

    def _ring(self) -> None:
        if self._call is not None:
            if not self._rung:
                self._rung = True
                self._bell.ring(self._call)
        elif self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
