"""The route of OpenAI's Responses.

Owns nothing but the order of calls. Knows no policies; those are in `edge/responses_ask.py`.
"""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from streamglm.edge.generating import Body, Framing, Generating
from streamglm.edge.prepare import Ask
from streamglm.edge.responses_ask import responses_ask
from streamglm.edge.responses_fields import RESPONSES
from streamglm.edge.responses_frames import ResponseFrames
from streamglm.edge.served import ServedModel


class ResponsesRoutes:
    """The handlers of one app."""

    def __init__(self, generating: Generating) -> None:
        self._generating = generating

    def table(self) -> list[Route]:
        """Every route with its methods."""
        return [Route(RESPONSES, self.responses, methods=["POST"])]

    async def responses(self, request: Request) -> ASGIApp:
        return await self._generating.reply(request, _response)


async def _response(body: Body, size: int, model: ServedModel) -> tuple[Ask, Framing]:
    ask, told = await responses_ask(body, size, model)
    return ask, partial(ResponseFrames, told=told)
