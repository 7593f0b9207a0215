"""A rank of another host as the server has it: a stream, and no process of its own.

Owns how such a rank is ended and what is said of one that was lost. Invariant: a stream that is
closed ends the rank, whatever it is in the middle of (`rank.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from streamglm.errors import WireError
from streamglm.ranks.channel import AsyncChannel
from streamglm.ranks.wire import Stop, Turned


class RemoteRank:
    """Rank `rank`, whose stream came from `address`."""

    channel: AsyncChannel

    def __init__(self, rank: int, address: str) -> None:
        self.rank = rank
        self.address = address
        self._ended = asyncio.Event()
        self._lost: Callable[[], None] | None = None

    @classmethod
    async def over(cls, sock: socket.socket, rank: int, address: str) -> RemoteRank:
        """The rank behind a stream that was let in; it owns the socket from here on."""
        remote = cls(rank, address)
        remote.channel = await AsyncChannel.open(sock, remote._on_end)
        return remote

    def follow(self, lost: Callable[[], None]) -> None:
        """`lost` is called when the stream ends; at once if it has."""
        self._lost = lost
        if self._ended.is_set():
            lost()

    @property
    def gone(self) -> bool:
        """The stream has ended."""
        return self._ended.is_set()

    @property
    def pid(self) -> int:
        """No process of this host."""
        return 0

    async def obituary(self) -> str:
        """One line on how the rank was lost."""
        error = self.channel.error
        return f"rank {self.rank} at {self.address}: {error.message if error else 'gone'}"

    async def end(self, seconds: float) -> None:
        """Ask the rank to end, and close its stream after `seconds`, which makes it."""
        await self._told(Stop(), seconds)

    async def turn_away(self, line: str, seconds: float) -> None:
        """Tell the rank why the start fails; it ends with that line."""
        await self._told(Turned(line), seconds)

    async def _told(self, last: Stop | Turned, seconds: float) -> None:
        with contextlib.suppress(WireError):
            self.channel.send(last)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        self.channel.close()

    def kill(self) -> None:
        """Close the stream now."""
        self.channel.close()

    def _on_end(self) -> None:
        self._ended.set()
        if self._lost is not None:
            self._lost()
