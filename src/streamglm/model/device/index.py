"""The index tensors of both passes as kernels take them: int32 on the device.

Owns their form and their way there. Chunks, slots, pools and tails are those of `model/batch.py`,
which has a window's for the CPU; here they are computed for all rows at once, in as few calls as
can be, for a GPU waits meanwhile. What stands for nothing is -1, and a lane of no rows moves
nothing, so a window of fewer rows than its buffers have leaves no trace of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from streamglm.kernels.arguments import Ids
from streamglm.model.batch import PromptBatch, Span
from streamglm.model.device.draws import signed
from streamglm.model.reads import ChunkRows
from streamglm.model.tables import Geometry, PageTables
from streamglm.step import Draw

SCORES = 1 << 26
"""Scores that a prompt's layer holds at once: more rows are scored in several turns."""


@dataclass(frozen=True, slots=True)
class DenseRead:
    """Whole tiles that attend to every key before them."""

    rows: slice
    tables: torch.Tensor
    """[T, pages]"""
    start: torch.Tensor
    counts: torch.Tensor
    """[T]; position of a tile's first row, and its rows that are not padding"""


@dataclass(frozen=True, slots=True)
class SelectedRead:
    """Rows that attend to lists."""

    rows: slice
    tables: torch.Tensor
    """[G, pages], a tile each"""
    row_tables: torch.Tensor
    """[M, pages]"""
    lengths: torch.Tensor
    visible: torch.Tensor
    """[M]; tokens and whole pools that a row sees"""
    pools: int
    """Columns of the scores."""


