"""Of several ranks that end, the one that failed by itself is named.

The others end because of it, in any order: they say `PeerLost` and leave, perhaps before the system
has told that the first one is gone.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from streamglm.errors import EngineFailed
from streamglm.ranks.client import RankClient
from streamglm.ranks.group import Limits, RankGroup
from streamglm.ranks.wire import Broken, Pong, ToServer
from streamglm.step import Step

LOST = Broken("PeerLost", "rank 0 of 2: add: another rank is gone")


class Member:
    """A rank that says `says` and is gone when told to be."""

    def __init__(self, rank: int, says: ToServer | None = None, *, gone: bool = False) -> None:
        self.rank, self.pid, self.gone, self.killed = rank, 0, gone, False
        parting = says if isinstance(says, Broken) else None
        self.channel: Any = SimpleNamespace(
            parting=parting, heard=0, send=lambda message: None, receive=self._receive
        )
        self._says = says

    async def _receive(self, seconds: float) -> ToServer:
        if self._says is None:
            await asyncio.sleep(seconds)
            raise TimeoutError
        return self._says

    async def obituary(self) -> str:
        return f"rank {self.rank} was killed by signal 9 (SIGKILL)"

    async def end(self, seconds: float) -> None:
        self.gone = True

    def kill(self) -> None:
        self.killed = True


def group_of(*members: Member) -> RankGroup:
    group = RankGroup(Limits(blame=0.5, step=5.0))
    group.ranks += members
    return group


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_a_rank_that_said_nothing_is_named_before_one_that_lost_it(
    order: tuple[int, int],
) -> None:
    members = [Member(order[0], LOST, gone=True), Member(order[1], gone=True)]
    found = await group_of(*members).culprit()
    assert found == f"rank {order[1]} was killed by signal 9 (SIGKILL)"


async def test_a_rank_with_an_error_of_its_own_is_named() -> None:
    members = [Member(0, LOST, gone=True), Member(1, Broken("RuntimeError", "no memory left"))]
    assert await group_of(*members).culprit() == "rank 1 failed: RuntimeError: no memory left"


async def test_nobody_is_named_where_all_have_lost_another() -> None:
    assert await group_of(Member(0, LOST), Member(1, LOST)).culprit() is None


async def test_a_step_waits_a_moment_for_the_rank_that_was_lost_first() -> None:
    """Rank 0 says first that it lost a peer; that rank 1 is gone shows later."""
    members = Member(0, LOST), Member(1)
    client = RankClient(group_of(*members), [])

    async def later() -> None:
        await asyncio.sleep(0.1)
        members[1].gone = True

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(later())
        with pytest.raises(EngineFailed, match=r"^rank 1 was killed by signal 9"):
            await client.run(Step(), 0)
    assert members[0].killed, "a rank that is left would wait for the one that is gone"
    assert members[1].killed


async def test_ranks_that_all_lost_another_are_named_by_the_first() -> None:
    client = RankClient(group_of(Member(0, LOST), Member(1, LOST)), [])
    with pytest.raises(EngineFailed, match=r"^rank 0 failed: PeerLost: rank 0 of 2: add"):
        await client.run(Step(), 0)


async def test_signs_of_life_are_counted_in_looks() -> None:
    """A server that was stopped itself finds the signs of meanwhile when it looks again."""
    quiet, lively = Member(1, Pong()), Member(0, Pong())
    group = group_of(lively, quiet)
    group.limits = Limits(ping_every=0.05, life=0.2)
    client = RankClient(group, [])

    async def live() -> None:
        while True:
            lively.channel.heard += 1
            await asyncio.sleep(0.02)

    living = asyncio.create_task(live())
    error = await client.failed()
    living.cancel()
    assert error.message == "rank 1 has given no sign of life for 0.2 s"
