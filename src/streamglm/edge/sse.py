"""A streamed reply on its connection: frames out, heartbeats, and a closed socket made a cancel.

Owns the response from its first byte to its last, and the tasks beside it. Knows no JSON beyond
what `edge/frames.py` writes, and no socket (`edge/wire.py`). Status, headers and a comment go out
at once; from then on no `BEAT_SECONDS` pass without bytes, in the queue and in a prompt too. A
round costs a stream one write and wakes no task: the reply calls, and what it says is written in
that call. While a client takes nothing, what comes waits in the reply as token ids. Invariant:
however the response ends, the engine has been told by `leave()`, and no task is left behind.
"""

from __future__ import annotations

import logging

import anyio
from anyio.abc import TaskGroup
from starlette.types import Receive, Scope, Send

from streamglm.clock import Clock
from streamglm.edge.body import gone
from streamglm.edge.frames import Frames
from streamglm.edge.logprobs import Named
from streamglm.edge.refusals import internal
from streamglm.edge.telling import Telling
from streamglm.edge.wire import Wire, sender
from streamglm.request import Event, Started, Tokens
from streamglm.text.markup import Kind, Piece

BEAT_SECONDS = 4.0
"""Promised are 5; the rest is for a busy loop."""
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)

log = logging.getLogger(__name__)


class EventStream:
    """The response of a streamed request, as an ASGI application."""

    def __init__(
        self, telling: Telling, frames: Frames, clock: Clock, *, slow_client_seconds: float
    ) -> None:
        self._telling = telling
        self._frames = frames
        self._clock = clock
        self._patience = slow_client_seconds
        self._names = telling.ask.names_tokens
        self._named = 0  # tokens that chunks have named so far
        self._over = False
        """Nothing more will be told, or nobody is there to hear it."""
        self._due = anyio.Event()
        """A write has to wait, or all is told: something for this response's own task."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._wire = wire = Wire(send, sender(scope, send), self._clock, self._wake)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, receive, tasks)
                tasks.start_soon(self._beat, wire, tasks)
                await wire.start(list(HEADERS))
                wire.write(self._frames.beat)
                self._telling.reply.listen(self._news)
                await self._until_over(wire)
                if self._telling.done:  # else the connection broke
                    await wire.end(self._ending())
                tasks.cancel_scope.cancel()
        except* OSError:
            log.debug("%s: the connection broke", self._telling.ask.request.id)
        finally:
            self._over = True
            self._telling.leave()

    async def _until_over(self, wire: Wire) -> None:
        """Wait with the writes that have to wait; what came meanwhile is one write behind them."""
        while not self._over:
            await self._due.wait()
            self._due = anyio.Event()
            await wire.drain()
            self._news()

    def _news(self) -> None:
        """Write what the reply has to say, if the connection takes it now."""
        if self._over or self._wire.blocked:
            return
        telling = self._telling
        try:
            if data := self._told():
                self._wire.write(data)
        except OSError:
            self._over = True
        except Exception:
            log.exception("%s: unexpected error", telling.ask.request.id)
            telling.fail(internal())
        if telling.done or self._over:
            self._over = True
            self._wake()

    def _wake(self) -> None:
        self._due.set()

    def _told(self) -> bytes:
        """The bytes of all that waits: in one write, however many events it was."""
        telling = self._telling
        told = [self._frame(one) for one in telling.reply.take() if not telling.done]
        return told[0] if len(told) == 1 else b"".join(told)

    def _frame(self, happened: Event) -> bytes:
        """The bytes of one event."""
        pieces = self._telling.take(happened)
        if not pieces:
            if isinstance(happened, Started):
                return self._frames.opening()
            if not self._names or not isinstance(happened, Tokens):
                return b""
            pieces = [Piece(Kind.CONTENT, "")]
        if len(pieces) == 1 and not self._names:
            return self._frames.chunk(pieces[0], None)
        return b"".join([self._frames.chunk(piece, self._unnamed()) for piece in pieces])

    def _ending(self) -> bytes:
        telling = self._telling
        if telling.reason is None:
            return self._frames.failure(telling.error or internal()) + self._frames.done
        last = self._frames.finish(telling.reason, self._unnamed(), telling.figures())
        if telling.ask.include_usage:
            last += self._frames.usage(telling.usage())
        return last + self._frames.done

    def _unnamed(self) -> Named | None:
        """The tokens that no chunk has named yet, for this chunk to name."""
        named = self._telling.named(self._named)
        self._named += 0 if named is None else len(named.ids)
        return named

    async def _watch(self, receive: Receive, tasks: TaskGroup) -> None:
        """A client that leaves ends everything; `leave()` follows on the way out."""
        await gone(receive)
        tasks.cancel_scope.cancel()

    async def _beat(self, wire: Wire, tasks: TaskGroup) -> None:
        """A beat whenever nothing was sent for a while; the end when nothing was taken for
        long. Never waits for the client itself, so that it can give up on it."""
        step = min(BEAT_SECONDS, self._patience)
        while True:
            if wire.blocked and wire.silent >= self._patience:
                log.info("%s: dropped, the client reads nothing", self._telling.ask.request.id)
                tasks.cancel_scope.cancel()
                return
            if wire.silent >= BEAT_SECONDS and not wire.blocked:
                wire.write(self._frames.beat)
            limit = self._patience if wire.blocked else BEAT_SECONDS
            wait = limit - wire.silent
            await self._clock.sleep(wait if 0 < wait < step else step)
