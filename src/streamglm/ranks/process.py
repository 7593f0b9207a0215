"""A rank as the server has it: its channel, and a process of its own or one on another host.

Owns how a rank is spawned, how it ends, and what is said of one that was lost. A rank of this host
is spawned with one end of a socket pair, so there is no path, no port and no token to guess. The
standard library's `multiprocessing` spawns it: this process never imports torch. Invariant: after
`end`, no process of this host runs, and a rank elsewhere has met the end of its stream.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import multiprocessing
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from multiprocessing.context import SpawnProcess
from types import ModuleType
from typing import Protocol

from streamglm.errors import WireError
from streamglm.ranks import rank as rank_process
from streamglm.ranks.channel import AsyncChannel
from streamglm.ranks.wire import Stop

_log = logging.getLogger(__name__)


class Member(Protocol):
    """One rank of a group."""

    rank: int
    channel: AsyncChannel

    @property
    def gone(self) -> bool:
        """Its process or its stream has ended."""
        ...

    @property
    def pid(self) -> int:
        """Its process id, on its own host."""
        ...

    async def obituary(self) -> str:
        """One line on how it was lost."""
        ...

    async def end(self, seconds: float) -> None:
        """Ask it to end, and make it after `seconds`."""
        ...

    def kill(self) -> None:
        """Make it end now."""
        ...


class RankProcess:
    """One rank: its process and its channel. `lost` is called when either ends."""

    def __init__(
        self, rank: int, process: SpawnProcess, channel: AsyncChannel, lost: Callable[[], None]
    ) -> None:
        self.rank = rank
        self.channel = channel
        self._process = process
        self._lost = lost
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.sentinel, self._on_end)
        atexit.register(self.kill)  # for a server that leaves without `end`

    @classmethod
    async def spawn(cls, rank: int, build: str, lost: Callable[[], None]) -> RankProcess:
        """Start rank `rank`, which runs what `build` names."""
        ours, theirs = socket.socketpair()
        with theirs:
            channel = await AsyncChannel.open(ours, lost)
            process = multiprocessing.get_context("spawn").Process(
                target=rank_process.main,
                args=(theirs, build),
                name=f"streamglm-rank-{rank}",
                daemon=True,
            )
            try:
                with signals_blocked(), without_main():
                    process.start()
            except BaseException:
                channel.close()
                raise
        return cls(rank, process, channel, lost)

    @property
    def gone(self) -> bool:
        """The process or its stream has ended."""
        return self._ended.is_set() or self.channel.error is not None

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, "the rank is not spawned"
        return self._process.pid

    async def obituary(self) -> str:
        """One line on how the rank was lost; waits a moment for the exit code."""
        error = self.channel.error
        if not await self._has_ended(1.0):
            return f"rank {self.rank}: {error.message if error else 'gone'}"
        code = await self._exit_code()
        if code is not None and code < 0:
            return f"rank {self.rank} was killed by signal {-code} ({signal.Signals(-code).name})"
        return f"rank {self.rank} ended with exit code {code}"

    async def end(self, seconds: float) -> None:
        """Ask the rank to end and kill it after `seconds`. Returns in any case; a process that
        the kernel does not give up for as long again is left to it, and the log says so."""
        with contextlib.suppress(WireError):
            self.channel.send(Stop())
        if not await self._has_ended(seconds):
            _log.warning("rank %d does not end when told to; it is killed", self.rank)
            self.kill()
            if not await self._has_ended(seconds):
                _log.error("rank %d does not end when killed", self.rank)
                return
        await self._exit_code()
        self.channel.close()
        self._process.close()

    def kill(self) -> None:
        """Kill the process if it runs."""
        if not self._ended.is_set():
            self._process.kill()

    async def _has_ended(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        return self._ended.is_set()

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        atexit.unregister(self.kill)
        self._ended.set()
        self._lost()

    async def _exit_code(self) -> int | None:
        """The exit code; the kernel has it a moment after the process has let go of its files."""
        for _ in range(200):
            if self._process.exitcode is not None:
                break
            await asyncio.sleep(0.005)
        return self._process.exitcode


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """A child that is spawned inside inherits the block, so that a ^C before its first line does
    not end it; here, the signal comes when the block is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, rank_process.SERVERS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """A child that is spawned inside does not import this process's main module: it needs nothing
    of it, and a console script's would cost it the import of the whole server."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
