"""Ordered messages between two processes over one stream: a blocking end and an async end.

Owns the socket's bytes, deadlines and the end of the stream. Knows frames only as `wire` reads and
writes them. Invariant: an error or the end of the stream is met once by everyone who waits, and
for ever after; nothing is received past it.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import cast

from streamglm.errors import StreamEnded, WireError
from streamglm.ranks.wire import (
    Beat,
    Broken,
    Fetched,
    FrameWriter,
    ToRank,
    ToServer,
    Wrote,
    rank_reader,
    server_reader,
)

_READ_BYTES = 1 << 18


class BlockingChannel:
    """A rank's end."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._writer = FrameWriter()
        self._reader = rank_reader()
        self._messages: deque[ToRank] = deque()
        self._sending = threading.Lock()

    def send(self, message: ToServer) -> None:
        """Send, waiting for room; from any thread. `StreamEnded` when the server is gone."""
        try:
            with self._sending:
                self._socket.sendall(self._writer.frame(message))
        except OSError as error:
            raise StreamEnded(f"the server is gone ({error.strerror})") from None

    def receive(self) -> ToRank:
        """The next message, however long it takes: a server that dies ends the stream.
        `StreamEnded` then, `FrameCut` inside a frame, another `WireError` for a bad frame."""
        while not self._messages:
            try:
                data = self._socket.recv(_READ_BYTES)
            except OSError:  # also the time that a network takes to give up
                data = b""
            if not data:
                self._reader.end()
                raise StreamEnded("the server closed the stream")
            self._messages.extend(self._reader.feed(data))
        return self._messages.popleft()


class AsyncChannel(asyncio.Protocol):
    """The server's end. `open` makes one; `lost` is called once, when the stream is over."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.aside: Callable[[Wrote | Fetched], None] = _nobody
        """Who hears, as they come, of messages that answer no question."""
        self.heard = 0
        """Grows with every sign of life."""
        self.parting: Broken | None = None
        """What the rank said last, if it said why it ends."""
        self._lost = lost
        self._writer = FrameWriter()
        self._reader = server_reader()
        self._messages: deque[ToServer] = deque()
        self._error: WireError | None = None
        self._wake: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, sock: socket.socket, lost: Callable[[], None]) -> AsyncChannel:
        """The channel over a connected socket, which it owns from here on."""
        loop = asyncio.get_running_loop()
        if sock.family == socket.AF_UNIX:
            _, channel = await loop.create_unix_connection(lambda: cls(lost), sock=sock)
        else:
            _, channel = await loop.create_connection(lambda: cls(lost), sock=sock)
        return channel

    @property
    def error(self) -> WireError | None:
        """Why the stream is over, or None while it is not."""
        return self._error

    def send(self, message: ToRank) -> None:
        """Hand a message to the socket; never waits. `WireError` when the stream is over."""
        if self._error is not None:
            raise self._error
        assert self._transport is not None, "send before the channel is open"
        self._transport.write(self._writer.frame(message))

    async def receive(self, seconds: float) -> ToServer:
        """The next message. `WireError` when the stream is over and every message is taken,
        `TimeoutError` after `seconds`. Cancelled, it has taken nothing. One receiver at a time."""
        if not self._messages:
            async with asyncio.timeout(seconds):
                await self._arrival()
        return self._messages.popleft()

    async def _arrival(self) -> None:
        while not self._messages:
            if self._error is not None:
                raise self._error
            assert self._wake is None, "a channel has one receiver at a time"
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None

    def close(self) -> None:
        """Close this end; the other meets the end of the stream. Safe to call twice."""
        self._fail(StreamEnded("this end was closed"))
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._reader.feed(data)
        except WireError as error:
            self._fail(error)
            return
        self.heard += 1
        for message in messages:
            if isinstance(message, Wrote | Fetched):
                self.aside(message)
            elif not isinstance(message, Beat):
                self.parting = message if isinstance(message, Broken) else self.parting
                self._messages.append(message)
        if self._messages:
            self._ring()

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self._reader.end()
        except WireError as cut:
            self._fail(cut)
        else:
            said = "the rank closed the stream" if exc is None else f"its stream broke ({exc})"
            self._fail(StreamEnded(said))

    def _fail(self, error: WireError) -> None:
        if self._error is None:
            self._error = error
            self._ring()
            self._lost()

    def _ring(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def _nobody(message: Wrote | Fetched) -> None:
    """Nobody listens: a rank that was told to write or read nothing says neither."""
