"""The bell: whoever has news after a round is called, all in one callback of the event loop.

Owns the list of calls that are due. Knows no replies. A round rings while it commits, and the
calls come when it next waits, which is after the next step was sent: readers are served while the
ranks compute. Invariant: every call that was rung is made once, whatever another call raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Bell:
    """Collects calls, and makes them in the order in which they were rung."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def ring(self, call: Callable[[], None]) -> None:
        """`call` is made soon, and never from inside this method."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._strike)
        self._due.append(call)

    def _strike(self) -> None:
        due, self._due = self._due, []
        for call in due:
            try:
                call()
            except Exception:
                _log.exception("a reader failed")
