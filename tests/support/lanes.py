"""Driving an executor by lanes: pages leased in shuffled order, logits kept by position.

Owns the pages that a test hands out and each lane's length. Owns no expectation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from streamglm.kernels.arguments import Array
from streamglm.step import Begin, Chunk, Draw, Row, Step
from support.ranked import Driven

GREEDY = Draw(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)


class Lanes:
    """Lanes of one executor, or of several ranks'. `seed` shuffles the pages free at first."""

    def __init__(self, executor: Driven, seed: int = 0) -> None:
        self.executor = executor
        self._free = list(range(executor.pool.pages))
        random.Random(seed).shuffle(self._free)
        self._pages: dict[int, tuple[int, ...]] = {}
        self._length: dict[int, int] = {}
        self.logits: dict[int, dict[int, Array]] = {}
        """lane -> position -> logits"""

    def begin(self, lane: int, rows: int, draw: Draw = GREEDY) -> Begin:
        """A blank lane with pages for `rows` rows, to be put into a step."""
        count = -(-rows // self.executor.spec.rows.page)
        self._pages[lane] = tuple(self._free.pop() for _ in range(count))
        self._length[lane] = 0
        self.logits[lane] = {}
        return Begin(lane, self._pages[lane], draw)

    def end(self, lane: int) -> None:
        """The lane's pages are free again, the last one first."""
        self._run(Step(ends=(lane,)))
        self._free.extend(self._pages.pop(lane))

    def prompt(self, lane: int, ids: Sequence[int], sizes: Sequence[int] = ()) -> int:
        """The whole prompt in chunks of `sizes` (then the rest), on a lane that begins with it;
        the token drawn at its end."""
        token = -1
        begins: tuple[Begin, ...] = (self.begin(lane, len(ids) + 80),)
        for chunk in chunks(lane, ids, sizes):
            token = self._run(Step(begins=begins, chunks=(chunk,)))[lane]
            begins = ()
        return token

    def window(self, tokens: Mapping[int, int]) -> dict[int, int]:
        """One decoded row for each lane, in the mapping's order; the tokens drawn after them."""
        rows = tuple(Row(lane, self._length[lane], token) for lane, token in tokens.items())
        return self._run(Step(rows=rows))

    def decode(self, lane: int, tokens: Sequence[int]) -> None:
        """Rows of given tokens, one a step."""
        for token in tokens:
            self.window({lane: token})

    def run(self, step: Step) -> dict[int, int]:
        """Any step; its tokens by lane."""
        return self._run(step)

    def stacked(self, lane: int) -> Array:
        """Logits of every position of the lane so far -> [rows, vocab]."""
        found = self.logits[lane]
        return np.stack([found[position] for position in sorted(found)])

    def state(self, lane: int) -> list[Array]:
        """Copies of what the lane carries besides pages."""
        states = self.executor.states
        parts = (states.kda, states.conv, states.tails)
        return [part[:, lane].float().clone().numpy() for part in parts]

    def took(self, tap: Mapping[tuple[int, int], Array], counts: Mapping[int, int]) -> None:
        """What a step of one's own gave, and by how many rows each lane is longer."""
        for (lane, position), logits in tap.items():
            self.logits[lane][position] = logits.copy()
        for lane, count in counts.items():
            self._length[lane] += count

    def _run(self, step: Step) -> dict[int, int]:
        result, tap = self.executor.logits(step)
        for (lane, position), logits in tap.items():
            self.logits[lane][position] = logits.copy()
        for chunk in step.chunks:
            self._length[chunk.lane] += len(chunk.tokens)
        for row in step.rows:
            self._length[row.lane] += 1
        drawn = {one.lane: one.tokens[0] for one in result.drawn}
        return {lane: drawn.get(lane, -1) for lane in self._length}


def chunks(lane: int, ids: Sequence[int], sizes: Sequence[int]) -> list[Chunk]:
    """`ids` as chunks of `sizes`, the last size over and over; one chunk without sizes."""
    found: list[Chunk] = []
    start = 0
    while start < len(ids):
        size = sizes[min(len(found), len(sizes) - 1)] if sizes else len(ids)
        part = tuple(ids[start : start + size])
        found.append(Chunk(lane, start, part, last=start + size >= len(ids)))
        start += size
    return found
