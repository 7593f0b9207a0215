"""The rank of a check: it computes as any rank does, and answers with bits in place of tokens.

Owns what the number of a lane is. A check compares logits and states bit for bit without either
leaving the rank: the number is a digest of them, chosen by the seed of the lane's draw. Loads
through `ranks/build.py`, which brings torch, in the rank's process alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamglm.ranks.wire import Hello, Report
from streamglm.ranks.worker import Executes, Told
from streamglm.step import Drawn, Step, StepResult

if TYPE_CHECKING:
    from streamglm.model.executor import Executor

Array = npt.NDArray[np.float32]

NAME = f"{__name__}:build"
"""What such a rank runs."""

NOT_FINITE = -1
"""The number of a lane whose logits hold NaN or infinity."""


class Answer(IntEnum):
    """What comes back for a lane, by the seed of its draw."""

    BITS = 0
    """A digest of the row's logits and of what the lane carries besides pages."""
    SPOILT = 1
    """As BITS, but the lane's first page is poisoned before the prompt's last chunk, as if it had
    never been written."""
    COPIES = 2
    """Bytes of the kept states' copies, on the device and in host memory."""


def build(hello: Hello, told: Told) -> tuple[Executes, Report]:
    """`ranks.build.build`, and its executor watched."""
    from streamglm.ranks import build as real

    executor, report = real.build(hello, told)
    return Watched(executor), report


class Watched:
    """An executor whose tokens are answers."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._lanes: dict[int, tuple[Answer, int]] = {}
        """By lane: what is asked, and its first page."""

    def run(self, step: Step) -> StepResult:
        """`Executor.run` with the step's tokens replaced."""
        for begin in step.begins:
            self._lanes[begin.lane] = Answer(begin.draw.seed), begin.pages[0]
        self._spoil(step)
        result, logits = self._executor.logits(step)
        ends = {chunk.lane: chunk.start + len(chunk.tokens) - 1 for chunk in step.chunks}
        ends |= {row.lane: row.position for row in step.rows}
        numbers = tuple(
            Drawn(lane, (self._number(lane, logits[lane, ends[lane]]),))
            for lane in (drawn.lane for drawn in result.drawn)
        )
        return StepResult(numbers, result.prompt_seconds, result.window_seconds)

    def _spoil(self, step: Step) -> None:
        for chunk in step.chunks:
            answer, page = self._lanes[chunk.lane]
            if answer is Answer.SPOILT and chunk.last and chunk.start:
                self._executor.pool.take((page,))

    def _number(self, lane: int, logits: Array) -> int:
        if self._lanes[lane][0] is Answer.COPIES:
            held = self._executor.bytes
            return held.buffers + held.host
        if not np.isfinite(logits).all():
            return NOT_FINITE
        digest = blake2b(logits.tobytes(), digest_size=7)
        for part in self._carried(lane):
            digest.update(part)
        return int.from_bytes(digest.digest())

    def _carried(self, lane: int) -> Iterator[bytes]:
        states = self._executor.states
        for table in (states.kda, states.conv, states.tails):
            yield np.ascontiguousarray(table.numpy()[:, lane]).tobytes()
