"""The scheduler: lanes, budgets and measured seconds in, the next round's work out.

Owns three choices: whether a prompt pass may run now, which prompts share it, and which lanes
stand in the window. Pure: no clock, no ranks, no waiting; it is told what the last round cost.

Share. A prompt pass of t seconds owes running replies `t * s / (1 - s)` seconds of window passes,
s being the decode share. It owes them to those that it held up: with nobody decoding, prompts run
back to back and owe nothing. A round may carry both passes, so a prompt pass holds up no window
for longer than itself.

Credit. The next prompt pass comes when what is owed is paid; or, where what is left of a prompt
fits one pass, while less than `CREDIT_PASSES` of the last pass is owed. Short prompts that came
together then fill their lanes together, instead of one after the other with half-empty windows
between them, which would make all of them later. What is owed is still paid, so over any longer
time the share is what it says; a long prompt is given no credit until its end.

Prompts. The prompt with the fewest rows left goes first, so that a short one does not wait behind
a long one; but when the oldest prompt got less than half of the last pass and wanted more, it
goes first in this one, so that no rain of short prompts starves it. What a prompt leaves of the
pass goes to the next. A chunk ends at its lane's next mark, where a state is kept.

Background. Lanes of background requests have what the others leave: their prompts come last in a
pass, and their rows last in a window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamglm.core.lane import Lane, State
from streamglm.core.shape import EngineShape
from streamglm.step import Chunk, Row

CREDIT_PASSES = 2
"""Prompt passes that may be owed for while another one starts."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a round computes: one prompt pass, one window pass, or both."""

    chunks: tuple[Chunk, ...]
    rows: tuple[Row, ...]


class Scheduler:
    """Chooses round after round; `measured` follows each `choose` that was run."""

    __slots__ = ("_credit", "_oldest_first", "_owed", "_ratio", "_shape")

    def __init__(self, shape: EngineShape, decode_share: float) -> None:
        assert 0.0 <= decode_share < 1.0, f"decode share {decode_share}"
        self._shape = shape
        self._ratio = decode_share / (1.0 - decode_share)
        self._owed = 0.0
        """Seconds of window passes that running replies have not had yet."""
        self._credit = 0.0
        """How much may be owed when a prompt pass starts."""
        self._oldest_first = False

    def choose(self, lanes: Iterable[Lane]) -> Work:
        """The next round's work over the filling and decoding `lanes`; empty without any."""
        filling: list[Lane] = []
        decoding: list[Lane] = []
        for lane in lanes:
            if lane.state is State.DECODING:
                decoding.append(lane)
            elif lane.state is State.FILLING:
                filling.append(lane)
        chunks: tuple[Chunk, ...] = ()
        if filling and (not decoding or self._owed <= 0.0 or self._on_credit(filling)):
            chunks = self._chunks(filling)
        return Work(chunks, self._rows(decoding))

    def measured(self, work: Work, prompt_seconds: float, window_seconds: float) -> None:
        """What the chosen round took, by the ranks' own measurement."""
        if work.chunks and work.rows:
            self._owed += prompt_seconds * self._ratio
            self._credit = CREDIT_PASSES * prompt_seconds * self._ratio
        self._owed = max(0.0, self._owed - window_seconds)

    def _on_credit(self, filling: list[Lane]) -> bool:
        """Whether a prompt pass may start although something is owed."""
        short = any(lane.rows_left <= self._shape.chunk_rows for lane in filling)
        return short and self._owed < self._credit

    def _rows(self, decoding: list[Lane]) -> tuple[Row, ...]:
        """The least recently served lanes, as many as a window holds, background last."""
        if len(decoding) > self._shape.window_rows:
            decoding.sort(key=lambda lane: (lane.request.background, lane.served, lane.index))
            del decoding[self._shape.window_rows :]
        return tuple(lane.row() for lane in decoding)

    def _chunks(self, filling: list[Lane]) -> tuple[Chunk, ...]:
        """One pass over the prompts in their order of this pass, until its rows are given out."""
        oldest = min(filling, key=lambda lane: (lane.request.background, lane.order))
        filling.sort(key=lambda lane: (lane.request.background, lane.rows_left, lane.order))
        if self._oldest_first:
            filling.remove(oldest)
            filling.insert(0, oldest)
        budget = self._shape.chunk_rows
        chunks = []
        oldest_rows = 0
        for lane in filling:
            rows = self._cut(lane.rows_wanted, budget)
            if rows:
                chunks.append(lane.chunk(rows))
                budget -= rows
            if lane is oldest:
                oldest_rows = rows
        short = 2 * oldest_rows < self._shape.chunk_rows
        self._oldest_first = short and oldest_rows < oldest.rows_wanted
        return tuple(chunks)

    def _cut(self, wanted: int, budget: int) -> int:
        """Rows of a prompt's next chunk: all that it wants, or a multiple of the grid."""
        if wanted <= budget:
            return wanted
        return budget - budget % self._shape.kda_chunk
