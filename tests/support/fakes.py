"""Ranks in memory: the `Ranks` protocol with a real rank's checks and a stub's tokens."""

from __future__ import annotations

import asyncio
from typing import Any

from streamglm.clock import Clock
from streamglm.core.shape import EngineShape
from streamglm.errors import EngineFailed, RanksDiffer, StepRefused
from streamglm.ranks.mirror import Mirror
from streamglm.ranks.wire import SpecNumbers
from streamglm.step import Step, StepResult
from support.stub import Shelf, StubExecutor


def shape(**numbers: Any) -> EngineShape:
    """A small engine: pages of 8 rows, chunks of 16 on a grid of 4."""
    small: dict[str, Any] = {
        "page_rows": 8,
        "chunk_rows": 16,
        "kda_chunk": 4,
        "window_rows": 4,
        "context": 256,
        "lanes": 4,
        "pages": 64,
        "vocab_size": 50,
    }
    return EngineShape(**{**small, **numbers})


def spec_numbers(of: EngineShape) -> SpecNumbers:
    """What ranks compare, for an engine of this shape."""
    return SpecNumbers(
        page_rows=of.page_rows,
        chunk_rows=of.chunk_rows,
        kda_chunk=of.kda_chunk,
        window_rows=of.window_rows,
        vocab_size=of.vocab_size,
        layers=8,
        verify_rows=max(1, of.slack),
    )


class FakeRanks:
    """Executes steps in this process, over `slots` of kept states. A prompt row takes `row_seconds`
    of the clock, a window `window_seconds`. `steps` is all that was run; `lose` is a rank that
    dies."""

    def __init__(
        self,
        of: EngineShape,
        clock: Clock,
        *,
        slots: int = 0,
        row_seconds: float = 0.0,
        window_seconds: float = 0.0,
        disk: Shelf | None = None,
    ) -> None:
        self.mirror = Mirror(spec_numbers(of), of.pages, of.lanes, slots, of.classes)
        self.steps: list[Step] = []
        self._clock = clock
        self._row_seconds = row_seconds
        self._window_seconds = window_seconds
        self._executor = StubExecutor(of.vocab_size, of.page_rows, disk=disk)
        self._lost = asyncio.Event()
        self._failure = EngineFailed("the fake rank is gone")

    async def run(self, step: Step, digest: int) -> StepResult:
        try:
            self.mirror.check(step, digest)
        except (StepRefused, RanksDiffer) as error:
            raise EngineFailed(f"rank 0: {type(error).__name__}: {error.message}") from error
        self.steps.append(step)
        prompt_seconds = sum(len(chunk.tokens) for chunk in step.chunks) * self._row_seconds
        window_seconds = self._window_seconds if step.rows else 0.0
        await self._clock.sleep(prompt_seconds + window_seconds)
        if self._lost.is_set():
            raise self._failure
        try:
            drawn = self._executor.run(step).drawn
        except RuntimeError as error:
            raise EngineFailed(f"rank 0 failed: RuntimeError: {error}") from error
        self.mirror.apply(step, drawn)
        return StepResult(drawn, prompt_seconds, window_seconds)

    async def failed(self) -> EngineFailed:
        await self._lost.wait()
        return self._failure

    def lose(self, message: str) -> None:
        """A rank dies; a step in flight finds out when its time is over."""
        self._failure = EngineFailed(message)
        self._lost.set()
