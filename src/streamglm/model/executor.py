"""Runs a `Step`: ends, begins, one prompt pass over all chunks, one window pass over all rows.

Owns the model, the lanes' states, the pool's tensors and each lane's draw. Knows no requests, never
chooses a page, and takes a step as one that fits: the rank has checked it. Invariant: a step that
raises leaves its lanes undefined.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from streamglm.kernels import linear
from streamglm.kernels.arguments import Array
from streamglm.model import selfcheck
from streamglm.model.batch import Geometry, PageTables, PromptBatch, WindowBatch
from streamglm.model.glm import Glm
from streamglm.model.mtp import Mtp
from streamglm.model.params import Params
from streamglm.model.spec import ModelSpec
from streamglm.model.state import LaneStates
from streamglm.pool.tensors import PoolTensors
from streamglm.step import Begin, Chunk, Draw, Row, Step, StepResult

Sample = Callable[[Array, Sequence[Draw], Sequence[int]], list[int]]
"""logits [N, V], a draw and the drawn token's own position a row -> N ids; -1 for a row without a
usable logit."""

Logits = dict[tuple[int, int], Array]
"""(lane, position) of a row -> its logits [vocab]."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """What an executor allocated besides weights."""

    pool: int
    """Pages, the null page included."""
    lanes: int
    """Fixed parts of all lanes."""


class Executor:
    """One rank's model with its memory.

    Takes the tensors out of `params` as it fuses them; raises `CheckpointError` naming one that is
    missing, misshapen or of no use. `sample` draws; the model itself knows no sampling.
    """

    def __init__(
        self,
        spec: ModelSpec,
        params: dict[str, torch.Tensor],
        *,
        pages: int,
        lanes: int,
        sample: Sample,
        poison: bool = False,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        given = Params(params)
        drafter = given.under(f"layers.{len(spec.layers)}")
        if spec.mtp_layers and not drafter.any():
            log("the checkpoint holds no next-token layer: running without drafts")
            spec = replace(spec, mtp_layers=0)
        self.spec = spec
        self._sample = sample
        shape = spec.cache_shape()
        self.pool = PoolTensors(shape, pages, poison=poison)
        self.states = LaneStates(shape, lanes, poison=poison)
        self._geometry = Geometry.of(spec, self.pool.null)
        self._tables = PageTables(lanes, self._geometry)
        self._draws: dict[int, Draw] = {}
        self.glm = Glm(spec, given, self._geometry)
        self.mtp: Mtp | None = None
        if spec.mtp_layers:
            hidden = linear.padded_width(spec.hidden_size)
            self.mtp = Mtp(spec, drafter, hidden, self._geometry)
        given.finish()
        self.proof = selfcheck.prove(self.glm.weights(), spec, log)

    @property
    def bytes(self) -> Bytes:
        """Bytes allocated for pages and for lanes."""
        return Bytes(self.pool.bytes, self.states.bytes)

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
        for begin in step.begins:
            self._begin(begin)
        began = time.perf_counter()
        tokens = self._prompt(step.chunks, tap) if step.chunks else []
        between = time.perf_counter()
        if step.rows:
            tokens += self._window(step.rows, tap)
        ended = time.perf_counter()
        return StepResult(tuple(tokens), between - began, ended - between)

    def _begin(self, begin: Begin) -> None:
        self.states.begin(begin.lane)
        self.pool.take(begin.pages)
        self._tables.begin(begin.lane, begin.pages)
        self._draws[begin.lane] = begin.draw

    def _prompt(self, chunks: Sequence[Chunk], tap: Logits | None) -> list[tuple[int, int]]:
        batch = PromptBatch.of(chunks, self._tables, self._geometry)
        hidden = self.glm.prompt(batch, self.states, self.pool, self.proof.prompt).numpy()
        if tap is not None:
            for c in batch.chunks:
                rows = self._head(hidden[c.first : c.first + c.rows])
                tap.update({(c.lane, c.start + i): row for i, row in enumerate(rows)})
        ends = [(c.lane, c.start + c.rows) for c in batch.chunks if c.last]
        return self._draw(ends, self._head(hidden[batch.last])) if ends else []

    def _window(self, rows: Sequence[Row], tap: Logits | None) -> list[tuple[int, int]]:
        batch = WindowBatch.of(rows, self._tables, self._geometry, self.proof.window)
        hidden = self.glm.window(batch, self.states, self.pool, self.proof.window)
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

    def _draw(self, ends: Sequence[tuple[int, int]], logits: Array) -> list[tuple[int, int]]:
        """(lane, position of the token to draw) and its logits -> (lane, token)."""
        draws, positions = [self._draws[lane] for lane, _ in ends], [at for _, at in ends]
        drawn = self._sample(logits, draws, positions)
        return [(lane, token) for (lane, _), token in zip(ends, drawn, strict=True)]
