"""The server's part in a start over several hosts: ranks come in, and it learns what they have.

Owns what the server makes of those that came: their room, their addresses, whose files are proved.
Knows no HTTP. Invariant: nothing is loaded anywhere before every rank has come and agrees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from streamglm.commands.checkpoint import Checkpoint
from streamglm.commands.hosts import Share
from streamglm.commands.joining import join_of, token_of
from streamglm.config import Settings
from streamglm.errors import SettingError
from streamglm.ranks.door import Door, Terms, listening
from streamglm.ranks.group import NOBODY, Elsewhere
from streamglm.ranks.network import split

ANY = ("0.0.0.0", "::", "")


@dataclass(frozen=True, slots=True)
class Came:
    """Ranks of other hosts, and the least room of any of them; None where all are of this host."""

    elsewhere: Elsewhere
    room: int | None

    def least(self, room: int) -> int:
        """The room of the poorest rank; this host's have `room` each, 0 where it starts none."""
        if self.room is None:
            return room
        return min(self.room, room) if room else self.room


@contextlib.contextmanager
def door_of(
    settings: Settings, checkpoint: Checkpoint, share: Share, room: int
) -> Iterator[Door | None]:
    """Where ranks of other hosts come in, listening until the block is left; None where all ranks
    are of this host. Raises `StartError`."""
    if settings.master is None or not share.elsewhere:
        yield None
        return
    if settings.learn_conversations is not None:
        raise SettingError(
            "--learn-conversations works with ranks of one host: the server puts their records in "
            "their places; leave it out, or --nnodes"
        )
    host, port = split(settings.master)
    if host in ANY:
        raise SettingError(
            f"--master is {settings.master}: other hosts cannot reach that; name an address of "
            "this host on the network between them"
        )
    first = min(share.local, default=0)
    terms = Terms(
        ours=join_of(settings, checkpoint, first, room),
        name=f"rank {first}" if share.local else "the server",
        world=share.world,
        mine=frozenset(share.local),
        token=token_of(settings),
        life=settings.rank_silence_seconds,
    )
    with listening(host, port) as listener:
        yield Door(listener, terms)


async def came(settings: Settings, share: Share, door: Door | None) -> Came:
    """Wait until every rank has come. Raises `StartError`."""
    if door is None:
        return Came(NOBODY, None)
    await door.gather(settings.rank_wait_seconds)
    assert settings.master is not None, "a door without an address"
    own, _ = split(settings.master)
    hosts = {rank: split(remote.address)[0] for rank, remote in door.ranks.items()}
    places = {rank: join.place for rank, join in door.joins.items()}
    places |= dict.fromkeys(share.local, door.terms.ours.place)
    first: dict[str, int] = {}
    for rank in sorted(places):
        first.setdefault(places[rank], rank)
    return Came(
        Elsewhere(
            ranks=dict(door.ranks),
            meet=hosts.get(0, own),
            own=own,
            addresses=hosts,
            prove=frozenset(first.values()) if len(first) > 1 else frozenset(),
        ),
        min(join.room for join in door.joins.values()),
    )
