"""The web page: plain files, read once at the start and served from memory.

Owns the files beside it, their types and their headers. Knows no routes but its own two, and no
engine: what the page shows it asks for over HTTP like any other client. The page holds nothing
secret, so it is served without a key; what it asks for is not. Invariant: a file refers to nothing
outside this server, and the policy in its headers would refuse it if it did.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamglm.errors import NotFound

FOLDER = Path(__file__).parent
INDEX = "/"
FILES = "/page/{name}"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is sent."""

    data: bytes
    headers: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> File:
        data = path.read_bytes()
        etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        return cls(data, {**HEADERS, "content-type": TYPES[path.suffix], "etag": etag})


class Page:
    """The page of one app."""

    def __init__(self) -> None:
        self._files = {
            path.name: File.read(path) for path in FOLDER.iterdir() if path.suffix in TYPES
        }

    def table(self) -> list[Route]:
        """Its routes."""
        return [
            Route(INDEX, self.index, methods=["GET"]),
            Route(FILES, self.file, methods=["GET"]),
        ]

    async def index(self, request: Request) -> Response:
        return _answer(self._files["index.html"], request)

    async def file(self, request: Request) -> Response:
        found = self._files.get(request.path_params["name"])
        if found is None:
            raise NotFound("There is no such route.")
        return _answer(found, request)


def _answer(file: File, request: Request) -> Response:
    if request.headers.get("if-none-match") == file.headers["etag"]:
        return Response(status_code=304, headers=file.headers)
    return Response(file.data, headers=file.headers)
