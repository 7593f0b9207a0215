"""Streams with kept states over an executor in this process, behind a real rank's checks.

Owns what a test compares: logits by position, tokens, states, each of them copied as it was. Owns
no expectation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamglm.commands.check_streams import Store, Streams
from streamglm.kernels.arguments import Array
from streamglm.model.executor import Executor
from streamglm.model.spec import ModelSpec
from streamglm.pool.layout import RowFormat
from streamglm.ranks.mirror import Mirror
from streamglm.ranks.wire import SpecNumbers
from streamglm.sampling.lane import LaneSampler
from streamglm.step import Step, StepResult
from streamglm.weights.checkpoint import load


def ids(seed: int, length: int) -> list[int]:
    """Random token ids that every tiny model has."""
    draw = np.random.default_rng(seed)
    found: list[int] = draw.integers(0, 100, length).tolist()
    return found


class InProcess:
    """Ranks for `Streams`: a mirror that checks every step, and an executor that taps it."""

    def __init__(self, executor: Executor, lanes: int, slots: int) -> None:
        spec = executor.spec
        numbers = SpecNumbers(
            page_rows=spec.rows.page,
            chunk_rows=spec.rows.chunk,
            kda_chunk=spec.rows.kda_chunk,
            window_rows=spec.rows.window,
            vocab_size=spec.vocab_size,
            layers=len(spec.layers),
            verify_rows=max(1, executor.pool.shape.verify_rows),
        )
        self.executor = executor
        self.mirror = Mirror(numbers, executor.pool.pages, lanes, slots)
        self.logits: dict[int, dict[int, Array]] = {}
        """lane -> position -> logits, since the lane began"""

    async def run(self, step: Step, digest: int) -> StepResult:
        self.mirror.check(step, digest)
        for begin in step.begins:
            self.logits[begin.lane] = {}
        result, tap = self.executor.logits(step)
        for (lane, position), logits in tap.items():
            self.logits[lane][position] = logits.copy()
        self.mirror.apply(step, result.drawn)
        return result


@dataclass(frozen=True, slots=True)
class Reply:
    """What one stream came to."""

    cached: int
    logits: Array
    """[rows from `cached` on, vocab]"""
    tokens: tuple[int, ...]
    state: tuple[Array, ...]
    """What the lane carries besides pages, at the end."""

    def equals(self, fresh: Reply) -> bool:
        """Bit for bit, on the rows that this one computed."""
        rows = fresh.logits[self.cached - fresh.cached :]
        return (
            self.tokens == fresh.tokens
            and np.array_equal(self.logits, rows)
            and all(np.array_equal(a, b) for a, b in zip(self.state, fresh.state, strict=True))
        )


class Bench:
    """Streams over one executor: every page of it poisoned and, without `window`, in a shuffled
    order."""

    def __init__(
        self,
        folder: Path,
        rows: RowFormat = RowFormat.FP32,
        *,
        pages: int = 64,
        lanes: int = 6,
        store: Store | None = None,
        window: int | None = None,
        poison: bool = True,
        drafts: bool = False,
        seed: int = 1,
    ) -> None:
        spec = ModelSpec.from_folder(folder)
        self.store = store or Store()
        self.executor = Executor(
            spec,
            load(folder, spec).params,
            pages=pages,
            lanes=lanes,
            slots=self.store.slots,
            rows=rows,
            drafts=drafts,
            poison=poison,
            sampler=LaneSampler,
        )
        self.shape = self.executor.pool.shape
        self.ranks = InProcess(self.executor, lanes, self.store.slots)
        self.streams = Streams(
            self.ranks,
            self.shape,
            pages=pages,
            rows=spec.rows,
            store=self.store,
            window=window,
            seed=seed,
        )

    async def start(self, lane: int, prompt: Sequence[int], **options: object) -> tuple[int, int]:
        """`Streams.begin` and the whole prompt: tokens resumed from, and the first token."""
        cached = self.streams.begin(lane, prompt, **options)  # type: ignore[arg-type]
        return cached, (await self.streams.fill(lane))[lane]

    async def reply(
        self, lane: int, prompt: Sequence[int], *, tokens: int = 24, **options: object
    ) -> Reply:
        """A whole reply of greedy tokens, alone; the lane is free again."""
        cached, token = await self.start(lane, prompt, **options)
        drawn = [token]
        while len(drawn) < tokens:
            token = max(drawn[-1], 0)  # after logits that are not finite, any row will do
            drawn.append((await self.streams.step(rows={lane: token}))[lane])
        found = self.taken(lane, cached, drawn)
        self.streams.end(lane)
        return found

    def taken(self, lane: int, cached: int, tokens: Sequence[int]) -> Reply:
        """What a lane that is still live has come to."""
        rows = self.ranks.logits[lane]
        states = self.executor.states
        return Reply(
            cached=cached,
            logits=np.stack([rows[position] for position in sorted(rows)]),
            tokens=tuple(tokens),
            state=tuple(
                table[:, lane].clone().numpy() for table in (states.kda, states.conv, states.tails)
            ),
        )
