"""The sending side of a streamed response: a write that wakes no task while its client reads.

Owns what is on its way to one connection. Knows no events. A write is driven here and now; only
when the connection has no room does a task wait for the rest of it. For that, `send` must not care
who drives it, and uvicorn's does not. Invariant: bytes go out in the order in which they were
given, and all of one write before the next.

Middleware has no business in the body of a response, so that body goes past it: `Direct` notes the
server's own `send`, and `sender` finds it.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, cast

from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from streamglm.clock import Clock

SENDER = "streamglm.send"
"""Key of the scope: the server's own `send`."""


class Direct(Starlette):
    """An application that leaves the server's `send` in the scope, for bodies."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[SENDER] = send
        await super().__call__(scope, receive, send)


def sender(scope: Scope, send: Send) -> Send:
    """What a response's body is sent with, once its start went through `send`."""
    found: Send = scope.get(SENDER, send)
    return found


class Wire:
    """One response: `start`, then any number of writes, then `end`. `start` goes through the
    middleware, all else through `body`. `held` is called when a write has to wait; `drain` then
    waits for it."""

    def __init__(self, start: Send, body: Send, clock: Clock, held: Callable[[], None]) -> None:
        self._start = start
        self._body = cast("Callable[[Message], Coroutine[Any, Any, None]]", body)
        self._now = clock.now
        self._held = held
        self._rest: Awaitable[None] | None = None
        self.blocked = False
        """Bytes wait for the client to take them. Nothing can be written."""
        self._since = clock.now()  # bytes were taken, or those that wait were offered

    @property
    def silent(self) -> float:
        """Seconds for which nothing was sent, or, when blocked, nothing was taken."""
        return self._now() - self._since

    async def start(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Status 200 and headers."""
        await self._whole(
            self._start, {"type": "http.response.start", "status": 200, "headers": headers}
        )

    def write(self, data: bytes) -> None:
        """Give `data` to the connection; it must not be blocked. Raises `OSError`."""
        assert not self.blocked, "a write behind one that waits"
        self._since = self._now()
        steps = self._body({"type": "http.response.body", "body": data, "more_body": True})
        try:
            waits_for = steps.send(None)
        except StopIteration:
            return
        self._rest = _from(steps, waits_for)
        self.blocked = True
        self._held()

    async def drain(self) -> None:
        """Wait for the write that has to wait, if one has."""
        rest, self._rest = self._rest, None
        if rest is not None:
            await rest
            self._taken()

    async def end(self, data: bytes) -> None:
        """The last bytes, behind all others."""
        await self.drain()
        message = {"type": "http.response.body", "body": data, "more_body": False}
        await self._whole(self._body, message)

    async def _whole(self, send: Send, message: Message) -> None:
        self._since = self._now()
        self.blocked = True
        await send(message)
        self._taken()

    def _taken(self) -> None:
        self._since = self._now()
        self.blocked = False


@types.coroutine
def _from(steps: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """What is left of a coroutine that was driven to its first wait, on `waits_for`."""
    try:
        yield waits_for
        yield from steps.__await__()
    finally:
        steps.close()
