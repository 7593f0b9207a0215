"""The tiles of a prompt pass: which keys each reads, and in which region their latents lie.

Owns the arithmetic from chunks to tiles. Knows no weights and no transport. Tiles that end within
the dense limit read every key before them, the others read lists that their layer selects. Where
latent rows are split, a chunk is attended in one of two ways, and both give the same bits:

    fetched    every rank attends its own heads: the owner in its pages, the others in a history
               that the owner has packed and sent, with the chunk's rows behind it
    exchanged  the owner attends for all, tile by tile as the other ranks would
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from streamglm.model.split import Split
from streamglm.model.tables import Geometry, PageTables
from streamglm.pool.exchange import Segment


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
    latents: torch.Tensor
    """[M, T]; places of the pages' latent rows."""
    blank: int
    """The null page among those places."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Tiles that read their latents in one region."""

    dense: tuple[DenseTiles, ...]
    selected: tuple[SelectedTile, ...]


@dataclass(frozen=True, slots=True)
class FetchedChunk:
    """A chunk whose history goes from `owner` to every rank."""

    rows: ChunkRows
    owner: int
    history: torch.Tensor
    """Places of the pages with its history, at the owner; elsewhere it has none."""
    reads: Reads
    """At the owner from its own pages, elsewhere from the history."""


@dataclass(frozen=True, slots=True)
class SplitPrompt:
    """How a batch is attended where latent rows are split."""

    segments: tuple[Segment, ...]
    """Each chunk's real rows, with the owner that attends them for all; None where it fetches."""
    served: Reads
    """Of the chunks that this rank attends for all."""
    asked: torch.Tensor
    """Rows that others attend, of the batch."""
    fetched: tuple[FetchedChunk, ...]


def split_prompt(
    chunks: Sequence[ChunkRows], tables: PageTables, split: Split, g: Geometry
) -> SplitPrompt:
    """Which rank attends each chunk: its owner for all, or every rank with the owner's history."""
    rank = split.region.rank
    segments, served, asked, fetched = [], [], [torch.empty(0, dtype=torch.int64)], []
    for c in chunks:
        owner = tables.owners[c.lane]
        assert owner is not None
        if split.fetches(c.start, c.rows, owner):
            segments.append(Segment(c.rows, None))
            fetched.append(_fetched(c, owner, tables, split, g))
            continue
        segments.append(Segment(c.rows, owner))
        if owner == rank:
            served.append(c)
        else:
            asked.append(torch.arange(c.first, c.first + c.rows))
    reads = reads_of(served, tables.places, g.blank, tables, g)
    return SplitPrompt(tuple(segments), reads, torch.cat(asked), tuple(fetched))


def _fetched(
    c: ChunkRows, owner: int, tables: PageTables, split: Split, g: Geometry
) -> FetchedChunk:
    if owner == split.region.rank:
        history = tables.places[c.lane, : -(-c.start // g.page)]
        reads = reads_of([c], tables.places, g.blank, tables, g)
    else:
        history = tables.places[c.lane, :0]
        packed = torch.arange(split.history_pages).expand(c.lane + 1, -1)
        reads = reads_of([c], packed, split.history_pages, tables, g)
    return FetchedChunk(c, owner, history, reads)


def reads_of(
    chunks: Sequence[ChunkRows], places: torch.Tensor, blank: int, tables: PageTables, g: Geometry
) -> Reads:
    """Tiles that end within the dense limit, by their number of keys; and the others. `places`
    [lanes, T] are those of latent rows, and `blank` is the null page's."""
    dense: dict[int, list[tuple[int, torch.Tensor, int]]] = {}
    selected = []
    for c in chunks:
        for offset in range(0, c.padded, g.tile):
            start = c.start + offset
            if start + g.tile <= g.limit:
                keys = -(-(start + g.tile) // g.dense) * g.dense
                end = min(start + g.tile, c.start + c.rows)
                tile = (c.first + offset) // g.tile
                slots = _key_slots(places[c.lane], blank, keys, end, g)
                dense.setdefault(keys, []).append((tile, slots, start))
            else:
                table = tables.table[c.lane]
                selected.append(_selected(table, places[c.lane], blank, offset, c, g))
    groups = tuple(
        DenseTiles(
            tiles=_index([tile for tile, _, _ in group]),
            slots=torch.stack([slots for _, slots, _ in group]),
            start=_index([start for _, _, start in group]),
        )
        for group in dense.values()
    )
    return Reads(groups, tuple(selected))


def _key_slots(places: torch.Tensor, blank: int, keys: int, end: int, g: Geometry) -> torch.Tensor:
    """Slots of keys 0 to `keys` - 1; the null page from `end` on."""
    positions = torch.arange(end)
    slots = torch.full((keys,), blank * g.page)
    slots[:end] = places[positions // g.page] * g.page + positions % g.page
    return slots


def _selected(
    table: torch.Tensor, places: torch.Tensor, blank: int, offset: int, c: ChunkRows, g: Geometry
) -> SelectedTile:
    """The tile `offset` rows into the chunk; a row of padding sees what the last row sees."""
    end = c.start + offset + g.tile
    return SelectedTile(
        first=c.first + offset,
        pages=table[: g.score_pages(end)],
        lengths=torch.arange(end - g.tile + 1, end + 1).clamp(max=c.start + c.rows),
        latents=places.expand(g.tile, -1),
        blank=blank,
    )


def _index(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)
