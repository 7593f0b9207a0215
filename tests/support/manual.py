"""A clock that moves when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools

TURNS = 20


async def settle() -> None:
    """Give every task that can run its turns; no time passes."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


class ManualClock:
    """`advance` wakes sleepers in the order of their time, each with the clock at that time."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._count = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._count), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        await settle()
        until = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            self._now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._now = until
