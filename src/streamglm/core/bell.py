"""The bell: whoever has news after a round is called, in one callback of the event loop or a few.

Owns the line of calls that are due. Knows no replies. A round rings while it commits, and the
calls come when it next waits, which is after the next step was sent: readers are served while the
ranks compute. Invariant: every call that was rung is made once, in the order in which it was rung,
whatever another call raises.

Calls are made in slices of half a millisecond, and whatever else the loop has to do comes between
two of them. So a round never waits for a thousand writes: it goes on, and a reader that is still in
line gets the tokens of several rounds in one event. Where the loop has nothing else to do, no time
is lost between slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

_log = logging.getLogger(__name__)

SLICE_SECONDS = 0.0005
"""After which other callbacks have their turn: about 30 readers."""


class Bell:
    """Collects calls, and makes them in the order in which they were rung.

    `now` tells the seconds of the engine's clock.
    """

    __slots__ = ("_due", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        self._due: deque[Callable[[], None]] = deque()
        self._now = now

    def ring(self, call: Callable[[], None]) -> None:
        """`call` is made soon, and never from inside this method."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._strike)
        self._due.append(call)

    def _strike(self) -> None:
        """Calls that were due before this one began, a slice of them at most."""
        due, until = self._due, self._now() + SLICE_SECONDS
        for _ in range(len(due)):
            try:
                due[0]()
            except Exception:
                _log.exception("a reader failed")
            due.popleft()
            if self._now() >= until:
                break
        if due:
            asyncio.get_running_loop().call_soon(self._strike)
