"""Who may ask: keys, and browser origins.

Owns the check of every request before a route sees it. Knows no bodies. Invariant: with a key set,
nothing but `GET /health`, the files of the web page and preflights is answered without one; a key
is compared in constant time and never written to a log or a reply.
"""

from __future__ import annotations

import hmac
import logging
import os
from pathlib import Path

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamglm.clock import Clock
from streamglm.config import Settings
from streamglm.edge.refusals import error_response
from streamglm.errors import InvalidRequest, SettingError, Unauthorized

LOOPBACK = r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?"
OPEN_ROUTES = ("/health", "/")
OPEN_FOLDER = "/page/"
"""Of the web page's own files, which hold nothing but the page."""
REREAD_SECONDS = 1.0
ADMITTED = "streamglm.admitted"
"""Key of the scope: whether this request carried a valid key, or none is needed."""

log = logging.getLogger(__name__)


class Keys:
    """The keys that are valid now: the one of `--api-key`, and the lines of `--api-key-file`."""

    def __init__(self, fixed: str | None, file: Path | None, clock: Clock) -> None:
        """Raises `SettingError` when the file cannot be read or names no key."""
        self._fixed = (fixed.encode(),) if fixed is not None else ()
        self._file = file
        self._clock = clock
        self._stamp: tuple[int, ...] | None = None
        self._lines: tuple[bytes, ...] = ()
        self._looked = clock.now()
        self.required = fixed is not None or file is not None
        if file is not None:
            try:
                self._read(file)
            except OSError as error:
                reason = f"cannot be read ({error.strerror})"
                raise SettingError(f"--api-key-file {file}: {reason}") from None
            if not self._lines:
                raise SettingError(f"--api-key-file {file}: holds no key")

    async def admits(self, headers: Headers) -> bool:
        """Whether the request carries one of the keys. A file that was replaced counts within
        `REREAD_SECONDS`."""
        if not self.required:
            return True
        await self._refresh()
        keys = self._fixed + self._lines
        # all are compared, so that the time says nothing about which one came close
        matches = [hmac.compare_digest(shown, key) for shown in _shown(headers) for key in keys]
        return any(matches)

    async def _refresh(self) -> None:
        if self._file is None or self._clock.now() - self._looked < REREAD_SECONDS:
            return
        self._looked = self._clock.now()
        try:
            await anyio.to_thread.run_sync(self._read, self._file)
        except OSError as error:
            log.warning("--api-key-file cannot be read (%s); keys stay", error.strerror)

    def _read(self, file: Path) -> None:
        """Takes the file's keys, if it is not the one read last. An empty file revokes all."""
        found = os.stat(file)
        stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp == self._stamp:
            return
        lines = file.read_bytes().splitlines()
        self._lines = tuple(line.strip() for line in lines if line.strip())
        self._stamp = stamp


def keys_of(settings: Settings, clock: Clock) -> Keys:
    """The keys that the settings name."""
    file = Path(settings.api_key_file) if settings.api_key_file is not None else None
    return Keys(settings.api_key, file, clock)


def _shown(headers: Headers) -> list[bytes]:
    """The keys that a request carries, in either header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    shown = (token if scheme.lower() == "bearer" else "", headers.get("x-api-key", ""))
    return [key.strip().encode("latin-1") for key in shown if key.strip()]


class Gate:
    """Middleware: 401 without a valid key; marks the scope for routes that show less without."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope[ADMITTED] = await self._keys.admits(headers)
        if scope[ADMITTED] or _is_open(scope):
            await self._app(scope, receive, send)
        else:
            error = Unauthorized(
                "No valid key: send `Authorization: Bearer KEY` or `x-api-key: KEY`."
            )
            await error_response(error, scope["path"])(scope, receive, send)


def _is_open(scope: Scope) -> bool:
    path, method = scope["path"], scope["method"]
    if method not in ("GET", "HEAD"):
        return bool(method == "OPTIONS")
    return path in OPEN_ROUTES or path.startswith(OPEN_FOLDER)


class Expectations:
    """Middleware: a client that waits for `100 Continue` and is refused before its body was asked
    for may send the body or not, so the connection is closed after the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "expect" not in Headers(scope=scope):
            await self._app(scope, receive, send)
            return
        asked = False

        async def asking() -> Message:
            nonlocal asked
            asked = True
            return await receive()

        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start" and not asked:
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, asking, closing)


class Origins(CORSMiddleware):
    """Browser origins: loopback unless set. Sits outside of everything that can refuse, so that
    errors carry the same header as replies."""

    def __init__(self, app: ASGIApp, allowed: str | None) -> None:
        origins = () if allowed is None else tuple(o.strip() for o in allowed.split(","))
        super().__init__(
            app,
            allow_origins=origins,
            allow_origin_regex=LOOPBACK if allowed is None else None,
            allow_methods=("GET", "POST", "DELETE", "OPTIONS"),
            allow_headers=("*",),
            expose_headers=("Retry-After",),
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """The library's answer; a refusal in our own shape, without any allowance."""
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        return error_response(InvalidRequest("This origin or method is not allowed."), "")
