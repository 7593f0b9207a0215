"""When requests are sent: at a fixed rate whatever the server does, or by a number of streams.

Owns the two schedules. Knows no HTTP: a request is a callable. Invariant of the open loop: the
moment of arrival i is start + i / rate, however slowly replies come, so a server that stalls is
charged for everyone who would have come meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from streamglm.clock import Clock

Job = TypeVar("Job")
Send = Callable[[Job], Awaitable[None]]


async def open_loop(jobs: Sequence[Job], send: Send[Job], *, rate: float, clock: Clock) -> float:
    """Send job i at i / `rate` seconds, then wait for all; the largest lateness of a sending, in
    seconds, which says whether the generator itself kept up."""
    start = clock.now()
    late = 0.0
    async with asyncio.TaskGroup() as tasks:
        for index, job in enumerate(jobs):
            due = start + index / rate
            if (ahead := due - clock.now()) > 0:
                await clock.sleep(ahead)
            late = max(late, clock.now() - due)
            tasks.create_task(_sent(send, job))
    return late


async def closed_loop(jobs: Sequence[Job], send: Send[Job], *, streams: int) -> None:
    """`streams` at a time: each sends its next job when its last one ended."""
    left = deque(jobs)

    async def stream() -> None:
        while left:
            await send(left.popleft())

    async with asyncio.TaskGroup() as tasks:
        for _ in range(streams):
            tasks.create_task(stream())


async def _sent(send: Send[Job], job: Job) -> None:
    await send(job)
