"""Lanes of an executor with drafts, driven by hand: windows of one row, or of many.

Owns a checkpoint with a next-token layer for every test that needs one, and the rows of a lane.
Owns no expectation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from streamglm import nano
from streamglm.kernels.arguments import Array
from streamglm.model.executor import Executor
from streamglm.model.spec import ModelSpec
from streamglm.pool.layout import RowFormat
from streamglm.sampling.lane import LaneSampler
from streamglm.step import Begin, Chunk, Draw, Drawn, Row, Step
from streamglm.weights.checkpoint import load
from support.ranked import Driven

GREEDY = Draw(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)
MOST = 16
"""Rows of one lane in a window."""


def engine(
    folder: Path | None = None, rows: RowFormat = RowFormat.FP32, *, slots: int = 0
) -> Executor:
    """The built-in model, or the one in `folder`, with drafts and poisoned pages; one thread, for
    fixtures that are older than a test's own."""
    torch.set_num_threads(1)
    at = folder or nano.folder()
    spec = ModelSpec.from_folder(at)
    return Executor(
        spec,
        load(at, spec).params,
        pages=96,
        lanes=8,
        slots=slots,
        rows=rows,
        sampler=LaneSampler,
        drafts=True,
        poison=True,
    )


def ids(seed: int, length: int) -> tuple[int, ...]:
    """Random token ids."""
    draw = random.Random(seed)
    return tuple(draw.randrange(2, 300) for _ in range(length))


@dataclass
class Reply:
    """What a lane came to: tokens, logits by position, and the drafts of each draw."""

    tokens: list[int]
    logits: dict[int, Array] = field(default_factory=dict)
    drafts: list[tuple[int, ...]] = field(default_factory=list)
    accepted: int = 0


Wish = Callable[[Reply], Sequence[int]]
"""The drafts of a lane's next row, from its reply so far."""


def nothing(reply: Reply) -> Sequence[int]:
    return ()


class Drafted:
    """Lanes of one executor, or of several ranks'; pages in an order that nothing can assume."""

    def __init__(self, executor: Driven, seed: int = 0) -> None:
        self.executor = executor
        self.replies: dict[int, Reply] = {}
        self.position: dict[int, int] = {}
        self.pages: dict[int, tuple[int, ...]] = {}
        self._free = list(range(executor.pool.pages))
        random.Random(seed).shuffle(self._free)

    def begin(
        self,
        lane: int,
        prompt: Sequence[int],
        *,
        draw: Draw = GREEDY,
        follow: bool = True,
        ahead: int = 0,
        sizes: Sequence[int] = (),
    ) -> None:
        """A lane and its whole prompt, in chunks of `sizes`, the last one over and over."""
        count = -(-(len(prompt) + 200) // self.executor.spec.rows.page)
        self.pages[lane] = tuple(self._free.pop() for _ in range(count))
        begins: tuple[Begin, ...] = (Begin(lane, self.pages[lane], draw, drafts=follow),)
        self.replies[lane] = Reply([])
        start, cut = 0, 0
        while start < len(prompt):
            size = sizes[min(cut, len(sizes) - 1)] if sizes else len(prompt)
            part = tuple(prompt[start : start + size])
            last = start + size >= len(prompt)
            chunk = Chunk(lane, start, part, last, ahead if last else 0)
            self._run(Step(begins=begins, chunks=(chunk,)))
            begins, start, cut = (), start + size, cut + 1
        self.position[lane] = len(prompt)

    def window(self, lanes: Sequence[int], wishes: Mapping[int, Wish], *, ahead: int = 0) -> None:
        """One window of `lanes`, each with the drafts that it wishes."""
        rows = []
        for lane in lanes:
            reply = self.replies[lane]
            drafts = tuple(wishes.get(lane, nothing)(reply))[: MOST - 1]
            rows.append(Row(lane, self.position[lane], reply.tokens[-1], drafts, ahead))
        for one in self._run(Step(rows=tuple(rows))):
            self.position[one.lane] += len(one.tokens)
            self.replies[one.lane].accepted += len(one.tokens) - 1

    def decode(self, lane: int, count: int, wish: Wish = nothing, *, ahead: int = 0) -> Reply:
        """Windows of one lane until it has `count` tokens or more."""
        while len(self.replies[lane].tokens) < count:
            self.window([lane], {lane: wish}, ahead=ahead)
        return self.replies[lane]

    def carried(self, lane: int) -> list[Array]:
        """What the lane carries: states, convolution rows, pools in progress."""
        states, pool = self.executor.states, self.executor.spec.pool
        trunk = len(self.executor.spec.dsa_layers)
        tail = states.tails[:trunk, lane, : self.position[lane] % pool]
        parts = (states.kda[:, lane], states.conv[:, lane], tail)
        return [part.clone().numpy() for part in parts]

    def rows(self, lane: int, cache: int, start: int, stop: int) -> list[bytes]:
        """Bytes of a lane's latent rows [start, stop) and of their whole pools in one cache."""
        executor = self.executor
        page, pool = executor.spec.rows.page, executor.spec.pool
        latents, keys = executor.caches.latents[cache], executor.caches.keys[cache]
        found = [
            latents.host[self.pages[lane][at // page], at % page].tobytes()
            for at in range(start, stop)
        ]
        for at in range(-(-start // pool) * pool, stop // pool * pool, pool):
            one = keys.host[self.pages[lane][at // page], at % page // pool]
            found.append(one.tobytes())
        return found

    def end(self, lane: int) -> None:
        """The lane's pages are free again."""
        self._run(Step(ends=(lane,)))
        self._free += self.pages.pop(lane)
        del self.replies[lane]

    def _run(self, step: Step) -> tuple[Drawn, ...]:
        result, tap = self.executor.logits(step)
        for (lane, position), logits in tap.items():
            self.replies[lane].logits[position] = logits.copy()
        for one in result.drawn:
            self.replies[one.lane].tokens += one.tokens
            self.replies[one.lane].drafts.append(one.drafts)
        return result.drawn


def alone(lanes: Drafted, prompt: Sequence[int], count: int, draw: Draw = GREEDY) -> Reply:
    """A reply in windows of one row."""
    lanes.begin(0, prompt, draw=draw, follow=False)
    reply = lanes.decode(0, count)
    lanes.end(0)
    return reply


def knowing(tokens: Sequence[int], pattern: Sequence[tuple[int, int]]) -> Wish:
    """Drafts of a reply that is known to be `tokens`: (true ones, false ones behind them), window
    after window, over and over."""
    calls = iter(range(1 << 30))

    def wish(reply: Reply) -> Sequence[int]:
        right, wrong = pattern[next(calls) % len(pattern)]
        at = len(reply.tokens)
        true = list(tokens[at : at + right])
        behind = [*tokens[at + right : at + right + wrong], *[0] * wrong][:wrong]
        return [*true, *((token + 1) % 300 for token in behind)]

    return wish


def same(one: Reply, two: Reply, count: int) -> bool:
    """Equal in tokens and, bit for bit, in the logits behind them, as far as both have them."""
    if one.tokens[:count] != two.tokens[:count]:
        return False
    rows = sorted(one.logits.keys() & two.logits.keys())
    return len(rows) >= count - 1 and all(
        np.array_equal(one.logits[row], two.logits[row]) for row in rows
    )
