"""Where ranks of other hosts come in: a port, a handshake, and a comparison before anything loads.

Owns who is let in. Knows no model and no settings but as tables to compare. A stranger without the
token is told so and changes nothing; a rank with the token that differs, comes twice or has no
place ends the start on every rank. Invariant: when `gather` raises, every rank that came has been
told the line, or its stream is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

from streamglm.errors import StartError, WireError
from streamglm.ranks import compare, handshake
from streamglm.ranks.network import watch
from streamglm.ranks.remote import RemoteRank
from streamglm.ranks.wire import Join

KNOCK_SECONDS = 10.0
"""For a stream to say who it is; strangers do not keep a place."""
_TURN_SECONDS = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the server asks of ranks that come. `ours` is what it says of itself, called `name`;
    `mine` are the ranks that it starts; `token` is shared; `life` seconds without a word of the
    other host's system end a stream."""

    ours: Join
    name: str
    world: int
    mine: frozenset[int]
    token: bytes
    life: float


@dataclass(slots=True)
class Door:
    """Ranks come in over `listener`, a bound socket that listens, until `gather` returns."""

    listener: socket.socket
    terms: Terms
    ranks: dict[int, RemoteRank] = field(default_factory=dict)
    joins: dict[int, Join] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    _knocking: set[asyncio.Task[None]] = field(default_factory=set)
    _came: asyncio.Queue[tuple[RemoteRank, Join] | str] = field(default_factory=asyncio.Queue)

    async def gather(self, seconds: float) -> None:
        """Return when every rank that the server does not start has come, as `ranks` and `joins`.

        Raises `StartError` with one line: a rank that differs, comes twice, is out of range, or
        did not come within `seconds`.
        """
        self.listener.setblocking(False)
        host, port = self.listener.getsockname()[:2]
        wanted = sorted(frozenset(range(self.terms.world)) - self.terms.mine)
        _log.info("waiting at %s:%d for ranks %s", host, port, ", ".join(map(str, wanted)))
        with self.listener:
            async with asyncio.TaskGroup() as group:
                accepting = group.create_task(self._accept(group))
                line = await self._until_all(seconds)
                accepting.cancel()
                if self._knocking:  # they hear the line with the others
                    await asyncio.wait(self._knocking, timeout=_TURN_SECONDS)
                for task in self._knocking:
                    task.cancel()
        line = line or self._too_many()
        if line is not None:
            async with asyncio.TaskGroup() as group:
                for remote in [*self.ranks.values(), *self._left()]:
                    group.create_task(remote.turn_away(line, _TURN_SECONDS))
            raise StartError(line)

    async def _until_all(self, seconds: float) -> str | None:
        """None when all are there, or the line that ends the start."""
        wanted = frozenset(range(self.terms.world)) - self.terms.mine
        try:
            async with asyncio.timeout(seconds):
                while wanted - self.ranks.keys():
                    came = await self._came.get()
                    line = came if isinstance(came, str) else self._take(*came)
                    if line is not None:
                        return line
        except TimeoutError:
            return compare.missing(wanted - self.ranks.keys(), seconds, self.refused)
        return None

    def _too_many(self) -> str | None:
        """The line on one that came in the moment in which the last that was waited for did."""
        line = None
        while line is None and not self._came.empty():
            came = self._came.get_nowait()
            line = came if isinstance(came, str) else self._take(*came)
        return line

    def _take(self, remote: RemoteRank, join: Join) -> str | None:
        """Give a rank its place, or the line that ends the start."""
        line = compare.difference(self.terms.ours, self.terms.name, join)
        line = line or compare.out_of_range(join.rank, self.terms.world)
        if line is None and join.rank in self.terms.mine:
            line = compare.twice(join.rank, "the server starts it itself", f"at {remote.address}")
        if line is None and join.rank in self.ranks:
            first = self.ranks[join.rank]
            line = compare.twice(join.rank, f"at {first.address}", f"at {remote.address}")
        if line is not None:
            self._came.put_nowait((remote, join))  # it is told with the others
            return line
        self.ranks[join.rank], self.joins[join.rank] = remote, join
        _log.info("rank %d came from %s", join.rank, remote.address)
        return None

    def _left(self) -> Iterator[RemoteRank]:
        """Those that came and have no place."""
        while not self._came.empty():
            came = self._came.get_nowait()
            if not isinstance(came, str):
                yield came[0]

    async def _accept(self, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, address = await loop.sock_accept(self.listener)
            sock.setblocking(False)
            task = group.create_task(self._admit(sock, f"{address[0]}:{address[1]}"))
            self._knocking.add(task)
            task.add_done_callback(self._knocking.discard)

    async def _admit(self, sock: socket.socket, address: str) -> None:
        """One stream: who it is, and what it says of itself."""
        remote: RemoteRank | None = None
        try:
            async with asyncio.timeout(KNOCK_SECONDS):
                watch(sock, self.terms.life)
                rank = await handshake.admit(sock, self.terms.token)
                remote = await RemoteRank.over(sock, rank, address)
                join = await remote.channel.receive(KNOCK_SECONDS)
            if not isinstance(join, Join) or join.rank != rank:
                raise handshake.Refused(f"rank {rank} said {type(join).__name__}")
        except (handshake.Refused, OSError, WireError, asyncio.CancelledError) as error:
            (sock if remote is None else remote.channel).close()
            self._refuse(address, error)
        else:
            self._came.put_nowait((remote, join))

    def _refuse(self, address: str, error: BaseException) -> None:
        """Not let in; another version of the wire is a rank of ours all the same."""
        if isinstance(error, asyncio.CancelledError):
            raise error
        line = error.line if isinstance(error, handshake.Refused) else str(error)
        if isinstance(error, handshake.Refused) and error.other_version:
            self._came.put_nowait(line)
        self.refused.append(f"{line or type(error).__name__} ({address})")
        _log.warning("not let in: %s", self.refused[-1])


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens at an address of this host. Raises `StartError`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise StartError(f"--master {host}:{port}: {error.strerror}") from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(128)
        except OSError as error:
            raise StartError(
                f"--master {host}:{port}: {error.strerror}; it is an address of the host that "
                "serves, and a port that is free there"
            ) from None
        yield listener
