"""The clock that is passed in, so that tests own time.

Owns nothing but the two calls; knows no loop of its own. Every wait and every measured
duration in the server goes through one `Clock`, which is why a test can make a minute pass.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds from an arbitrary start, never going back, and a sleep on the same scale."""

    def now(self) -> float:
        """Seconds since an arbitrary, fixed moment."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; cancellation leaves nothing behind."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
