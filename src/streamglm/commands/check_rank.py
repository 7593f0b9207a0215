"""The rank of a check: it computes as any rank does, and answers with bits in place of tokens.

Owns what the number of a lane is. A check compares logits and states bit for bit without either
leaving the rank: the number is a digest of them, chosen by the seed of the lane's draw. Several
ranks answer with one number: each has the numbers of all, since a state is in parts on all of them.
Loads through `ranks/build.py`, which brings torch, in the rank's process alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import xxhash

from streamglm.ranks.wire import Hello, Report
from streamglm.ranks.worker import Executes, Told
from streamglm.step import Drawn, LogProbs, Step, StepResult

if TYPE_CHECKING:
    import torch

    from streamglm.model.executor import Executor, Logits

Array = npt.NDArray[np.float32]
Bytes = bytes | memoryview

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
    TOKENS = 3
    """The tokens themselves and the drafts behind them, as any rank draws them. Beside each token
    stand a digest of its row's logits and, behind the last, one of what the lane carries."""


def build(hello: Hello, told: Told) -> tuple[Executes, Report]:
    """`ranks.build.build`, and its executor watched."""
    from streamglm.ranks import build as real

    executor, report = real.build(hello, told)
    return Watched(executor), report


class Watched:
    """An executor whose tokens are answers."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._peers = executor.peers
        self._lanes: dict[int, tuple[Answer, int]] = {}
        """By lane: what is asked, and its first page."""

    def run(self, step: Step) -> StepResult:
        """`Executor.run` with the step's tokens replaced."""
        for begin in step.begins:
            self._lanes[begin.lane] = Answer(begin.draw.seed), begin.pages[0]
        self._spoil(step)
        result, logits = self._executor.logits(step, ends=True)
        ends = {chunk.lane: chunk.start + len(chunk.tokens) - 1 for chunk in step.chunks}
        ends |= {row.lane: row.position for row in step.rows}
        numbers = [
            number
            for drawn in result.drawn
            for number in self._numbers(drawn, logits, ends[drawn.lane])
        ]
        agreed = iter(self._agreed(numbers))
        told = tuple(self._told(drawn, agreed) for drawn in result.drawn)
        return StepResult(told, result.prompt_seconds, result.window_seconds)

    def _numbers(self, drawn: Drawn, logits: Logits, first: int) -> Iterator[int]:
        """This rank's numbers for a lane whose first row stands at `first`."""
        answer, _ = self._lanes[drawn.lane]
        if answer is not Answer.TOKENS:
            yield self._number(drawn.lane, logits[drawn.lane, first])
            return
        for place in range(len(drawn.tokens)):
            yield _digest([logits[drawn.lane, first + place].tobytes()])
        yield _digest(self._committed(drawn.lane, first + len(drawn.tokens)))

    def _told(self, drawn: Drawn, numbers: Iterator[int]) -> Drawn:
        if self._lanes[drawn.lane][0] is not Answer.TOKENS:
            return Drawn(drawn.lane, (next(numbers),))
        beside = [LogProbs(0.0, ((next(numbers), 0.0),)) for _ in drawn.tokens]
        carried = LogProbs(0.0, (*beside[-1].top, (next(numbers), 0.0)))
        return Drawn(drawn.lane, drawn.tokens, (*beside[:-1], carried), drawn.drafts)

    def _agreed(self, numbers: Sequence[int]) -> list[int]:
        """One number of all ranks for each of `numbers`, of which every rank has as many: the
        number itself where all have the same."""
        if self._peers.world == 1 or not numbers:
            return list(numbers)
        mine = np.array(numbers, np.int64).view(np.uint8).reshape(-1, 8).astype(np.float32)
        joined = self._peers.join(mine, [8] * self._peers.world)
        theirs = joined.astype(np.uint8).view(np.int64)
        return [_one_of(row.tolist()) for row in theirs]

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
        return _digest([logits.tobytes(), *self._carried(lane)])

    def _committed(self, lane: int, end: int) -> Iterator[Bytes]:
        """What the lane goes on from, with rows up to `end`: of its tails the pool in progress,
        behind which stand rows that nobody reads."""
        states, spec = self._executor.states, self._executor.spec
        for table in (states.kda, states.conv):
            yield _bytes(table[:, lane])
        yield _bytes(states.tails[: len(spec.dsa_layers), lane, : end % spec.pool])

    def _carried(self, lane: int) -> Iterator[Bytes]:
        states = self._executor.states
        for table in (states.kda, states.conv, states.tails):
            yield _bytes(table[:, lane])


def _bytes(values: torch.Tensor) -> Bytes:
    """Of values in whatever memory and of whatever dtype."""
    import torch

    found: Bytes = values.contiguous().flatten().view(torch.uint8).cpu().numpy().data
    return found


def _one_of(numbers: list[int]) -> int:
    """What several ranks have, as one number."""
    if NOT_FINITE in numbers:
        return NOT_FINITE
    if len(set(numbers)) == 1:
        return numbers[0]
    return _digest([np.array(numbers, np.int64).tobytes()])


def _digest(parts: Iterable[Bytes]) -> int:
    """A state of the real shapes is 25 MB: a hash of 0.6 GB/s took most of a check's time."""
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return int(digest.intdigest() >> 1)  # what a message holds is signed
