"""The rank processes: spawn, ready handshake, and an end that always comes.

Owns processes and their channels, not what is said between steps. Each rank is spawned with one
end of a socket pair, so there is no path, no port and no token to guess. The standard library's
`multiprocessing` spawns them: this process never imports torch. Invariant: when `start` raises or
`stop` returns, no rank of the group runs; a rank whose server dies ends by itself (`rank.py`).
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
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from types import ModuleType
from typing import Protocol

import msgspec

from streamglm.errors import (
    CheckpointError,
    SettingError,
    StartError,
    StreamEnded,
    WireError,
)
from streamglm.ranks import rank as rank_process
from streamglm.ranks.channel import AsyncChannel
from streamglm.ranks.wire import (
    Broken,
    Hello,
    Loading,
    Note,
    Phase,
    RankSettings,
    Ready,
    Report,
    Stop,
    ToServer,
)

_log = logging.getLogger(__name__)

_START_ERRORS = {error.__name__: error for error in (CheckpointError, SettingError, StartError)}


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that the server waits for a rank."""

    silence: float = 300.0
    """For any word, while a rank starts."""
    step: float = 300.0
    """For the answer to a step."""
    ping_every: float = 2.0
    """Between two questions to a rank at rest."""
    ping: float = 10.0
    """For the answer to such a question."""
    stop: float = 5.0
    """For a rank to end when it is told to; then it is killed."""


class Progress(Protocol):
    """Who hears how a start goes on: 'loading' with bytes done and total, over all ranks; then
    'self-check' and 'ready', with zeros."""

    def __call__(self, phase: str, done: int, total: int) -> None: ...


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
                with _signals_blocked(), _without_main():
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
def _signals_blocked() -> Iterator[None]:
    """A child that is spawned inside inherits the block, so that a ^C before its first line does
    not end it; here, the signal comes when the block is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, rank_process.SERVERS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A child that is spawned inside does not import this process's main module: it needs nothing
    of it, and a console script's would cost it the import of the whole server."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class RankGroup:
    """The ranks of one server, in the order of their numbers."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.ranks: list[RankProcess] = []
        self.lost = asyncio.Event()
        """Set once any rank's process or stream has ended."""
        self._loaded: dict[int, tuple[int, int]] = {}

    async def start(
        self, settings: RankSettings, world: int, build: str, progress: Progress
    ) -> list[Report]:
        """Spawn `world` ranks and wait until each is ready; returns their reports.

        Raises the `StartError` that a rank names, or one that names the rank which died, fell
        silent or has read another config. No rank is left then, nor when this is cancelled.
        """
        try:
            progress("starting", 0, 0)
            for number in range(world):
                self.ranks.append(await RankProcess.spawn(number, build, self.lost.set))
            for rank in self.ranks:
                rank.channel.send(Hello(rank.rank, world, settings))
            reports = await self._all_ready(progress)
            _compare(settings, reports)
            progress("ready", 0, 0)
        except BaseException:
            for rank in self.ranks:
                rank.kill()
            await self.stop()
            raise
        return reports

    async def stop(self) -> None:
        """End every rank, gently for a while; none runs when this returns."""
        async with asyncio.TaskGroup() as group:
            for rank in self.ranks:
                group.create_task(rank.end(self.limits.stop))
        self.ranks.clear()

    async def _all_ready(self, progress: Progress) -> list[Report]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ready(rank, progress)) for rank in self.ranks]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _ready(self, rank: RankProcess, progress: Progress) -> Report:
        """One rank's words until it is ready."""
        while True:
            message = await self._word(rank)
            match message:
                case Ready(report):
                    return report
                case Loading(done, total):
                    self._loaded[rank.rank] = done, total
                    loaded = self._loaded.values()
                    progress("loading", sum(d for d, _ in loaded), sum(t for _, t in loaded))
                case Phase(name):
                    progress(name, 0, 0)
                case Note(text):
                    _log.info("rank %d: %s", rank.rank, text)
                case Broken(name, text):
                    known = _START_ERRORS.get(name)
                    raise known(text) if known else StartError(f"rank {rank.rank}: {name}: {text}")
                case _:
                    raise StartError(f"rank {rank.rank} sent {type(message).__name__} too early")

    async def _word(self, rank: RankProcess) -> ToServer:
        try:
            return await rank.channel.receive(self.limits.silence)
        except TimeoutError:
            raise StartError(
                f"rank {rank.rank} has said nothing for {self.limits.silence:g} s"
            ) from None
        except StreamEnded:
            raise StartError(f"{await rank.obituary()} before it was ready") from None
        except WireError as error:
            name = type(error).__name__
            raise StartError(f"rank {rank.rank}: {name}: {error.message}") from None


def _compare(settings: RankSettings, reports: list[Report]) -> None:
    """Refuse a rank that has read other numbers of the checkpoint than the server."""
    told = msgspec.structs.asdict(settings.spec)
    for rank, report in enumerate(reports):
        for name, read in msgspec.structs.asdict(report.spec).items():
            if read != told[name]:
                raise StartError(f"config.json: {name} is {read} at rank {rank}, {told[name]} here")
