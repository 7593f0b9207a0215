"""From a request for a reply to its response, whatever API it is asked in.

Owns the order: body, ask, engine, telling, frames. Knows no fields and no shapes: an API brings a
function that reads its bodies and says what its replies are written with. Invariant: every API goes
this one way, so that equal prompts have equal replies in all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from streamglm.clock import Clock
from streamglm.config import Settings
from streamglm.core.engine import Engine
from streamglm.edge.body import parse_object, read_body
from streamglm.edge.frames import Frames
from streamglm.edge.meters import Meters
from streamglm.edge.prepare import Ask
from streamglm.edge.served import ServedModel
from streamglm.edge.sse import EventStream
from streamglm.edge.telling import Telling
from streamglm.edge.whole import WholeReply
from streamglm.errors import StreamglmError

Body = dict[str, Any]
Framing = Callable[[Telling, ServedModel], Frames]
Asking = Callable[[Body, int, ServedModel], Awaitable[tuple[Ask, Framing]]]
"""A body's object and how many bytes it was -> what is asked for, and how it is written."""


class Generating:
    """What the routes share that answer with a reply."""

    def __init__(
        self, engine: Engine, model: ServedModel, settings: Settings, clock: Clock, meters: Meters
    ) -> None:
        self.model = model
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._meters = meters

    async def reply(self, request: Request, asking: Asking) -> ASGIApp:
        """The response. Raises `StreamglmError` for what can be refused before it begins."""
        arrived = self._clock.now()
        try:
            body, size = await self.body(request)
            ask, framing = await asking(body, size, self.model)
            reply = self._engine.submit(ask.request)
        except StreamglmError:
            self._meters.ended("refused")
            raise
        telling = Telling(ask, reply, self.model, self._meters, self._clock, arrived)
        frames = framing(telling, self.model)
        if not ask.stream:
            return WholeReply(telling, frames)
        patience = self._settings.slow_client_seconds
        return EventStream(telling, frames, self._clock, slow_client_seconds=patience)

    async def body(self, request: Request) -> tuple[Body, int]:
        """The body's object, and how many bytes it was."""
        limit = self._settings.max_body_mib << 20
        raw = await read_body(request.headers, request.receive, limit)
        return await parse_object(raw), len(raw)
