"""Virtual time: an event loop that jumps to its next deadline whenever nothing is left to do.

A minute of waiting takes no time and always the same order of events. `@virtual_time` runs an
async test on such a loop; `LoopClock` is the `Clock` to pass in. A test in which every task waits
for something that no timer will bring fails at once instead of hanging.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


class Deadlock(RuntimeError):
    """Every task waits, and no timer is set."""


class _Selector(selectors.DefaultSelector):
    """Reports what is ready; instead of waiting it moves the loop's clock."""

    loop: AutojumpLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Deadlock("every task waits, and no timer is set")
        self.loop.now += timeout
        return ready


class AutojumpLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual seconds, from 0."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


class LoopClock:
    """The `Clock` of the running loop: virtual under `virtual_time`, real elsewhere."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_virtual(main: Coroutine[Any, Any, None]) -> None:
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=AutojumpLoop) as runner:
        runner.run(main)


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make an async test an ordinary one that runs in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run
