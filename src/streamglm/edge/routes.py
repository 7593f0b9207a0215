"""The routes: each reads a body, hands it on, and returns a response.

Owns nothing but the order of these calls. Knows no policies; those are in `edge/prepare.py`.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from streamglm.clock import Clock
from streamglm.config import Settings
from streamglm.core.engine import Engine
from streamglm.edge import fields, openapi, schemas
from streamglm.edge.access import ADMITTED
from streamglm.edge.anthropic_routes import AnthropicRoutes
from streamglm.edge.frames import Frames, frames_of
from streamglm.edge.generating import Body, Framing, Generating
from streamglm.edge.meters import Meters
from streamglm.edge.page import Page
from streamglm.edge.poolmap import cells_of, map_of, now_of
from streamglm.edge.prepare import (
    Ask,
    chat_ask,
    check_model,
    completion_ask,
    tokenize_ids,
)
from streamglm.edge.refusals import json_response
from streamglm.edge.responses_routes import ResponsesRoutes
from streamglm.edge.sampling import check_ids
from streamglm.edge.served import ServedModel
from streamglm.edge.telling import Telling
from streamglm.errors import InvalidRequest


async def _chat(body: Body, size: int, model: ServedModel) -> tuple[Ask, Framing]:
    return await chat_ask(schemas.chat_body(body), size, model), _frames


async def _completion(body: Body, size: int, model: ServedModel) -> tuple[Ask, Framing]:
    return await completion_ask(schemas.completion_body(body), size, model), _frames


def _frames(telling: Telling, model: ServedModel) -> Frames:
    return frames_of(telling.ask, model)


class Routes:
    """The handlers of one app, and what they share."""

    def __init__(
        self, engine: Engine, model: ServedModel, settings: Settings, clock: Clock, meters: Meters
    ) -> None:
        self._engine = engine
        self._model = model
        self._meters = meters
        self._generating = Generating(engine, model, settings, clock, meters)

    def table(self) -> list[Route]:
        """Every route with its methods."""
        return [
            Route(fields.CHAT, self.chat, methods=["POST"]),
            Route(fields.COMPLETIONS, self.completions, methods=["POST"]),
            Route(fields.TOKENIZE, self.tokenize, methods=["POST"]),
            Route(fields.DETOKENIZE, self.detokenize, methods=["POST"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{name:path}", self.one_model, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/v1/pool", self.pool, methods=["GET"]),
            Route(openapi.PATH, self.openapi, methods=["GET"]),
            *AnthropicRoutes(self._generating).table(),
            *ResponsesRoutes(self._generating).table(),
            *Page().table(),
        ]

    async def chat(self, request: Request) -> ASGIApp:
        return await self._generating.reply(request, _chat)

    async def completions(self, request: Request) -> ASGIApp:
        return await self._generating.reply(request, _completion)

    async def tokenize(self, request: Request) -> Response:
        raw, size = await self._generating.body(request)
        ids = await tokenize_ids(schemas.tokenize_body(raw), size, self._model)
        body = {"tokens": ids, "count": len(ids), "max_model_len": self._model.context}
        return json_response(body)

    async def detokenize(self, request: Request) -> Response:
        raw, _ = await self._generating.body(request)
        body = schemas.detokenize_body(raw)
        check_model(body.model, self._model)
        if self._model.tokenizer is None:
            raise InvalidRequest("This checkpoint has no tokenizer.", param="tokens")
        check_ids(body.tokens, self._model, "tokens")
        return json_response({"prompt": self._model.tokenizer.decode(body.tokens)})

    async def models(self, request: Request) -> Response:
        ids = dict.fromkeys(("first_id", "last_id"), self._model.name)
        return json_response({"object": "list", "data": [self._entry()], "has_more": False, **ids})

    async def one_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        check_model(name, self._model)
        return json_response(self._entry())

    async def health(self, request: Request) -> Response:
        health = self._engine.health()
        status, word = (200, "ok") if health.ok else (503, "unavailable")
        shown: dict[str, Any] = {"status": word}
        if request.scope[ADMITTED]:
            shown |= self._counts() | ({} if health.ok else {"reason": health.reason})
        return json_response(shown, status=status)

    async def metrics(self, request: Request) -> Response:
        return Response(self._meters.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def pool(self, request: Request) -> Response:
        shown = asdict(self._engine.pool())
        if (cells := cells_of(request)) is not None:
            shown |= {"now": now_of(self._engine), "map": await map_of(self._engine, cells)}
        return json_response(shown)

    async def openapi(self, request: Request) -> Response:
        return json_response(openapi.document(request.app.routes, self._model.name))

    def _entry(self) -> dict[str, Any]:
        """The model, with the fields of OpenAI's list and of Anthropic's."""
        created = datetime.fromtimestamp(self._model.created, UTC)
        return {
            "id": self._model.name,
            "object": "model",
            "type": "model",
            "display_name": self._model.name,
            "created": self._model.created,
            "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "owned_by": "streamglm",
            "context_length": self._model.context,
            "max_model_len": self._model.context,
        }

    def _counts(self) -> dict[str, Any]:
        stats = self._engine.stats()
        return {
            "model": self._model.name,
            "lanes": stats.lanes,
            "running": stats.running,
            "waiting": sum(stats.waiting.values()),
            "pages_total": stats.pages_total,
            "pages_leased": stats.pages_leased,
            "pages_kept": stats.pages_kept,
            "pages_free": stats.pages_free,
            "kept_states": sum(stats.cache.states.values()),
        }
