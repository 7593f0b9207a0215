"""Errors as clients of OpenAI's API know them: a status, and `{"error": {...}}`.

Owns the shape, for every route and for events inside a stream. Knows no routes. Invariant: a body
is small, and holds no path, no class name and no key; an exception that nobody named is logged and
told as "internal error".
"""

from __future__ import annotations

import logging
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamglm.edge.body import ClientGone
from streamglm.errors import (
    InternalError,
    InvalidJSON,
    MethodNotAllowed,
    NotFound,
    StreamglmError,
    Unauthorized,
)

RETRY_SECONDS = 2

log = logging.getLogger(__name__)


def error_object(error: StreamglmError) -> dict[str, Any]:
    """The body of a refusal, and the data of an error event."""
    fields = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    return {"error": fields}


def error_response(error: StreamglmError) -> Response:
    """The HTTP answer to a request that failed before its first byte."""
    headers: dict[str, str] = {}
    if isinstance(error, InvalidJSON):
        # A wrong Content-Length looks like bad JSON, and what follows would be read as a request.
        headers["Connection"] = "close"
    if error.status == 503:
        headers["Retry-After"] = str(RETRY_SECONDS)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error_object(error), status=error.status, headers=headers)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """`value` as a JSON body."""
    return Response(
        orjson.dumps(value), status_code=status, headers=headers, media_type="application/json"
    )


def on_named(request: Request, error: Exception) -> Response:
    """Handler of our own errors."""
    assert isinstance(error, StreamglmError)
    return error_response(error)


def on_http(request: Request, error: Exception) -> Response:
    """Handler of the router's errors: no such route, or not with this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        response = error_response(MethodNotAllowed("This route has no such method."))
        response.headers.update(error.headers or {})
        return response
    return error_response(NotFound("There is no such route."))


class Unexpected:
    """Middleware that turns any other exception into a small 500, or ends a started response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientGone:
            return
        except Exception:
            log.exception("unexpected error in %s %s", scope["method"], scope["path"])
            if not started:
                await error_response(internal())(scope, receive, send)


def internal() -> StreamglmError:
    """What a client learns of an unexpected error."""
    return InternalError("Internal error; the server's log has the details.")
