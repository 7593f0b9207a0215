"""Runs a `Step`: ends, moves, begins, one prompt pass over all chunks, saves, one window pass.

Owns the model, the lanes' states, the pool's tensors, kept states and each lane's sampler. Knows no
requests, never chooses a page or a slot, and takes a step as one that fits: the rank has checked
it. Invariant: a step that raises leaves its lanes undefined.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from streamglm.kernels import linear
from streamglm.kernels.arguments import Array
from streamglm.model import selfcheck
from streamglm.model.batch import Geometry, PageTables, PromptBatch, WindowBatch
from streamglm.model.caches import Caches
from streamglm.model.glm import Glm
from streamglm.model.kept import KeptTensors
from streamglm.model.mtp import Mtp
from streamglm.model.params import Params
from streamglm.model.spec import ModelSpec
from streamglm.model.state import LaneStates
from streamglm.pool.layout import RowFormat
from streamglm.pool.tensors import PoolTensors
from streamglm.step import Begin, Choice, Chunk, Draw, Drawn, Row, Step, StepResult


class Sampler(Protocol):
    """The draws of one lane; `sampling/lane.py` is one."""

    def choose(self, logits: Array, position: int) -> Choice:
        """The token for `position` from logits [V]; changes nothing."""
        ...

    def push(self, token: int) -> None:
        """`token` stands in the reply."""
        ...


MakeSampler = Callable[[Draw, bytes], Sampler]
"""A lane's draw, and the packed ids of its prompt where the draw asks for them."""

_FLOAT32_BYTES = 4
"""Of a value of a lane's fixed part: the CPU computes in float32, whatever pages hold."""