@dataclass(frozen=True, slots=True)
class PromptIndex:
    """`PromptBatch` on the device."""

    rows: int
    tokens: torch.Tensor
    """[rows] int64"""
    chunks: tuple[ChunkRows, ...]
    last: list[int]
    slots: torch.Tensor
    """[rows]; -1 for padding"""
    members: torch.Tensor
    """[P, pool]; rows of each whole pool"""
    pool_slots: torch.Tensor
    lanes: torch.Tensor
    """[N, 3]; a chunk's first row, its rows, its lane"""
    most: int
    """Rows of the longest chunk."""
    kda_chunks: torch.Tensor
    """[C, 2]; first row, rows"""
    kda_lanes: torch.Tensor
    """[N, 3]; first of `kda_chunks`, how many, lane"""
    reads: tuple[DenseRead | SelectedRead, ...]
    """In the order of the rows, all of them."""
    left: torch.Tensor
    """Rows of pools in progress at the ends of chunks, int64."""
    left_places: torch.Tensor
    """Of each in the tails, counted through the lanes, int64."""

    @classmethod
    def of(
        cls,
        batch: PromptBatch,
        tables: PageTables,
        geometry: Geometry,
        device: torch.device,
        *,
        tail: int,
    ) -> PromptIndex:
        """`tail`: rows of a lane's tail."""
        g = geometry
        slots = torch.full((batch.rows,), -1)
        slots[slice(None) if batch.real is None else batch.real] = batch.slots
        left: list[int] = []
        places: list[int] = []
        pieces: list[tuple[int, int]] = []
        lanes, kda_lanes = [], []
        for c in batch.chunks:
            lanes.append((c.first, c.rows, c.lane))
            kda_lanes.append((len(pieces), -(-c.rows // g.tile), c.lane))
            pieces.extend(
                (c.first + at, min(g.tile, c.rows - at)) for at in range(0, c.rows, g.tile)
            )
            rest = c.rows % g.pool
            left.extend(range(c.first + c.rows - rest, c.first + c.rows))
            places.extend(range(c.lane * tail, c.lane * tail + rest))
        reads = [read for c in batch.chunks for read in _reads(c, tables, g, device)]

        def there(values: torch.Tensor | Sequence[object]) -> torch.Tensor:
            return torch.as_tensor(values, dtype=torch.int32).to(device)

        return cls(
            rows=batch.rows,
            tokens=batch.tokens.to(device),
            chunks=batch.chunks,
            last=batch.last,
            slots=there(slots),
            members=there(batch.pools[:, None] * g.pool + torch.arange(g.pool)),
            pool_slots=there(batch.pool_slots),
            lanes=there(lanes),
            most=max(c.rows for c in batch.chunks),
            kda_chunks=there(pieces),
            kda_lanes=there(kda_lanes),
            reads=tuple(reads),
            left=torch.tensor(left, dtype=torch.int64).to(device),
            left_places=torch.tensor(places, dtype=torch.int64).to(device),
        )


def _reads(
    c: ChunkRows, tables: PageTables, g: Geometry, device: torch.device
) -> list[DenseRead | SelectedRead]:
    """A chunk's tiles within the dense limit, then the others in turns of few enough scores."""
    tiles = c.padded // g.tile
    dense = min(tiles, max(0, (g.limit - c.start) // g.tile))
    table = tables.table[c.lane]
    found: list[DenseRead | SelectedRead] = []
    if dense:
        end = c.start + dense * g.tile
        start = torch.arange(c.start, end, g.tile, dtype=torch.int32)
        counts = (c.start + c.rows - start).clamp(0, g.tile)
        pages = table[: -(-end // g.page)].to(device, torch.int32)
        found.append(
            DenseRead(
                rows=slice(c.first, c.first + dense * g.tile),
                tables=pages.expand(dense, -1).contiguous(),
                start=start.to(device),
                counts=counts.to(device),
            )
        )
    at = dense
    while at < tiles:
        pools = g.score_pages(c.start + c.padded) * g.page // g.pool
        count = min(tiles - at, max(1, SCORES // (pools * g.tile)))
        found.append(_selected(c, table, at, count, pools, g, device))
        at += count
    return found


def _selected(
    c: ChunkRows,
    table: torch.Tensor,
    first: int,
    tiles: int,
    pools: int,
    g: Geometry,
    device: torch.device,
) -> SelectedRead:
    start, count = first * g.tile, tiles * g.tile
    lengths = torch.arange(c.start + start + 1, c.start + start + count + 1, dtype=torch.int32)
    lengths = lengths.clamp(max=c.start + c.rows)
    pages = table[: pools * g.pool // g.page].to(device, torch.int32)
    return SelectedRead(
        rows=slice(c.first + start, c.first + start + count),
        tables=pages.expand(tiles, -1).contiguous(),
        row_tables=pages.expand(count, -1).contiguous(),
        lengths=lengths.to(device),
        visible=(lengths // g.pool).to(device),
        pools=pools,
    )


@dataclass(frozen=True, slots=True)
class WindowIndex:
    """R rows of a window, or fewer and rows of nobody behind them."""

    tokens: torch.Tensor
    lengths: torch.Tensor
    visible: torch.Tensor
    """[R]; whole pools that a row sees"""
    slots: torch.Tensor
    places: torch.Tensor
    """[R]; of each row in the tails, counted through the lanes"""
    members: torch.Tensor
    """[R, pool]; places in the tails of the pool that a row closes"""
    pool_slots: torch.Tensor
    """[R]; -1 for a row that closes none"""
    row_lanes: torch.Tensor
    """[R]"""
    lanes: torch.Tensor
    """[R, 3]; first row, rows, lane"""
    numbers: torch.Tensor
    """[R, 3] float64: temperature, top_p, min_p"""
    counts: torch.Tensor
    """[R, 3] int64: seed, position, top_k"""
    table: torch.Tensor
    """[lanes, pages] of every lane"""
    pools: int
    """Pools that are scored at most; 0 while every row sees all of its tokens."""
    verify: bool
    """Whether some lane has several rows, so that states do not move."""


@dataclass(frozen=True, slots=True)
class WindowRows:
    """N rows of some lanes, lane by lane."""

    tokens: list[int]
    lanes: list[tuple[int, int, int]]
    """Each lane's first row, its rows, and the lane."""
    row_lanes: Ids
    positions: Ids
    bases: Ids
    """[N]; of each row, where the tail of its lane begins"""
    most: int
    """Tokens that the longest row sees."""

    @classmethod
    def of(cls, spans: Sequence[Span], pool: int, bases: Sequence[int] | None) -> WindowRows:
        """`bases`: what a tail begins with, a lane; by default the pool of the span's first row."""
        tokens: list[int] = []
        lanes: list[tuple[int, int, int]] = []
        most = 0
        for span in spans:
            mine = span.tokens
            lanes.append((len(tokens), len(mine), span.lane))
            tokens += mine
            most = max(most, span.position + len(mine))
        of_lane = np.array([lane for _, _, lane in lanes])
        positions = np.array([span.position for span in spans])
        base = positions // pool * pool if bases is None else np.array(bases)
        if len(tokens) > len(lanes):
            table = np.array(lanes)
            owner = np.repeat(np.arange(len(lanes)), table[:, 1])
            positions = positions[owner] + np.arange(len(tokens)) - table[owner, 0]
            of_lane, base = of_lane[owner], base[owner]
        return cls(tokens, lanes, of_lane, positions, base, most)


class WindowBuffers:
    """The memory of windows of up to `rows` rows, on the device and as the host writes it."""

    def __init__(self, rows: int, pool: int, device: torch.device) -> None:
        self.rows = rows
        self._parts = (
            ("numbers", 3 * rows, np.float64),
            ("counts", 3 * rows, np.int64),
            *((name, rows, np.int32) for name in _ROWS),
            ("members", pool * rows, np.int32),
            ("lanes", 3 * rows, np.int32),
        )
        size = sum(count * np.dtype(kind).itemsize for _, count, kind in self._parts)
        on_gpu = device.type == "cuda"
        self._staged = torch.zeros(size, dtype=torch.uint8, pin_memory=on_gpu)
        self._device = torch.zeros(size, dtype=torch.uint8, device=device)
        self._tokens = torch.zeros(rows, dtype=torch.int64, pin_memory=on_gpu)
        self._drawn: np.ndarray = self._tokens.numpy()
        self._copied = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
        self._settled = True
        self._bytes: np.ndarray = self._staged.numpy()
        self._host, self._there = self._views()
        for name, values in self._host.items():
            values[:] = -1 if name in ("slots", "places", "pool_slots") else 0
        self._nobody = self._bytes.copy()
        self._before = np.arange(1 - pool, 1)

    def _views(self) -> tuple[dict[str, np.ndarray], dict[str, torch.Tensor]]:
        """Each part as the host writes it and as kernels read it."""
        host, there, at = {}, {}, 0
        for name, count, kind in self._parts:
            end = at + count * np.dtype(kind).itemsize
            shape = (self.rows,) if name in _ROWS else (self.rows, -1)
            host[name] = self._bytes[at:end].view(kind).reshape(shape)
            there[name] = self._device[at:end].view(_TORCH[kind]).view(shape)
            at = end
        return host, there

    def index(self, table: torch.Tensor, pools: int, verify: bool) -> WindowIndex:
        """What the kernels read: the same memory at every call."""
        return WindowIndex(**self._there, table=table, pools=pools, verify=verify)

    def idle(self) -> None:
        """Rows of nobody: a pass over them leaves no trace."""
        self._bytes[:] = self._nobody

    def fill(self, rows: WindowRows, tables: PageTables, geometry: Geometry, tail: int) -> None:
        """Where `rows` stand; `tail`: rows of a lane's tail."""
        self.idle()
        host, n, g = self._host, len(rows.tokens), geometry
        positions, lanes = rows.positions, rows.row_lanes
        lengths = positions + 1
        page, within = np.divmod(positions, g.page)
        slots = tables.host[lanes, page] * g.page + within
        places = lanes * tail + positions - rows.bases
        visible, over = np.divmod(lengths, g.pool)
        closing = over == 0
        host["tokens"][:n] = rows.tokens
        host["lengths"][:n] = lengths
        host["visible"][:n] = visible
        host["slots"][:n] = slots
        host["places"][:n] = places
        host["pool_slots"][:n] = np.where(closing, slots // g.pool, -1)
        host["row_lanes"][:n] = lanes
        host["members"][:n] = (places[:, None] + self._before) * closing[:, None]
        host["lanes"][: len(rows.lanes)] = rows.lanes

    def draw(self, draws: Sequence[tuple[Draw, int]]) -> None:
        """How the rows draw that were filled in: (draw, position) each."""
        numbers = [(draw.temperature, draw.top_p, draw.min_p) for draw, _ in draws]
        counts = [(signed(draw.seed), position, draw.top_k) for draw, position in draws]
        self._host["numbers"][: len(draws)] = numbers
        self._host["counts"][: len(draws)] = counts

    def load(self) -> None:
        """The one copy of a window to the device."""
        self._device.copy_(self._staged, non_blocking=True)
        self._copying()

    def ask(self, tokens: torch.Tensor) -> None:
        """Have the tokens [R] int64 that a window draws brought to the host, where it ends."""
        self._tokens.copy_(tokens, non_blocking=True)
        self._copying()

    def told(self) -> list[int]:
        """What was asked for: the one wait of a window."""
        self.settle()
        found: list[int] = self._drawn.tolist()
        return found

    def settle(self) -> None:
        """Wait until the last copies are through: the host's memory may be written and read."""
        if self._copied is not None and not self._settled:
            self._copied.synchronize()
        self._settled = True

    def _copying(self) -> None:
        self._settled = False
        if self._copied is not None:
            self._copied.record()


_ROWS = ("tokens", "lengths", "visible", "slots", "places", "pool_slots", "row_lanes")
_TORCH = {np.float64: torch.float64, np.int64: torch.int64, np.int32: torch.int32}
