"""The ranks of one server: how they start together, and how they end together.

Owns the order of a start, and who is to blame when one fails; not what is said between steps.
Invariant: when `start` raises or `stop` returns, no rank of the group runs; a rank whose server
dies ends by itself (`rank.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from streamglm.errors import (
    CheckpointError,
    PeerLost,
    SettingError,
    StartError,
    StreamEnded,
    WireError,
)
from streamglm.ranks.process import Member, RankProcess
from streamglm.ranks.remote import RemoteRank
from streamglm.ranks.wire import (
    Agreed,
    Broken,
    Hello,
    Loading,
    Meet,
    Meeting,
    Note,
    Phase,
    Proof,
    RankSettings,
    Ready,
    Report,
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
    """Between two questions to a rank at rest, and between two looks at signs of life."""
    ping: float = 10.0
    """For the answer to such a question."""
    life: float = 15.0
    """For a sign of life, also in the middle of a step."""
    stop: float = 5.0
    """For a rank to end when it is told to; then it is killed."""
    blame: float = 1.0
    """For the rank that failed first to be known, when another says that it lost a peer."""

    @property
    def beat(self) -> float:
        """Between two signs of life."""
        return min(1.0, self.life / 5)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Ranks that this process does not start: those that dialled, by number; the address of
    rank 0 and of this host, as ranks of other hosts reach them; who is to prove its files."""

    ranks: Mapping[int, RemoteRank]
    meet: str
    own: str
    addresses: Mapping[int, str]
    prove: frozenset[int]


NOBODY = Elsewhere({}, "127.0.0.1", "127.0.0.1", {}, frozenset())
"""All ranks are of this host."""


class Progress(Protocol):
    """Who hears how a start goes on: 'loading' with bytes done and total, over all ranks; then
    'self-check' and 'ready', with zeros."""

    def __call__(self, phase: str, done: int, total: int) -> None: ...


class RankGroup:
    """The ranks of one server, in the order of their numbers."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.ranks: list[Member] = []
        self.lost = asyncio.Event()
        """Set once any rank's process or stream has ended."""
        self._loaded: dict[int, tuple[int, int]] = {}
        self._proofs: dict[int, dict[str, str]] = {}
        self._provers: frozenset[int] = frozenset()

    async def start(
        self,
        settings: RankSettings,
        world: int,
        build: str,
        progress: Progress,
        elsewhere: Elsewhere = NOBODY,
    ) -> list[Report]:
        """Spawn the ranks of `world` that are not `elsewhere`, and wait until all are ready;
        returns their reports.

        Raises the `StartError` that a rank names, or one that names the rank which died, fell
        silent or has read another config. No rank is left then, nor when this is cancelled.
        """
        try:
            self._provers = elsewhere.prove
            progress("starting", 0, 0)
            for remote in elsewhere.ranks.values():
                self.ranks.append(remote)
                remote.follow(self.lost.set)
            for number in range(world):
                if number not in elsewhere.ranks:
                    self.ranks.append(await RankProcess.spawn(number, build, self.lost.set))
            here = [n for n in range(world) if n not in elsewhere.ranks]
            self.ranks.sort(key=lambda rank: rank.rank)
            for rank in self.ranks:
                own = elsewhere.addresses.get(rank.rank, elsewhere.own)
                prove = rank.rank in elsewhere.prove
                beat = self.limits.beat
                agree = bool(elsewhere.prove)
                number = rank.rank
                gpu = here.index(number) if number in here else 0  # elsewhere it knows
                meet = elsewhere.meet
                _send(rank, Hello(number, world, settings, meet, own, beat, prove, agree, gpu))
            reports = await self._all_ready(progress)
            _compare(settings, reports)
            progress("ready", 0, 0)
        except BaseException as error:
            await self._turn_away(error)
            self.kill()
            await self.stop()
            raise
        return reports

    async def _turn_away(self, error: BaseException) -> None:
        """Tell ranks of other hosts why the start fails; those of this host are the server's."""
        if isinstance(error, StartError):
            async with asyncio.TaskGroup() as group:
                for rank in self.ranks:
                    if isinstance(rank, RemoteRank):
                        group.create_task(rank.turn_away(error.message, self.limits.blame))

    def kill(self) -> None:
        """End every rank at once: one that waits for a lost peer would wait for long."""
        for rank in self.ranks:
            rank.kill()

    async def stop(self) -> None:
        """End every rank, gently for a while; none runs when this returns."""
        async with asyncio.TaskGroup() as group:
            for rank in self.ranks:
                group.create_task(rank.end(self.limits.stop))
        self.ranks.clear()

    async def culprit(self) -> str | None:
        """One line on a rank that was lost without a word of its own, or that failed by itself;
        None when all that failed say they lost another. Waits a moment for it to show."""
        deadline = asyncio.get_running_loop().time() + self.limits.blame
        while True:
            for rank in self.ranks:
                said = rank.channel.parting
                if said is not None and said.name != PeerLost.__name__:
                    return f"rank {rank.rank} failed: {said.name}: {said.text}"
                if said is None and rank.gone:
                    return await rank.obituary()
            if asyncio.get_running_loop().time() >= deadline:
                return None
            await asyncio.sleep(0.02)

    async def _all_ready(self, progress: Progress) -> list[Report]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ready(rank, progress)) for rank in self.ranks]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _ready(self, rank: Member, progress: Progress) -> Report:
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
                case Meeting(port) if rank.rank == 0:
                    for other in self.ranks[1:]:
                        _send(other, Meet(port))
                case Proof(files):
                    self._prove(rank.rank, files)
                case Broken(name, text):
                    await self._blame(rank.rank, name, text)
                case _:
                    raise StartError(f"rank {rank.rank} sent {type(message).__name__} too early")

    async def _blame(self, rank: int, name: str, text: str) -> None:
        if name == PeerLost.__name__ and (line := await self.culprit()):
            raise StartError(f"{line} before it was ready")
        known = _START_ERRORS.get(name)
        raise known(text) if known else StartError(f"rank {rank}: {name}: {text}")

    def _prove(self, rank: int, files: dict[str, str]) -> None:
        """Refuse weight files that hold other bytes than those of another rank; once all are
        proved, ranks may load them."""
        self._proofs[rank] = files
        low, *others = sorted(self._proofs)
        for high in others:
            for name in sorted(self._proofs[low].keys() | self._proofs[high].keys()):
                ours, theirs = (self._proofs[one].get(name, "missing") for one in (low, high))
                if ours != theirs:
                    raise CheckpointError(
                        f"{name}: rank {low}: {ours}, rank {high}: {theirs}; its bytes differ: "
                        "copy it anew"
                    )
        if self._proofs.keys() == self._provers:
            for one in self.ranks:
                _send(one, Agreed())

    async def _word(self, rank: Member) -> ToServer:
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


def _send(rank: Member, message: Hello | Agreed | Meet) -> None:
    with contextlib.suppress(StreamEnded):  # whoever listens to it tells why
        rank.channel.send(message)


def _compare(settings: RankSettings, reports: list[Report]) -> None:
    """Refuse a rank that has read other numbers of the checkpoint than the server."""
    told = msgspec.structs.asdict(settings.spec)
    for rank, report in enumerate(reports):
        for name, read in msgspec.structs.asdict(report.spec).items():
            if read != told[name]:
                raise StartError(f"config.json: {name} is {read} at rank {rank}, {told[name]} here")
