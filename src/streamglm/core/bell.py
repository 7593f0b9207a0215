"""The bell: whoever has news after a round is called, all in one callback of the event loop.

Owns the list of calls that are due, and when they are made. Knows no replies. A round rings while
it commits, and the calls come when it next waits, which is after the next step was sent: readers
are served while the ranks compute. Invariant: every call that was rung is made once, whatever
another call raises.

Telling never has more than half of the loop's time: a strike that took long is followed by a rest
of the same length, in which rounds go on and what they bring is gathered. Where rounds come faster
than they can be told, a reader then gets several of them in one event and one write, instead of
holding up the next round. A strike of 1,000 readers takes about 15 ms; at rounds of 30 ms or more
there is nothing to wait for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)

SHORT_SECONDS = 0.0005
"""A strike that takes less is followed by no rest: a timer would cost more than it could gather."""


class Bell:
    """Collects calls, and makes them in the order in which they were rung.

    `now` tells the seconds of the engine's clock.
    """

    __slots__ = ("_due", "_free", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        self._due: list[Callable[[], None]] = []
        self._now = now
        self._free = float("-inf")

    def ring(self, call: Callable[[], None]) -> None:
        """`call` is made soon, and never from inside this method."""
        if not self._due:
            loop = asyncio.get_running_loop()
            if (rest := self._free - self._now()) > 0:
                loop.call_later(rest, self._strike)
            else:
                loop.call_soon(self._strike)
        self._due.append(call)

    def _strike(self) -> None:
        due, self._due = self._due, []
        began = self._now()
        for call in due:
            try:
                call()
            except Exception:
                _log.exception("a reader failed")
        ended = self._now()
        if ended - began >= SHORT_SECONDS:
            self._free = ended + (ended - began)
