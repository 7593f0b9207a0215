"""One TCP connection, several requests: a refused one must not poison the next (CO-31).

Real sockets against uvicorn with its C parser, since the rule is the protocol's. Every wait is
bounded by the socket's timeout of 2 s.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from streamglm.clock import SystemClock
from support.asgi import sse_objects
from support.engine import says
from support.live import live
from support.world import CHAT, HELLO, Make

BODY = json.dumps({"messages": HELLO, "max_tokens": 4}).encode()
BIG = json.dumps({"messages": HELLO, "user": "x" * 70_000}).encode()
KEY = "x-api-key: k1"


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def closes(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


class _Kept(io.BufferedReader):
    """A reader that outlives the response read from it: pipelined answers share its buffer."""

    def close(self) -> None:
        """Left to the connection."""


class Connection:
    """One connection; requests are written as bytes, so that they can be wrong."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.raw = socket.create_connection(address, timeout=2)
        self._file = self.raw.makefile("rb", buffering=0)
        self._reader = _Kept(self._file)

    def send(self, data: bytes) -> None:
        self.raw.sendall(data)

    def interim(self) -> bytes:
        """An answer without headers: `100 Continue`."""
        return self._reader.readline() + self._reader.readline()

    def makefile(self, mode: str) -> io.BufferedReader:
        return self._reader

    def read(self) -> Answer:
        response = http.client.HTTPResponse(self)  # type: ignore[arg-type]
        response.begin()
        return Answer(response.status, response.headers, response.read())

    def closed(self) -> bool:
        """The server has closed; nothing more comes."""
        try:
            return self._reader.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._file.close()
        self.raw.close()


def post(body: bytes, *headers: str, path: str = CHAT, length: int | None = None) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(body: bytes, *headers: str, path: str = CHAT) -> bytes:
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", *headers])
    parts = [body[start : start + 5000] for start in range(0, len(body), 5000)]
    framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return head.encode() + b"\r\n\r\n" + framed + b"0\r\n\r\n"


@pytest.fixture
def connection(make: Make) -> Iterator[Connection]:
    world = make(api_key="k1", max_body_mib=1)
    world.say("a</think>b")
    with live(world.app) as address:
        made = Connection(address)
        yield made
        made.close()


def works(connection: Connection) -> None:
    connection.send(post(BODY, KEY))
    answer = connection.read()
    assert answer.status == 200
    assert json.loads(answer.body)["choices"][0]["message"]["content"] == "b"


LARGE = b'{"user":"' + b"x" * (3 << 20) + b'"}'
REFUSED = {
    "wrong key": (post(BIG, "x-api-key: no"), 401),
    "no key": (post(BIG), 401),
    "wrong key, chunked": (chunked(BIG, "x-api-key: no"), 401),
    "unknown route": (post(BIG, KEY, path="/v1/nothing"), 404),
    "unknown route, chunked": (chunked(BIG, KEY, path="/v1/nothing"), 404),
    "wrong method": (post(BIG, KEY, path="/v1/models"), 405),
    "bad field": (post(BIG[:-1] + b',"n":2}', KEY), 400),
    "media type": (chunked(BIG, KEY, "Content-Type: text/html"), 415),
    "too large": (post(LARGE, KEY), 413),
    "too large, chunked": (chunked(LARGE, KEY), 413),
}


@pytest.mark.parametrize(("request_bytes", "status"), REFUSED.values(), ids=REFUSED.keys())
def test_the_next_request_works_after_a_refusal(
    connection: Connection, request_bytes: bytes, status: int
) -> None:
    connection.send(request_bytes)
    answer = connection.read()
    assert answer.status == status
    assert "error" in json.loads(answer.body)
    assert not answer.closes
    works(connection)
    works(connection)


SHORT = pytest.mark.parametrize("short", [10, len(BODY) - 1])


