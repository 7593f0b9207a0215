"""Errors as clients know them: a status, and `{"error": {...}}` in OpenAI's or Anthropic's shape.

Owns the shapes, for every route and for events inside a stream. Knows no routes. Invariant: a body
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


ANTHROPIC = "/v1/messages"
"""Routes below it tell errors in Anthropic's shape, whatever went wrong."""
ANTHROPIC_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    500: "api_error",
    503: "overloaded_error",
}


def error_object(error: StreamglmError, path: str = "") -> dict[str, Any]:
    """The body of a refusal on the route `path`, and the data of an error event."""
    fields = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    if not _below(path, ANTHROPIC):
        return {"error": fields}
    fields["type"] = ANTHROPIC_TYPES.get(error.status, "invalid_request_error")
    return {"type": "error", "error": fields}


def _below(path: str, route: str) -> bool:
    return path == route or path.startswith(route + "/")


def error_response(error: StreamglmError, path: str) -> Response:
    """The HTTP answer to a request to `path` that failed before its first byte."""
    headers: dict[str, str] = {}
    if isinstance(error, InvalidJSON):
        # A wrong Content-Length looks like bad JSON, and what follows would be read as a request.
        headers["Connection"] = "close"
    if error.status == 503:
        headers["Retry-After"] = str(RETRY_SECONDS)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error_object(error, path), status=error.status, headers=headers)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """`value` as a JSON body."""
    return Response(
        orjson.dumps(value), status_code=status, headers=headers, media_type="application/json"
    )


def on_named(request: Request, error: Exception) -> Response:
    """Handler of our own errors."""
    assert isinstance(error, StreamglmError)
    return error_response(error, request.url.path)


def on_http(request: Request, error: Exception) -> Response:
    """Handler of the router's errors: no such route, or not with this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        response = error_response(
            MethodNotAllowed("This route has no such method."), request.url.path
        )
        response.headers.update(error.headers or {})
        return response
    return error_response(NotFound("There is no such route."), request.url.path)


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
                await error_response(internal(), scope["path"])(scope, receive, send)


def internal() -> StreamglmError:
    """What a client learns of an unexpected error."""
    return InternalError("Internal error; the server's log has the details.")
