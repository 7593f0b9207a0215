"""One ASGI request driven by hand: the test is the server and the client's socket at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Scope


def scope_of(method: str, path: str, headers: Mapping[str, str] | None = None) -> Scope:
    """The scope that a server would hand to the application."""
    given = {"content-type": "application/json", **(headers or {})}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }


class Call:
    """A request in progress. `sent` holds what the application wrote; `close()` is a client that
    leaves; while `reading` is cleared the connection takes nothing."""

    def __init__(
        self, app: ASGIApp, path: str, body: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.sent: list[Message] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._inbox.put_nowait({"type": "http.request", "body": raw, "more_body": False})
        scope = scope_of("POST", path, headers)
        self.task = asyncio.ensure_future(self._run(app, scope))

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        await app(scope, self._inbox.get, self._send)

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        self.sent.append(message)

    def close(self) -> None:
        self._inbox.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def writes(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:]]

    @property
    def text(self) -> str:
        return b"".join(self.writes).decode()

    @property
    def complete(self) -> bool:
        return len(self.sent) > 1 and not self.sent[-1].get("more_body", False)


def sse_data(text: str) -> list[str]:
    """The `data:` payloads of a stream, comments left out; fails on any other line."""
    found = []
    for block in text.split("\n\n"):
        if block.startswith("data: "):
            assert "\n" not in block
            found.append(block.removeprefix("data: "))
        else:
            assert not block.strip() or block.startswith(":"), block
    return found


def sse_objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a stream that ends with `[DONE]`."""
    *objects, done = sse_data(text)
    assert done == "[DONE]"
    return [json.loads(one) for one in objects]
