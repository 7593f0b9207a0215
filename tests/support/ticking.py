"""A clock whose seconds pass when somebody sleeps, for code that takes a `Clock`."""

from __future__ import annotations

import asyncio


class TickingClock:
    """Time stands still but for `sleep`, which jumps; other tasks run in between."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        until = self.seconds + seconds
        for _ in range(3):  # tasks that were created before get their turn first
            await asyncio.sleep(0)
        self.seconds = max(self.seconds, until)
