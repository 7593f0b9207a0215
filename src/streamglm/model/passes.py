"""The passes over one rank's memory: prompts, windows, and the next-token layer behind both.

Owns the seam between steps and arithmetic, and the passes of the CPU; `model/device/passes.py` has
those on kernels. Knows no steps, and takes nothing that was drawn into account. What both promise:
a row of hidden, and so its logits, depends on the lane's tokens up to it and on nothing else.
Hidden rows are opaque to the caller but for being indexed: numpy's here, torch's on a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from streamglm.kernels.arguments import Array
from streamglm.kernels.linear import HeadWeight, Weight
from streamglm.model.batch import PromptBatch, Span, WindowBatch
from streamglm.model.caches import Caches
from streamglm.model.device.index import PromptIndex
from streamglm.model.exchange import Exchange
from streamglm.model.glm import Glm
from streamglm.model.mtp import Mtp
from streamglm.model.selfcheck import Proof
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry, PageTables
from streamglm.model.verify import Sampler
from streamglm.step import Chunk

Hidden = Any
"""[rows, hidden]: an array of the host or a tensor of a device."""
Ask = tuple[Sampler, int]
"""Who draws from a row, and for which position."""
_Rows = TypeVar("_Rows", Array, torch.Tensor)


@dataclass(frozen=True, slots=True)
class Window:
    """What a window gives. `logits` are handed, row by row, to a sampler of `Passes.sampler`."""

    spans: tuple[slice, ...]
    """Each lane's rows."""
    hidden: Hidden
    logits: Any


class Passes(Protocol):
    """What an executor and its drafter run."""

    owed: Any
    """[lanes, verify rows, hidden] of `LaneStates`, as hidden rows are."""

    def begin(self, lane: int) -> None:
        """The lane's table of pages is another."""
        ...

    def prompt(self, chunks: Sequence[Chunk]) -> tuple[PromptBatch | PromptIndex, torch.Tensor]:
        """Where the chunks' rows stand, and hidden of all of them."""
        ...

    def hidden(self, rows: torch.Tensor) -> Hidden:
        """Rows of a prompt as those of a window are."""
        ...

    def window(self, rows: Sequence[Span], asks: Sequence[Ask]) -> Window:
        """Rows of lanes; `asks` has one entry a row."""
        ...

    def logits(self, hidden: Hidden, asks: Sequence[Ask]) -> Any:
        """Of each row; without asks nobody draws from them."""
        ...

    def sampler(self, sampler: Sampler) -> Sampler:
        """The sampler as one that takes these logits."""
        ...

    def replay(self, accepted: Sequence[tuple[int, int]]) -> None:
        """Of the last window's lanes that had several rows, (lane, rows that count)."""
        ...

    def fill(self, batch: Any, before: torch.Tensor) -> None:
        """The next-token layer over a prompt's rows, beside the hidden of the row before each."""
        ...

    def follow(self, rows: Sequence[Span], hidden: Hidden) -> None:
        """The same of a reply's rows, of which nothing but the cache is wanted."""
        ...

    def out(self, rows: Sequence[Span], hidden: Hidden, bases: Sequence[int] | None) -> Hidden:
        """One row a lane through the next-token layer."""
        ...