Logits = dict[tuple[int, int], Array]
"""(lane, position) of a row -> its logits [vocab]."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """What an executor has allocated besides weights."""

    pool: int
    """Pages, without the null page."""
    null: int
    """The null page."""
    lanes: int
    """Fixed parts of all lanes."""
    slots: int
    """Fixed parts of kept states that share pages: all slots, full or not."""
    buffers: int
    """Kept states that have rows of their own, on the device."""
    host: int
    """The same in host memory."""


class Executor:
    """One rank's model with its memory.

    `rows` is the format of pages, `slots` the places for kept states that share them. Takes the
    tensors out of `params` as it fuses them; raises `CheckpointError` naming one that is missing,
    misshapen or of no use. `sampler` makes what a lane draws with; the model itself knows no
    sampling.
    """

    def __init__(
        self,
        spec: ModelSpec,
        params: dict[str, torch.Tensor],
        *,
        pages: int,
        lanes: int,
        slots: int = 0,
        rows: RowFormat = RowFormat.FP32,
        sampler: MakeSampler,
        poison: bool = False,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        given = Params(params)
        drafter = given.under(f"layers.{len(spec.layers)}")
        if spec.mtp_layers and not drafter.any():
            log("the checkpoint holds no next-token layer: running without drafts")
            spec = replace(spec, mtp_layers=0)
        self.spec = spec
        self._make_sampler = sampler
        shape = spec.cache_shape(rows, value_itemsize=_FLOAT32_BYTES, drafts=False)
        self.pool = PoolTensors(shape, pages, poison=poison)
        self.caches = Caches.of(self.pool)
        self.states = LaneStates(shape, lanes, poison=poison)
        self.kept = KeptTensors(shape, slots, self.states, self.pool, poison=poison)
        self._geometry = Geometry.of(spec, self.pool.null)
        self._tables = PageTables(lanes, self._geometry)
        self._samplers: dict[int, Sampler] = {}
        self.glm = Glm(spec, given, self._geometry)
        self.mtp: Mtp | None = None
        if spec.mtp_layers:
            hidden = linear.padded_width(spec.hidden_size)
            self.mtp = Mtp(spec, drafter, hidden, self._geometry)
        given.finish()
        self.proof = selfcheck.prove(self.glm.weights(), spec, log)

    @property
    def bytes(self) -> Bytes:
        """Bytes allocated at this moment; only those of copies change."""
        return Bytes(
            pool=self.pool.bytes,
            null=self.pool.null_bytes,
            lanes=self.states.bytes,
            slots=self.kept.slots.bytes,
            buffers=self.kept.buffer_bytes,
            host=self.kept.host_bytes,
        )

    @property
    def exact_tiles(self) -> bool:
        """Whether the self-check held, so that rows are computed side by side."""
        tilings = (self.proof.prompt, self.proof.window)
        return all(tiling.sizes != (1,) and tiling.entries for tiling in tilings)

    @torch.inference_mode()
    def run(self, step: Step) -> StepResult:
        """Execute `step`."""
        return self._run(step, None)

    @torch.inference_mode()
    def logits(self, step: Step) -> tuple[StepResult, Logits]:
        """`run`, and the logits of every row of the step: the same rows, read before the draw."""
        tap: Logits = {}
        return self._run(step, tap), tap

    @np.errstate(all="ignore")  # a lane that is not finite fails by its token, and by that alone
    def _run(self, step: Step, tap: Logits | None) -> StepResult:
        for lane in step.ends:
            self.states.end(lane)
            del self._samplers[lane]
        for move in step.moves:
            self.kept.move(move)
        for begin in step.begins:
            self._begin(begin)
        began = time.perf_counter()
        drawn = self._prompt(step.chunks, tap) if step.chunks else []
        for save in step.saves:
            self.kept.save(save, self._tables.pages(save.lane, save.at))
        between = time.perf_counter()
        if step.rows:
            drawn += self._window(step.rows, tap)
        ended = time.perf_counter()
        return StepResult(tuple(drawn), between - began, ended - between)

    def _begin(self, begin: Begin) -> None:
        restore = begin.restore
        kept = 0 if restore is None else restore.at // self._geometry.page
        self.pool.take(begin.pages[kept:])
        self._tables.begin(begin.lane, begin.pages)
        if restore is None:
            self.states.begin(begin.lane)
        else:
            self.kept.restore(restore, begin.lane, begin.pages[:kept])
        self._samplers[begin.lane] = self._make_sampler(begin.draw, begin.seen)

    def _prompt(self, chunks: Sequence[Chunk], tap: Logits | None) -> list[Drawn]:
        batch = PromptBatch.of(chunks, self._tables, self._geometry)
        hidden = self.glm.prompt(batch, self.states, self.caches, self.proof.prompt).numpy()
        if tap is not None:
            for c in batch.chunks:
                rows = self._head(hidden[c.first : c.first + c.rows])
                tap.update({(c.lane, c.start + i): row for i, row in enumerate(rows)})
        ends = [(c.lane, c.start + c.rows) for c in batch.chunks if c.last]
        return self._draw(ends, self._head(hidden[batch.last])) if ends else []

    def _window(self, rows: Sequence[Row], tap: Logits | None) -> list[Drawn]:
        batch = WindowBatch.of(rows, self._tables, self._geometry, self.proof.window)
        hidden = self.glm.window(batch, self.states, self.caches, self.proof.window)
        logits = self._head(hidden[: len(rows)])
        if tap is not None:
            tap.update({(row.lane, row.position): logits[i] for i, row in enumerate(rows)})
        return self._draw([(row.lane, row.position + 1) for row in rows], logits)

    def _head(self, hidden: Array) -> Array:
        """Logits of rows [N, hidden], in the tiles of a window for prompts too."""
        count = len(hidden)
        rows = np.zeros((self.proof.window.pad(count), hidden.shape[1]), np.float32)
        rows[:count] = hidden
        return self.glm.logits(rows, self.proof.window)[:count]

    def _draw(self, ends: Sequence[tuple[int, int]], logits: Array) -> list[Drawn]:
        """(lane, position of the token to draw) and its logits -> what each lane drew."""
        drawn = []
        for (lane, position), row in zip(ends, logits, strict=True):
            sampler = self._samplers[lane]
            token, logprob = sampler.choose(row, position)
            if token >= 0:
                sampler.push(token)
            drawn.append(Drawn(lane, (token,), () if logprob is None else (logprob,)))
        return drawn
