"""A client that costs little: it stamps bytes as they arrive, and reads them afterwards.

Owns one HTTP exchange on the loopback and the reading of its events. Knows no load and no
statistics. Invariant: nothing is decoded while a reply runs, so that on a machine of few cores
the client takes as little as it can from the server that it measures.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from bench.record import Void


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens: this machine, always."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Address:
        """From `http://HOST:PORT`. Raises `ValueError` for any host that is not loopback: a load
        generator is not to be pointed at other people's machines."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname or not parts.port:
            raise ValueError(f"--url {url}: it may be http://HOST:PORT")
        host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
        try:
            loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ValueError(f"--url {url}: {parts.hostname} is not this machine's loopback")
        return cls(host, parts.port)


@dataclass(slots=True)
class Answer:
    """One exchange as it came: `pieces` are (seconds on the monotonic clock, bytes)."""

    sent: float
    status: int = 0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    whole: bool = False


class _Exchange(asyncio.Protocol):
    """Sends one request and stamps what comes back."""

    def __init__(self, request: bytes, answer: Answer) -> None:
        self.answer = answer
        self.done = asyncio.get_running_loop().create_future()
        self._request = request
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._now = time.monotonic()
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self.answer.pieces.append((self._now, data))

    def on_message_complete(self) -> None:
        self.answer.status = self._parser.get_status_code()
        self.answer.whole = True
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def exchange(
    address: Address, route: str, body: dict[str, Any], api_key: str | None = None
) -> Answer:
    """POST `body` and wait for the end of the answer. A server that cannot be reached, or that
    closes early, gives an answer that is not whole. Cancelling closes the connection."""
    content = json.dumps(body).encode()
    key = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
    head = (
        f"POST {route} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\n{key}"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    )
    answer = Answer(sent=time.monotonic())
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.create_connection(
            lambda: _Exchange(head.encode() + content, answer), address.host, address.port
        )
    except OSError:
        return answer
    try:
        await protocol.done
    finally:
        transport.close()
    return answer


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply. `times` are those of the events that carried text, on the monotonic clock."""

    sent: float
    times: tuple[float, ...]
    token_sha: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    @property
    def first_seconds(self) -> float:
        """From the request's sending to its first text."""
        return self.times[0] - self.sent

    @property
    def seconds(self) -> float:
        """From the request's sending to its last text."""
        return self.times[-1] - self.sent

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between one event with text and the next."""
        return tuple(b - a for a, b in zip(self.times, self.times[1:], strict=False))


def read(answer: Answer, *, timed: bool = True) -> Reply:
    """The reply in a streamed completion; one that is `timed` has text. Raises `Void` saying what
    is wrong with it."""
    if not answer.whole:
        raise Void("a connection closed before its reply ended")
    if answer.status != 200:
        text = b"".join(piece for _, piece in answer.pieces).decode(errors="replace")
        raise Void(f"a request was answered {answer.status}: {text[:200]}")
    times: list[float] = []
    usage: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for moment, event in _events(answer.pieces):
        if "error" in event:
            raise Void(f"a reply failed: {event['error']}")
        usage, extra = event.get("usage") or usage, event.get("streamglm") or extra
        if any(choice.get("text") for choice in event.get("choices") or ()):
            times.append(moment)
    if (timed and not times) or not usage or not extra:
        raise Void("a reply came without text, without usage or without its token_sha")
    return Reply(
        sent=answer.sent,
        times=tuple(times),
        token_sha=extra["token_sha"],
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
    )


def _events(pieces: list[tuple[float, bytes]]) -> list[tuple[float, dict[str, Any]]]:
    """The JSON of each `data:` event, with the moment at which its last byte came."""
    found: list[tuple[float, dict[str, Any]]] = []
    rest = b""
    for moment, data in pieces:
        *events, rest = (rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        found += [
            (moment, json.loads(line[5:]))
            for event in events
            for line in event.split(b"\n")
            if line.startswith(b"data:") and line[5:].strip() != b"[DONE]"
        ]
    return found