class HostPasses:
    """The passes of the CPU."""

    def __init__(
        self,
        glm: Glm,
        mtp: Mtp | None,
        proof: Proof,
        states: LaneStates,
        caches: Caches,
        tables: PageTables,
        geometry: Geometry,
        exchange: Exchange | None,
    ) -> None:
        self._glm, self._mtp, self._proof = glm, mtp, proof
        self._states, self._caches = states, caches
        self._tables, self._geometry = tables, geometry
        self._exchange = exchange
        self.owed = states.owed_host

    def weights(self) -> Iterator[Weight | HeadWeight]:
        """Every matrix."""
        yield from self._glm.weights()
        if self._mtp:
            yield from self._mtp.weights()

    def begin(self, lane: int) -> None:
        pass

    def prompt(self, chunks: Sequence[Chunk]) -> tuple[PromptBatch, torch.Tensor]:
        batch = PromptBatch.of(chunks, self._tables, self._geometry)
        if self._exchange is not None and batch.split is not None:
            self._exchange.check(batch.split.segments)
        rows = self._glm.prompt(batch, self._states, self._caches, self._proof.prompt)
        return batch, rows

    def hidden(self, rows: torch.Tensor) -> Array:
        found: Array = rows.numpy()
        return found

    def window(self, rows: Sequence[Span], asks: Sequence[Ask]) -> Window:
        tail, tiling = self._states.tails.shape[2], self._proof.window
        batch = WindowBatch.of(rows, self._tables, self._geometry, tiling, tail=tail)
        if self._exchange is not None:
            self._exchange.check(batch.segments)
        hidden = self._glm.window(batch, self._states, self._caches, tiling)
        return Window(batch.spans, hidden, self.logits(hidden[: batch.count], asks))

    def logits(self, hidden: Array, asks: Sequence[Ask]) -> Array:
        """In the tiles of a window for prompts too."""
        rows = padded(hidden, self._proof.window.pad(len(hidden)))
        return self._glm.logits(rows, self._proof.window)[: len(hidden)]

    def sampler(self, sampler: Sampler) -> Sampler:
        return sampler

    def replay(self, accepted: Sequence[tuple[int, int]]) -> None:
        self._glm.replay(accepted, self._states, self._proof.window)

    def fill(self, batch: PromptBatch, before: torch.Tensor) -> None:
        assert self._mtp is not None
        embedded, tiling = self._glm.embed(batch.tokens), self._proof.prompt
        self._mtp.fill(embedded, before, batch, self._states, self._caches, tiling)

    def follow(self, rows: Sequence[Span], hidden: Array) -> None:
        assert self._mtp is not None
        batch = self._batch(rows, None)
        embedded, tiling = self._glm.embed_host(batch.tokens), self._proof.window
        beside = padded(hidden, batch.rows)
        self._mtp.follow(embedded, beside, batch, self._states, self._caches, tiling)

    def out(self, rows: Sequence[Span], hidden: Array, bases: Sequence[int] | None) -> Array:
        assert self._mtp is not None
        batch = self._batch(rows, bases)
        embedded, tiling = self._glm.embed_host(batch.tokens), self._proof.window
        beside = padded(hidden, batch.rows)
        out = self._mtp.window(embedded, beside, batch, self._states, self._caches, tiling)
        return out[: len(rows)]

    def _batch(self, rows: Sequence[Span], bases: Sequence[int] | None) -> WindowBatch:
        return WindowBatch.of(
            rows,
            self._tables,
            self._geometry,
            self._proof.window,
            tail=self._states.tails.shape[2],
            bases=bases,
            blank=True,
        )


def padded(rows: Array, count: int) -> Array:
    """rows [N, D] and zeros -> [count, D]."""
    out = np.zeros((count, rows.shape[1]), np.float32)
    out[: len(rows)] = rows
    return out


def stacked(rows: Sequence[_Rows]) -> _Rows:
    """Rows [D] -> [N, D]."""
    if isinstance(rows[0], np.ndarray):
        return np.stack(rows)
    return torch.stack(list(rows))


def joined(parts: Sequence[_Rows]) -> _Rows:
    """Rows [N_i, D] one behind the other."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return torch.cat(list(parts))


def widened(rows: _Rows, width: int) -> _Rows:
    """A copy of rows [N, D] with zeros up to `width`: what a lane keeps of a hidden row is not
    padded."""
    if isinstance(rows, np.ndarray):
        out: Array = np.zeros((len(rows), width), np.float32)
        out[:, : rows.shape[1]] = rows
        return out
    assert rows.shape[1] == width
    return rows.clone()
