"""An HTTP server in this process that answers with canned bytes, for the chat and the bench.

It knows nothing of models: a test says which bytes each POST gets, and reads what was asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Canned:
    """What is answered, and what was asked."""

    url: str = ""
    status: int = 200
    models: dict[str, Any] = field(
        default_factory=lambda: {"data": [{"id": "tiny", "context_length": 4096}]}
    )
    replies: list[list[bytes]] = field(default_factory=list)
    """One entry a POST: the pieces of its body, each sent by itself."""
    hold: bool = False
    """After the pieces, keep the connection open until the client closes it."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    hold_from: int = 0
    """Hold from this POST on, counted from 1; 0 never does."""
    keys: list[str | None] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client closed a held connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    canned: Canned

    def do_GET(self) -> None:
        self._whole(self.canned.models)

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.canned.bodies.append(json.loads(self.rfile.read(size)))
        self.canned.keys.append(self.headers.get("Authorization"))
        if self.canned.status != 200:
            self._whole({"error": {"message": "no", "code": "refused"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for piece in self.canned.replies.pop(0):
            self._chunk(piece)
        late = 0 < self.canned.hold_from <= len(self.canned.bodies)
        if (self.canned.hold or late) and self._gone():
            self.canned.left.set()
            return
        self._chunk(b"")

    def _gone(self) -> bool:
        """Wait for the client. A close with bytes unread, which timing decides, is a reset."""
        try:
            return not self.connection.recv(1)
        except ConnectionResetError:
            return True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _whole(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(self.canned.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: a test reads what was asked from `Canned`."""


@contextmanager
def serving(canned: Canned) -> Iterator[Canned]:
    """Serve `canned` on a free loopback port; its `url` is set."""
    handler = type("Handler", (_Handler,), {"canned": canned})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        canned.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield canned
        finally:
            server.shutdown()
            thread.join()


def event(value: dict[str, Any]) -> bytes:
    """One server-sent event. Text is not escaped, as a fast server leaves it."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chat_reply(
    *,
    reasoning: str = "",
    answer: str = "",
    finish: str = "stop",
    tokens: int = 3,
    cached: int = 0,
    token_sha: str = "ab" * 32,
) -> list[bytes]:
    """The events of a streamed chat completion, one character of text an event."""
    deltas = [{"role": "assistant"}]
    deltas += [{"reasoning_content": character} for character in reasoning]
    deltas += [{"content": character} for character in answer]
    events = [event({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return [
        b": waiting\n\n",
        *events,
        event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}),
        event({"choices": [], "usage": usage, "streamglm": {"token_sha": token_sha}}),
        DONE,
    ]
