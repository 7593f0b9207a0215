"""A reply that is not streamed: gathered, then sent as one body.

Owns the wait. Knows no shapes. Invariant: the text is the joined pieces of the same telling that a
stream is written from; a client that leaves while it waits is a cancel at once.
"""

from __future__ import annotations

import logging

import anyio
from anyio.abc import TaskGroup
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from streamglm.edge.body import gone
from streamglm.edge.frames import Frames
from streamglm.edge.refusals import error_response, internal, json_response
from streamglm.edge.telling import Telling
from streamglm.text.markup import Piece

log = logging.getLogger(__name__)


class WholeReply:
    """The response of a request without `stream`, as an ASGI application."""

    def __init__(self, telling: Telling, frames: Frames) -> None:
        self._telling = telling
        self._frames = frames
        self._pieces: list[Piece] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, receive, tasks)
                await self._gather()
                tasks.cancel_scope.cancel()
        finally:
            self._telling.leave()
        if self._telling.done:  # else the client has left
            await self._response(scope["path"])(scope, receive, send)

    async def _gather(self) -> None:
        telling = self._telling
        try:
            async for happened in telling.reply:
                self._pieces += telling.take(happened)
                if telling.done:
                    break
        except Exception:
            log.exception("%s: unexpected error", telling.ask.request.id)
        if not telling.done:
            telling.fail(internal())

    def _response(self, path: str) -> Response:
        telling = self._telling
        if telling.reason is None:
            return error_response(telling.error or internal(), path)
        totals = {"usage": telling.usage(), "streamglm": telling.figures()}
        return json_response(
            self._frames.whole(self._pieces, telling.reason, telling.named(), totals)
        )

    async def _watch(self, receive: Receive, tasks: TaskGroup) -> None:
        await gone(receive)
        tasks.cancel_scope.cancel()
