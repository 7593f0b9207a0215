"""The server's side of the ranks: one frame to every rank, the answers gathered.

Owns what is said between steps, and the latch: after the first failure the ranks are lost, and
every later call says so with the same words; and every rank is ended, for those that are left
would wait for the one that is lost. Implements the `Ranks` protocol of `core/loop.py`.
Knows processes only through `group.py`. Invariant: at most one question is open at a time, so the
answers belong to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar

import msgspec

from streamglm.errors import (
    EngineFailed,
    PeerLost,
    RanksDiffer,
    StreamEnded,
    WireError,
)
from streamglm.ranks.group import NOBODY, Elsewhere, Limits, Progress, RankGroup
from streamglm.ranks.process import Member
from streamglm.ranks.wire import (
    Broken,
    Done,
    Fetch,
    Fetched,
    Forget,
    Learn,
    Note,
    Ping,
    Pong,
    RankSettings,
    Refused,
    Report,
    ToRank,
    ToServer,
    Work,
    Wrote,
)
from streamglm.step import Step, StepResult

A = TypeVar("A", Done, Pong)

_log = logging.getLogger(__name__)

BUILD = "streamglm.ranks.build:build"
"""What a rank runs; the server only ever names it."""


class RankClient:
    """Ranks that are ready. `close` it: the processes are its own."""

    def __init__(self, group: RankGroup, reports: list[Report]) -> None:
        self.reports = reports
        """What each rank has, in the order of the ranks."""
        self._group = group
        self._asking = asyncio.Lock()
        self._failure: EngineFailed | None = None

    @property
    def pids(self) -> list[int]:
        """Process ids, in the order of the ranks; empty once closed."""
        return [rank.pid for rank in self._group.ranks]

    async def run(self, step: Step, digest: int) -> StepResult:
        """Execute `step` on every rank. Raises `EngineFailed`; cancelled, the ranks are lost, for
        their answer would be taken for the next one's."""
        answers = await self._ask(Work(digest, step), Done, self._group.limits.step)
        drawn = answers[0].result.drawn
        for rank, answer in enumerate(answers):
            if answer.result.drawn != drawn:
                self._latch(RanksDiffer(f"rank {rank} drew other tokens than rank 0"))
        sent: Counter[str] = Counter()
        for answer in answers:
            sent.update(answer.result.sent)
        return msgspec.structs.replace(answers[0].result, sent=dict(sent))

    async def failed(self) -> EngineFailed:
        """Return why, as soon as a rank is lost; a rank at rest is asked every while."""
        limits = self._group.limits
        silent = dict.fromkeys(range(len(self._group.ranks)), (0, 0))
        while True:
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(limits.ping_every):
                        await self._group.lost.wait()
                if self._group.lost.is_set():
                    await self._mourn()
                for rank in self._group.ranks:
                    silent[rank.rank] = self._listened(rank, *silent[rank.rank])
                if not self._asking.locked():
                    await self._ask(Ping(), Pong, limits.ping)
            except EngineFailed as error:
                return error

    def _listened(self, rank: Member, heard: int, looks: int) -> tuple[int, int]:
        """What `rank` was heard of, and for how many looks in a row it was not. Looks are counted
        and not seconds, so that a server which was itself stopped blames nobody."""
        limits = self._group.limits
        if rank.channel.heard != heard:
            return rank.channel.heard, 0
        if looks * limits.ping_every >= limits.life:
            self._latch(
                EngineFailed(f"rank {rank.rank} has given no sign of life for {limits.life:g} s")
            )
        return heard, looks + 1

    def tell(self, message: Learn | Fetch | Forget) -> None:
        """Say what has no answer, to every rank; what comes of it is heard aside."""
        for rank in self._group.ranks:
            with contextlib.suppress(WireError):  # whoever asks next is told that it is lost
                rank.channel.send(message)

    def hear(self, heard: Callable[[int, Wrote | Fetched], None]) -> None:
        """`heard` is called with the number of a rank and each message that answers nothing."""
        for rank in self._group.ranks:
            rank.channel.aside = partial(heard, rank.rank)

    async def close(self) -> None:
        """End the ranks; none runs when this returns. Safe to call twice."""
        self._failure = self._failure or EngineFailed("the ranks were closed")
        await self._group.stop()

    async def _ask(self, message: ToRank, wanted: type[A], seconds: float) -> list[A]:
        """Send one message to every rank, and wait for the wanted answer of each."""
        async with self._asking:
            if self._failure is not None:
                raise type(self._failure)(self._failure.message)
            try:
                for rank in self._group.ranks:
                    with contextlib.suppress(StreamEnded):  # its answer tells why
                        rank.channel.send(message)
                return [await self._answer(rank, wanted, seconds) for rank in self._group.ranks]
            except asyncio.CancelledError:
                self._failure = EngineFailed("a step was abandoned")
                raise

    async def _answer(self, rank: Member, wanted: type[A], seconds: float) -> A:
        name = f"rank {rank.rank}"
        try:
            message = await self._word(rank, seconds)
        except TimeoutError:
            self._latch(EngineFailed(f"{name} has not answered for {seconds:g} s"))
        except StreamEnded:
            self._latch(EngineFailed(await rank.obituary()))
        except WireError as error:
            self._latch(EngineFailed(f"{name}: {type(error).__name__}: {error.message}"))
        match message:
            case Refused(text, kind):
                failure = RanksDiffer if kind == RanksDiffer.__name__ else EngineFailed
                self._latch(failure(f"{name}: {kind}: {text}"))
            case Broken(kind, text):
                first = await self._group.culprit() if kind == PeerLost.__name__ else None
                self._latch(EngineFailed(first or f"{name} failed: {kind}: {text}"))
        if not isinstance(message, wanted):
            self._latch(EngineFailed(f"{name} answered with {type(message).__name__}"))
        return message

    async def _word(self, rank: Member, seconds: float) -> ToServer:
        """The next message that is not a note; notes go to the log."""
        while isinstance(message := await rank.channel.receive(seconds), Note):
            _log.info("rank %d: %s", rank.rank, message.text)
        return message

    async def _mourn(self) -> NoReturn:
        """Latch the rank that was lost."""
        lost = next(rank for rank in self._group.ranks if rank.gone)
        self._latch(EngineFailed(await self._group.culprit() or await lost.obituary()))

    def _latch(self, error: EngineFailed) -> NoReturn:
        if self._failure is None:
            self._failure = error
            self._group.kill()
        raise type(self._failure)(self._failure.message)


async def start_ranks(
    settings: RankSettings,
    *,
    world: int = 1,
    limits: Limits | None = None,
    progress: Progress | None = None,
    build: str = BUILD,
    elsewhere: Elsewhere = NOBODY,
) -> RankClient:
    """Spawn those of `world` ranks that did not come from `elsewhere`, and return when all are
    ready.

    `progress` hears 'starting', 'loading' with bytes done and total, 'self-check' and 'ready'.
    `build` is the dotted name of the function that a rank loads its executor with. Raises
    `StartError`, `SettingError`, `CheckpointError` or `RanksDiffer` with the rank's own line; no
    process is left then, nor when this is cancelled.
    """
    group = RankGroup(limits or Limits())
    reports = await group.start(settings, world, build, progress or _unheard, elsewhere)
    return RankClient(group, reports)


def _unheard(phase: str, done: int, total: int) -> None:
    """Progress that nobody asked for."""
