"""A streamed reply on its connection: frames out, heartbeats, and a closed socket made a cancel.

Owns the response from its first byte to its last, and the tasks beside it. Knows no JSON beyond
what `edge/frames.py` writes. Status, headers and a comment go out at once; from then on no
`BEAT_SECONDS` pass without bytes, in the queue and in a prompt too. Invariant: however the response
ends, the engine has been told by `leave()`, and no task is left behind.
"""

from __future__ import annotations

import logging

import anyio
from anyio.abc import TaskGroup
from starlette.types import Message, Receive, Scope, Send

from streamglm.clock import Clock
from streamglm.edge.body import gone
from streamglm.edge.frames import Frames
from streamglm.edge.logprobs import Named
from streamglm.edge.refusals import internal
from streamglm.edge.telling import Telling
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


class Wire:
    """The sending side of a response, and what a watcher must know of it."""

    def __init__(self, send: Send, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._waiting = 0
        self._since = clock.now()  # bytes were taken, or the oldest that wait were offered

    @property
    def blocked(self) -> bool:
        """Bytes wait for the client to take them."""
        return self._waiting > 0

    @property
    def silent(self) -> float:
        """Seconds for which nothing was sent, or, when blocked, nothing was taken."""
        return self._clock.now() - self._since

    async def start(self) -> None:
        """Status and headers."""
        await self._put({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})

    async def write(self, data: bytes) -> None:
        """Returns once the connection has room for more."""
        await self._put({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes) -> None:
        """The last bytes."""
        await self._put({"type": "http.response.body", "body": data, "more_body": False})

    async def _put(self, message: Message) -> None:
        if not self.blocked:
            self._since = self._clock.now()
        self._waiting += 1
        try:
            await self._send(message)
        finally:
            self._waiting -= 1
        self._since = self._clock.now()


class EventStream:
    """The response of a streamed request, as an ASGI application."""

    def __init__(
        self, telling: Telling, frames: Frames, clock: Clock, *, slow_client_seconds: float
    ) -> None:
        self._telling = telling
        self._frames = frames
        self._clock = clock
        self._patience = slow_client_seconds
        self._named = 0  # tokens that chunks have named so far

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire = Wire(send, self._clock)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, receive, tasks)
                tasks.start_soon(self._beat, wire, tasks)
                await wire.start()
                await wire.write(self._frames.beat)
                await self._tell(wire)
                tasks.cancel_scope.cancel()
        except* OSError:
            log.debug("%s: the connection broke", self._telling.ask.request.id)
        finally:
            self._telling.leave()

    async def _tell(self, wire: Wire) -> None:
        telling = self._telling
        try:
            async for happened in telling.reply:
                if data := self._frame(happened):
                    await wire.write(data)
                if telling.done:
                    break
        except OSError:
            raise
        except Exception:
            log.exception("%s: unexpected error", telling.ask.request.id)
            telling.fail(internal())
        await wire.end(self._ending())

    def _frame(self, happened: Event) -> bytes:
        """The bytes of one event: all that a round says, in one write."""
        pieces = self._telling.take(happened)
        if isinstance(happened, Started):
            return self._frames.opening()
        if not pieces and isinstance(happened, Tokens) and self._telling.ask.names_tokens:
            pieces = [Piece(Kind.CONTENT, "")]
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
                tasks.start_soon(wire.write, self._frames.beat)
            limit = self._patience if wire.blocked else BEAT_SECONDS
            wait = limit - wire.silent
            await self._clock.sleep(wait if 0 < wait < step else step)
