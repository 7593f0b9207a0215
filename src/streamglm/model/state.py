"""What a lane carries besides pages: KDA states, convolution rows, pools in progress, and the
projections of a verify window until its accepted rows are replayed.

Owns the tensors of all lanes, the part of them that a kept state has a copy of, and the choice
between a view and a copy of some lanes. Knows no pages and no requests. Invariant: `begin` leaves a
lane all zeros, whatever it held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from streamglm.kernels import pages
from streamglm.kernels.arguments import Array, Ids
from streamglm.pool.layout import CacheShape
from streamglm.pool.memory import HOST, Memory


@dataclass(frozen=True, slots=True)
class LaneRows:
    """The lanes of a window, in its order. Consecutive lanes are read and written in place."""

    index: Ids
    """[N]"""
    span: slice | None

    @classmethod
    def of(cls, lanes: Sequence[int]) -> LaneRows:
        first = lanes[0]
        consecutive = all(lane == first + i for i, lane in enumerate(lanes))
        span = slice(first, first + len(lanes)) if consecutive else None
        return cls(np.array(lanes), span)

    def read(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Rows of table [lanes, ...] -> [N, ...]: a view of it, or a copy."""
        return table[self.index if self.span is None else self.span]

    def write(self, table: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
        """What became of `read`'s rows, back into table; nothing to do for a view."""
        if self.span is None:
            table[self.index] = rows


class FixedParts:
    """What the next row at a page boundary reads besides pages, in `count` places: a kept state
    has one of them. At a boundary no pool is in progress, so that there is nothing else."""

    def __init__(
        self, shape: CacheShape, count: int, *, poison: bool = False, memory: Memory = HOST
    ) -> None:
        width = 3 * shape.kda_heads * shape.kda_head_dim
        fill = float("nan") if poison else 0.0
        self.kda = torch.full(
            (shape.kda_layers, count, shape.kda_heads, shape.kda_head_dim, shape.kda_head_dim),
            fill,
            device=memory.device,
        )
        """[KDA layers, places, heads, k, v]"""
        values = _Values(fill, memory)
        self.conv = values.full(shape.kda_layers, count, shape.conv_width - 1, width)
        """[KDA layers, places, conv width - 1, 3 * heads * dim], the oldest input first"""
        self.hidden = values.full(count, shape.hidden)
        """[places, hidden]: the trunk's of the last row, which the next row of the next-token layer
        pairs with its own token; no values without such a layer"""

    def copy(self, place: int, source: FixedParts, at: int) -> None:
        """What `source` has at `at`, into `place`."""
        self.kda[:, place] = source.kda[:, at]
        self.conv[:, place] = source.conv[:, at]
        self.hidden[place] = source.hidden[at]

    def parts(self, place: int) -> tuple[torch.Tensor, ...]:
        """All that is in `place`: views, in an order that `load` reads too."""
        parts = (self.kda[:, place], self.conv[:, place])
        return (*parts, self.hidden[place]) if self.hidden.shape[1] else parts

    @property
    def sections(self) -> tuple[tuple[int, int], ...]:
        """What `dump` returns: bytes of each array, and bytes of one of its values."""
        return tuple((one.nbytes, one.itemsize) for one in self.parts(0))

    def dump(self, place: int) -> list[npt.NDArray[np.uint8]]:
        """A copy of all that is in `place`, as bytes."""
        whole = torch.contiguous_format
        parts = (one.clone(memory_format=whole) for one in self.parts(place))
        return [one.view(-1).view(torch.uint8).cpu().numpy() for one in parts]

    def load(self, place: int, sections: Sequence[npt.NDArray[np.uint8]]) -> None:
        """What `dump` returned, into `place`."""
        for part, section in zip(self.parts(place), sections, strict=True):
            values = torch.from_numpy(np.require(section, requirements=["W", "A"])).view(part.dtype)
            part.copy_(values.view(part.shape))

    @property
    def bytes(self) -> int:
        """Bytes allocated."""
        return self.kda.nbytes + self.conv.nbytes + self.hidden.nbytes


class LaneStates(FixedParts):
    """What every lane of one rank carries."""

    def __init__(
        self, shape: CacheShape, lanes: int, *, poison: bool = False, memory: Memory = HOST
    ) -> None:
        super().__init__(shape, lanes, poison=poison, memory=memory)
        values = _Values(float("nan") if poison else 0.0, memory)
        self._poison = poison
        self._shape = shape
        self.pool = shape.pool
        # kernels take a row that ends a pool through the tail, where the CPU does not
        rows = max(shape.tail_rows, shape.pool) if memory.kernels else shape.tail_rows
        self.tails = values.full(shape.caches, lanes, rows, 2 * shape.index_dim)
        """[caches, lanes, tail rows, key | gate]: tokens of the pool that is not whole yet, from
        its first on, and behind them those of a window whose rows are not committed"""
        self.replay = values.full(shape.kda_layers, lanes, shape.verify_rows, shape.replay_width)
        """[KDA layers, lanes, verify rows, q | k | v | low-rank gates | beta]"""
        self.owed = values.full(lanes, shape.verify_rows, shape.hidden)
        """[lanes, verify rows, hidden]: of rows that the next-token layer has not followed yet"""
        self.tail_pages = tuple(pages.plain(tails) for tails in self.tails)
        """The same memory, cache by cache: a lane's tail is a page."""
        if memory.on_gpu or memory.kernels:
            return
        self.owed_host: Array = self.owed.numpy()
        self.kda_host: tuple[Array, ...] = tuple(self.kda.numpy())
        self.conv_host: tuple[Array, ...] = tuple(self.conv.numpy())
        """The same memory, layer by layer; the host's alone."""
        self.replay_host: tuple[Array, ...] = tuple(self.replay.numpy())

    def begin(self, lane: int) -> None:
        """The lane is blank."""
        self._fill(lane, 0.0)

    def resume(self, lane: int, parts: FixedParts, place: int) -> None:
        """The lane is what was kept in `place` of `parts`, with no pool in progress."""
        self.copy(lane, parts, place)
        self.tails[:, lane] = 0.0

    def keep_tails(self, caches: slice, lane: int, position: int, rows: int) -> None:
        """Of a window's rows from `position` on, the first `rows` are committed: the tails of
        `caches` begin with the pool that is in progress now, and what follows is nobody's."""
        base = position // self.pool * self.pool
        end = position + rows
        start = end // self.pool * self.pool
        if start > base:
            tails = self.tails[caches, lane]
            tails[:, : end - start] = tails[:, start - base : end - base].clone()

    def end(self, lane: int) -> None:
        """Nobody reads the lane until it begins again; under poison a read would show."""
        if self._poison:
            self._fill(lane, float("nan"))

    def _fill(self, lane: int, value: float) -> None:
        for table in (self.kda, self.conv, self.tails, self.replay):
            table[:, lane] = value
        self.hidden[lane] = value
        self.owed[lane] = value

    @property
    def bytes(self) -> int:
        """Bytes allocated."""
        lanes = self.tails.shape[1]
        return (
            super().bytes + lanes * self._shape.tail_bytes + self.replay.nbytes + self.owed.nbytes
        )


@dataclass(frozen=True, slots=True)
class _Values:
    """Tensors of activations, full of one value."""

    fill: float
    memory: Memory

    def full(self, *sizes: int) -> torch.Tensor:
        return torch.full(sizes, self.fill, dtype=self.memory.values, device=self.memory.device)
