"""The index tensors of a step's two passes, built whole before anything is computed.

Owns the arithmetic from (lane, position) to rows, slots, pools and tiles. Knows no weights.
Invariants: a tile of a prompt pass holds rows of one lane and starts on a multiple of 64; what is
in a batch for a row depends on the row's lane and position only, apart from where it stands.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from streamglm.kernels import indexer
from streamglm.kernels.arguments import Flags, Ids
from streamglm.kernels.tiling import Tiling
from streamglm.model.spec import ModelSpec
from streamglm.model.state import LaneRows
from streamglm.step import Chunk


@dataclass(frozen=True, slots=True)
class Geometry:
    """Numbers of pages, pools and lists that batches share, from the spec."""

    page: int
    pool: int
    tile: int
    topk: int
    """Pools that a list holds."""
    limit: int
    """Visible tokens up to which attention is dense."""
    attend: int
    """Keys merged at a time along a list."""
    dense: int
    """Keys merged at a time by a dense tile."""
    group: int
    """Pages whose pools are scored by one product."""
    null: int

    @classmethod
    def of(cls, spec: ModelSpec, null: int) -> Geometry:
        tile = spec.rows.kda_chunk
        return cls(
            page=spec.rows.page,
            pool=spec.pool,
            tile=tile,
            topk=spec.topk_pools,
            limit=spec.dense_limit,
            attend=spec.rows.attend,
            dense=min(spec.rows.attend, max(spec.dense_limit // tile * tile, tile)),
            group=max(1, spec.rows.attend // spec.rows.page),
            null=null,
        )

    def score_pages(self, length: int) -> int:
        """Pages of a row's table that scores read, for `length` visible tokens: whole groups."""
        pages = -(-(length // self.pool * self.pool) // self.page)
        return -(-pages // self.group) * self.group

    def token_lists(
        self, pools: torch.Tensor, length: torch.Tensor, tables: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`indexer.token_lists` with these numbers."""
        return indexer.token_lists(
            pools, length, tables, null=self.null, page=self.page, pool=self.pool
        )

    def row_token_lists(
        self, pools: Ids, length: Ids, tables: Ids, *, blank: bool = False
    ) -> tuple[Ids, Flags]:
        """`indexer.row_token_lists` with these numbers; `blank` caches have no row 0."""
        slots, seen = indexer.row_token_lists(
            pools, length, tables, null=self.null, page=self.page, pool=self.pool
        )
        if blank:
            first = pools[:, 0] == 0
            tail = pools.shape[1] * self.pool
            for column, rows in ((0, first), (tail, length < self.pool)):
                slots[rows, column] = self.null * self.page
                seen[rows, column] = False
        return slots, seen


class PageTables:
    """Each lane's pages in the order of its rows; null pages behind the last."""

    def __init__(self, lanes: int, geometry: Geometry) -> None:
        self._geometry = geometry
        self.host = np.full((lanes, 2 * geometry.group), geometry.null)
        """[lanes, T], at least one whole group of null pages behind a lane's last page"""
        self.table = torch.from_numpy(self.host)
        """The same memory."""

    def begin(self, lane: int, pages: Sequence[int]) -> None:
        """Lane `lane` owns `pages`."""
        g = self._geometry
        missing = (-(-len(pages) // g.group) + 1) * g.group - self.host.shape[1]
        if missing > 0:
            self.host = np.pad(self.host, ((0, 0), (0, missing)), constant_values=g.null)
            self.table = torch.from_numpy(self.host)
        self.host[lane] = g.null
        self.host[lane, : len(pages)] = pages

    def pages(self, lane: int, rows: int) -> list[int]:
        """The pages of the lane's first `rows` rows, a whole number of pages."""
        found: list[int] = self.host[lane, : rows // self._geometry.page].tolist()
        return found


@dataclass(frozen=True, slots=True)
class KeyList:
    """The keys of every row of a window while none is beyond the dense limit."""

    slots: Ids
    seen: Flags
    """[N, L]"""


class Span(Protocol):
    """Rows of one lane in a window: `tokens` stand at `position` and behind it."""

    @property
    def lane(self) -> int: ...

    @property
    def position(self) -> int: ...

    @property
    def tokens(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Depth:
    """The rows that stand at one place of their lanes' spans; of a lone lane as views."""

    rows: Ids | slice
    """Of the batch."""
    members: Ids | slice
    """Places of their lanes among the batch's lanes."""


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """N rows of some lanes, lane by lane, computed with `rows` rows."""

    rows: int
    count: int
    tokens: Ids
    """[rows]; token 0 where no lane stands."""
    lanes: LaneRows
    """Of the batch, each once."""
    spans: tuple[slice, ...]
    """Each lane's rows of the batch."""
    depths: tuple[Depth, ...]
    """One where every lane has one row."""
    lengths: Ids
    """[N]; visible tokens of each row, itself included."""
    tables: Ids
    """[N, T]"""
    slots: Ids
    """[N]; slot of each row's latent."""
    keys: KeyList | None
    """None where some row is beyond the dense limit, so that every layer selects for itself."""
    growing: Ids
    """Rows whose pool stays in progress."""
    places: Ids
    """Of each growing row in the tails, counted through the lanes."""
    closing: Ids
    """Rows whose pool is whole now."""
    closing_places: Ids
    """[closing, pool - 1]; where the tails have the tokens before each."""
    pool_slots: Ids
    """Of each closing row."""

    @classmethod
    def of(
        cls,
        spans: Sequence[Span],
        tables: PageTables,
        geometry: Geometry,
        tiling: Tiling,
        *,
        tail: int,
        bases: Sequence[int] | None = None,
        blank: bool = False,
    ) -> WindowBatch:
        """`tail`: rows of a lane's tail. `bases`: what a tail begins with, a lane; by default the
        pool of the span's first row. `blank`: the caches have no row 0."""
        g = geometry
        counts = [len(span.tokens) for span in spans]
        count = sum(counts)
        padded = tiling.pad(count)
        starts = np.cumsum([0, *counts])
        lanes = LaneRows.of([span.lane for span in spans])
        owner = np.repeat(np.arange(len(spans)), counts)
        tokens = np.zeros(padded, np.int64)
        tokens[:count] = [token for span in spans for token in span.tokens]
        first = np.array([span.position for span in spans])
        positions = first[owner] + np.arange(count) - starts[owner]
        single = count == len(spans)
        table = lanes.read(tables.host) if single else tables.host[lanes.index[owner]]
        slots = table[np.arange(count), positions // g.page] * g.page + positions % g.page
        lengths = positions + 1
        whole = lengths % g.pool == 0
        growing, closing = np.flatnonzero(~whole), np.flatnonzero(whole)
        base = first // g.pool * g.pool if bases is None else np.array(bases)
        places = lanes.index[owner] * tail + positions - base[owner]
        keys = None
        if lengths.max() <= g.limit:
            pools = np.broadcast_to(np.arange(g.topk), (count, g.topk))
            keys = KeyList(*g.row_token_lists(pools, lengths, table, blank=blank))
        return cls(
            rows=padded,
            count=count,
            tokens=tokens,
            lanes=lanes,
            spans=tuple(slice(a, b) for a, b in itertools.pairwise(starts.tolist())),
            depths=_depths(starts[:-1], np.array(counts)),
            lengths=lengths,
            tables=table,
            slots=slots,
            keys=keys,
            growing=growing,
            places=places[growing],
            closing=closing,
            closing_places=places[closing][:, None] + np.arange(1 - g.pool, 0),
            pool_slots=slots[closing] // g.pool,
        )


def _depths(starts: Ids, counts: Ids) -> tuple[Depth, ...]:
    """Rows by their place in their spans."""
    places = range(int(counts.max()))
    if len(counts) == 1:
        return tuple(Depth(slice(place, place + 1), slice(0, 1)) for place in places)
    members = [np.flatnonzero(counts > place) for place in places]
    return tuple(Depth(starts[mine] + place, mine) for place, mine in enumerate(members))


def _index(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """Where one chunk of a prompt stands in the batch."""

    lane: int
    first: int
    """Its first row of the batch."""
    rows: int
    padded: int
    start: int
    """Position of its first row."""
    last: bool

    @property
    def span(self) -> slice:
        """Its rows of the batch, padding included."""
        return slice(self.first, self.first + self.padded)


@dataclass(frozen=True, slots=True)
class DenseTiles:
    """Tiles that attend to every key before them, of one number of keys."""

    tiles: torch.Tensor
    slots: torch.Tensor
    start: torch.Tensor


@dataclass(frozen=True, slots=True)
class SelectedTile:
    """A tile whose rows attend to lists."""

    first: int
    """Its first row of the batch."""
    pages: torch.Tensor
    """[C * group]; pages whose pools are scored."""
    lengths: torch.Tensor
    """[M]; visible tokens of each row."""
    tables: torch.Tensor
    """[M, T]"""


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """Chunks of several lanes side by side, each padded to whole tiles."""

    rows: int
    tokens: torch.Tensor
    """[rows]; token 0 for padding."""
    chunks: tuple[ChunkRows, ...]
    real: torch.Tensor | None
    """Rows that are not padding; None where all are."""
    slots: torch.Tensor
    """Slot of each real row's latent."""
    pools: torch.Tensor
    """Whole pools, counted through the batch's rows."""
    pool_slots: torch.Tensor
    dense: tuple[DenseTiles, ...]
    selected: tuple[SelectedTile, ...]
    last: list[int]
    """Rows after which a token is drawn, in the step's order."""

    @classmethod
    def of(cls, chunks: Sequence[Chunk], tables: PageTables, geometry: Geometry) -> PromptBatch:
        g = geometry
        placed: list[ChunkRows] = []
        tokens: list[int] = []
        for chunk in chunks:
            rows = len(chunk.tokens)
            padded = -(-rows // g.tile) * g.tile
            placed.append(ChunkRows(chunk.lane, len(tokens), rows, padded, chunk.start, chunk.last))
            tokens.extend(chunk.tokens)
            tokens.extend([0] * (padded - rows))
        real = torch.cat([torch.arange(c.first, c.first + c.rows) for c in placed])
        slots, pools, pool_slots = _prompt_slots(placed, tables, g)
        dense, selected = _tiles(placed, tables, g)
        return cls(
            rows=len(tokens),
            tokens=torch.tensor(tokens),
            chunks=tuple(placed),
            real=real if len(real) < len(tokens) else None,
            slots=slots,
            pools=pools,
            pool_slots=pool_slots,
            dense=dense,
            selected=selected,
            last=[c.first + c.rows - 1 for c in placed if c.last],
        )


def _prompt_slots(
    chunks: Sequence[ChunkRows], tables: PageTables, g: Geometry
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Slots of the real rows, whole pools of the batch, and their slots."""
    slots, pools, pool_slots = [], [], []
    for c in chunks:
        positions = torch.arange(c.start, c.start + c.rows)
        mine = tables.table[c.lane][positions // g.page] * g.page + positions % g.page
        whole = c.rows // g.pool
        slots.append(mine)
        pools.append(torch.arange(whole) + c.first // g.pool)
        pool_slots.append(mine[: whole * g.pool : g.pool] // g.pool)
    return torch.cat(slots), torch.cat(pools), torch.cat(pool_slots)


def _tiles(
    chunks: Sequence[ChunkRows], tables: PageTables, g: Geometry
) -> tuple[tuple[DenseTiles, ...], tuple[SelectedTile, ...]]:
    """Tiles that end within the dense limit, by their number of keys; and the others."""
    dense: dict[int, list[tuple[int, torch.Tensor, int]]] = {}
    selected = []
    for c in chunks:
        table = tables.table[c.lane]
        for offset in range(0, c.padded, g.tile):
            start = c.start + offset
            if start + g.tile <= g.limit:
                keys = -(-(start + g.tile) // g.dense) * g.dense
                end = min(start + g.tile, c.start + c.rows)
                tile = (c.first + offset) // g.tile
                dense.setdefault(keys, []).append((tile, _key_slots(table, keys, end, g), start))
            else:
                selected.append(_selected(table, offset, c, g))
    groups = tuple(
        DenseTiles(
            tiles=_index([tile for tile, _, _ in group]),
            slots=torch.stack([slots for _, slots, _ in group]),
            start=_index([start for _, _, start in group]),
        )
        for group in dense.values()
    )
    return groups, tuple(selected)


def _key_slots(table: torch.Tensor, keys: int, end: int, g: Geometry) -> torch.Tensor:
    """Slots of keys 0 to `keys` - 1; the null page from `end` on."""
    positions = torch.arange(end)
    slots = torch.full((keys,), g.null * g.page)
    slots[:end] = table[positions // g.page] * g.page + positions % g.page
    return slots


def _selected(table: torch.Tensor, offset: int, c: ChunkRows, g: Geometry) -> SelectedTile:
    """The tile `offset` rows into the chunk; a row of padding sees what the last row sees."""
    end = c.start + offset + g.tile
    return SelectedTile(
        first=c.first + offset,
        pages=table[: g.score_pages(end)],
        lengths=torch.arange(end - g.tile + 1, end + 1).clamp(max=c.start + c.rows),
        tables=table.expand(g.tile, -1),
    )
