"""The routes of Anthropic's Messages.

Owns nothing but the order of calls. Knows no policies; those are in `edge/anthropic_ask.py`.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from streamglm.edge import anthropic_fields as fields
from streamglm.edge.anthropic_ask import count_tokens, messages_ask
from streamglm.edge.anthropic_frames import MessageFrames
from streamglm.edge.generating import Body, Framing, Generating
from streamglm.edge.prepare import Ask
from streamglm.edge.refusals import json_response
from streamglm.edge.served import ServedModel


async def _message(body: Body, size: int, model: ServedModel) -> tuple[Ask, Framing]:
    return await messages_ask(body, size, model), MessageFrames


class AnthropicRoutes:
    """The handlers of one app."""

    def __init__(self, generating: Generating) -> None:
        self._generating = generating

    def table(self) -> list[Route]:
        """Every route with its methods."""
        return [
            Route(fields.MESSAGES, self.messages, methods=["POST"]),
            Route(fields.COUNT_TOKENS, self.count_tokens, methods=["POST"]),
        ]

    async def messages(self, request: Request) -> ASGIApp:
        return await self._generating.reply(request, _message)

    async def count_tokens(self, request: Request) -> Response:
        body, size = await self._generating.body(request)
        count = await count_tokens(body, size, self._generating.model)
        return json_response({"input_tokens": count})
