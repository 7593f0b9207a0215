"""What is done to the folder, one thing after the other, while the event loop goes on.

Owns the queue and the one thread. Knows no records. Invariant: an errand runs whole before the next
begins, whether or not it awaits the thread, so that between two of them index and folder agree.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

Errand = Callable[[], Awaitable[None]]


class Errands:
    """A queue of errands. `run` does them; `close` it at the end."""

    def __init__(self) -> None:
        self._todo: deque[Errand] = deque()
        self._bell = asyncio.Event()
        self._busy = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="disk-index")

    def __len__(self) -> int:
        """Errands that are not done."""
        return len(self._todo) + self._busy

    def add(self, errand: Errand) -> None:
        """Do `errand` after all that was added before. One that raises is a bug, and is logged."""
        self._todo.append(errand)
        self._bell.set()

    async def run(self) -> None:
        """Do errands for ever. Cancelled, the one in progress is finished in its thread alone."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            while self._todo:
                self._busy = True
                try:
                    await self._todo.popleft()()
                except Exception:
                    _log.exception("an errand of the disk failed")
                finally:
                    self._busy = False

    async def aside(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """The result of `work`, in the thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(work, *args, **options))

    def close(self) -> None:
        """Return when the thread has ended. What was not begun is not done."""
        self._todo.clear()
        self._thread.shutdown()
