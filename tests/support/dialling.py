"""Ranks that dial a server's door in this process: what each of them is told, and how it ends.

A rank that is not let in is a thread here: its exit status and its line are those of the process
that `streamglm rank` would be.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from streamglm.commands.checkpoint import Checkpoint, read_checkpoint
from streamglm.commands.joining import join_of
from streamglm.config import Settings
from streamglm.errors import StartError
from streamglm.ranks.dial import Dial, run
from streamglm.ranks.door import Door, Terms, listening
from streamglm.ranks.wire import Join

TOKEN = b"a token of some length"
NEVER = "support.stub:build"
"""What a rank that is let in would run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a start came out: the server's line, and the exit status of each rank that dialled."""

    line: str | None
    statuses: list[int]


class Stage:
    """A server of `world` ranks that starts those of `mine` itself, and waits `seconds`."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings(ranks=2, context=8192)
        self.checkpoint: Checkpoint = read_checkpoint(self.settings)

    def join(self, rank: int = 1, /, **changes: Any) -> Join:
        """What a rank says that has the server's settings but for `changes`."""
        return join_of(replace(self.settings, **changes), self.checkpoint, rank, 1 << 30)

    @contextmanager
    def door(self, **changes: Any) -> Iterator[Door]:
        world = self.settings.ranks
        terms = Terms(self.join(0), "rank 0", world, frozenset({0}), TOKEN, 5.0)
        with listening("127.0.0.1", 0) as listener:
            yield Door(listener, replace(terms, **changes))

    def dial(self, door: Door, join: Join, token: bytes = TOKEN) -> Dial:
        return Dial(address_of(door.listener), token, join, "nowhere", 1, 5.0, 5.0)

    async def start(self, *joins: Join, seconds: float = 5.0, **changes: Any) -> Outcome:
        """Ranks dial one after the other, and the server waits for them."""
        with self.door(**changes) as door:
            gathering = asyncio.create_task(_line(door, seconds))
            ranks = []
            for join in joins:
                one, before = self.dial(door, join), len(door.ranks)
                ranks.append(asyncio.create_task(asyncio.to_thread(run, one, NEVER)))
                while len(door.ranks) == before and not gathering.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.005)  # until the door has taken it, or has closed
            line = await gathering
            for remote in door.ranks.values():
                remote.kill()  # one that was let in would wait to be told what to load
            return Outcome(line, list(await asyncio.gather(*ranks)))


async def _line(door: Door, seconds: float) -> str | None:
    try:
        await door.gather(seconds)
    except StartError as error:
        return error.message
    return None


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{host}:{port}"


def changed(join: Join, table: str, key: str, value: str | None) -> Join:
    """`join` with another value, or none, in one of its tables."""
    entries = dict(getattr(join, table))
    if value is None:
        del entries[key]
    else:
        entries[key] = value
    return msgspec.structs.replace(join, **{table: entries})
