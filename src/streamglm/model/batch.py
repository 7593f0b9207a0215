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

from streamglm.kernels.arguments import Flags, Ids
from streamglm.kernels.tiling import Tiling
from streamglm.model.reads import ChunkRows, Reads, SplitPrompt, reads_of, split_prompt
from streamglm.model.state import LaneRows
from streamglm.model.tables import Geometry, PageTables
from streamglm.pool.exchange import Segment
from streamglm.step import Chunk


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
    latents: Ids
    """[N, T]; places of the pages' latent rows: the same array, unless they are split."""
    slots: Ids
    """[N]; slot of each row's latent."""
    segments: tuple[Segment, ...]
    """Each lane's rows with their owner; empty unless latent rows are split."""
    mine: Ids
    """Rows that this rank attends for: all, or those of lanes that it owns."""
    keys: KeyList | None
    """Of those rows; None where some is beyond the dense limit, so that every layer selects for
    itself."""
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
        at, offset = (np.arange(count), positions // g.page), positions % g.page
        pool_slots = slots = table[at] * g.page + offset
        latents = table
        segments: tuple[Segment, ...] = ()
        mine = at[0]
        if tables.split is not None:
            latents = tables.places_host[lanes.index[owner]]
            slots = latents[at] * g.page + offset
            segments = tuple(
                Segment(rows, tables.owners[span.lane])
                for rows, span in zip(counts, spans, strict=True)
            )
            own = [segment.owner == tables.split.region.rank for segment in segments]
            mine = np.flatnonzero(np.repeat(own, counts))
        lengths = positions + 1
        whole = lengths % g.pool == 0
        growing, closing = np.flatnonzero(~whole), np.flatnonzero(whole)
        base = first // g.pool * g.pool if bases is None else np.array(bases)
        places = lanes.index[owner] * tail + positions - base[owner]
        keys = None
        if lengths.max() <= g.limit:
            pools = np.broadcast_to(np.arange(g.topk), (len(mine), g.topk))
            keys = KeyList(*g.row_token_lists(pools, lengths[mine], latents[mine], blank=blank))
        return cls(
            rows=padded,
            count=count,
            tokens=tokens,
            lanes=lanes,
            spans=tuple(slice(a, b) for a, b in itertools.pairwise(starts.tolist())),
            depths=_depths(starts[:-1], np.array(counts)),
            lengths=lengths,
            tables=table,
            latents=latents,
            slots=slots,
            segments=segments,
            mine=mine,
            keys=keys,
            growing=growing,
            places=places[growing],
            closing=closing,
            closing_places=places[closing][:, None] + np.arange(1 - g.pool, 0),
            pool_slots=pool_slots[closing] // g.pool,
        )


def _depths(starts: Ids, counts: Ids) -> tuple[Depth, ...]:
    """Rows by their place in their spans."""
    places = range(int(counts.max()))
    if len(counts) == 1:
        return tuple(Depth(slice(place, place + 1), slice(0, 1)) for place in places)
    members = [np.flatnonzero(counts > place) for place in places]
    return tuple(Depth(starts[mine] + place, mine) for place, mine in enumerate(members))


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
    reads: Reads
    """Every tile, of the rank's own heads; empty where latent rows are split."""
    split: SplitPrompt | None
    last: list[int]
    """Rows after which a token is drawn, in the step's order."""

    @classmethod
    def of(
        cls,
        chunks: Sequence[Chunk],
        tables: PageTables,
        geometry: Geometry,
        *,
        reads: bool = True,
    ) -> PromptBatch:
        """Without `reads` tiles are left to the caller."""
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
        split = None if tables.split is None else split_prompt(placed, tables, tables.split, g)
        return cls(
            rows=len(tokens),
            tokens=torch.tensor(tokens),
            chunks=tuple(placed),
            real=real if len(real) < len(tokens) else None,
            slots=slots,
            pools=pools,
            pool_slots=pool_slots,
            reads=reads_of(
                placed if reads and split is None else [], tables.places, g.blank, tables, g
            ),
            split=split,
            last=[c.first + c.rows - 1 for c in placed if c.last],
        )


def _prompt_slots(
    chunks: Sequence[ChunkRows], tables: PageTables, g: Geometry
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Slots of the real rows' latents, whole pools of the batch, and their slots."""
    slots, pools, pool_slots = [], [], []
    for c in chunks:
        positions = torch.arange(c.start, c.start + c.rows)
        page, offset = positions // g.page, positions % g.page
        whole = c.rows // g.pool
        slots.append(tables.places[c.lane][page] * g.page + offset)
        pools.append(torch.arange(whole) + c.first // g.pool)
        mine = tables.table[c.lane][page] * g.page + offset
        pool_slots.append(mine[: whole * g.pool : g.pool] // g.pool)
    return torch.cat(slots), torch.cat(pools), torch.cat(pool_slots)