@SHORT
def test_a_length_that_is_too_short_ends_the_connection(connection: Connection, short: int) -> None:
    """What follows would be read as a request line."""
    connection.send(post(BODY[:short], KEY))
    answer = connection.read()
    assert (answer.status, answer.closes) == (400, True)
    assert json.loads(answer.body)["error"]["code"] == "invalid_json"
    assert connection.closed()


@SHORT
def test_a_length_that_is_too_short_with_the_rest_behind_it(
    connection: Connection, short: int
) -> None:
    """The parser may see the rest before the application answers; either way it is the end."""
    connection.send(post(BODY, KEY, length=short) + post(BODY, KEY))
    answer = connection.read()
    assert (answer.status, answer.closes) == (400, True)
    assert connection.closed()


def test_two_requests_in_one_write_are_both_answered(connection: Connection) -> None:
    connection.send(post(BODY, KEY) + post(BODY, KEY))
    assert [connection.read().status, connection.read().status] == [200, 200]
    connection.send(post(BIG, "x-api-key: no") + post(BODY, KEY))
    assert [connection.read().status, connection.read().status] == [401, 200]


def test_a_body_that_is_asked_for_comes_after_100_continue(connection: Connection) -> None:
    connection.send(post(b"", KEY, "Expect: 100-continue", length=len(BODY)))
    assert connection.interim() == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.send(BODY)
    assert connection.read().status == 200
    works(connection)


@pytest.mark.parametrize(
    ("headers", "length", "status"),
    [(("x-api-key: no",), len(BODY), 401), ((KEY,), 5 << 20, 413)],
    ids=["wrong key", "too large"],
)
def test_a_refusal_before_100_continue_ends_the_connection(
    connection: Connection, headers: tuple[str, ...], length: int, status: int
) -> None:
    """Whether the client sends the body then is its choice, so nothing after it can be read."""
    connection.send(post(b"", *headers, "Expect: 100-continue", length=length))
    answer = connection.read()
    assert (answer.status, answer.closes) == (status, True)
    assert connection.closed()


def test_a_stream_keeps_its_connection(connection: Connection) -> None:
    streamed = json.dumps({"messages": HELLO, "stream": True}).encode()
    connection.send(post(streamed, KEY))
    answer = connection.read()
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert sse_objects(answer.body.decode())[-1]["choices"][0]["finish_reason"] == "stop"
    works(connection)


def within(seconds: float, happened: Callable[[], bool]) -> bool:
    """Poll until it happened; False after `seconds`."""
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.005)
    return happened()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
def test_a_closed_socket_stops_a_reply_that_has_not_started(
    make: Make, stream: bool, reset: bool
) -> None:
    world = make()
    with live(world.app) as address:
        connection = Connection(address)
        connection.send(post(json.dumps({"messages": HELLO, "stream": stream}).encode()))
        assert within(2, lambda: len(world.engine.replies) == 1)
        if reset:
            linger = struct.pack("ii", 1, 0)
            connection.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.close()
        assert within(2, lambda: world.engine.replies[0].stops > 0)


def test_a_socket_that_is_never_read_is_dropped_while_others_go_on(make: Make) -> None:
    """CO-15 with the kernel's own buffers: 12 MB do not fit into them."""
    world = make(context=100_000, clock=SystemClock(), slow_client_seconds=0.3)
    world.engine.script = says([40] * 50_000)
    streamed = json.dumps({"prompt": [1], "stream": True, "ignore_eos": True}).encode()
    with live(world.app) as address:
        silent = Connection(address)
        silent.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.send(post(streamed, path="/v1/completions"))
        assert within(2, lambda: len(world.engine.replies) == 1)
        reader = Connection(address)
        reader.send(post(BODY))
        assert reader.read().status == 200
        assert within(8, lambda: world.engine.replies[0].stops > 0)
        reader.close()
        silent.close()


def test_a_client_that_asks_for_the_end_gets_it(connection: Connection) -> None:
    connection.send(post(BODY, KEY, "Connection: close"))
    assert connection.read().closes
    assert connection.closed()
