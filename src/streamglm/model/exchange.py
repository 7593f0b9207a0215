"""Latent rows and queries between ranks: a lane's owner attends for all, or lends its history.

Owns the room: one memory, made once, that holds the queries and outputs of the other ranks in an
exchange, the history in a fetch, and a piece at a time in a carry. Knows no weights; who sends what
to whom is computed elsewhere, alike on every rank (`pool/exchange.py`, `pool/carry.py`). Invariant:
a row's output has the bits that its own rank would have computed, because the owner hands the same
operator the same queries in the same shape, blank heads included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from streamglm.kernels import page_write
from streamglm.kernels.arguments import Array
from streamglm.kernels.pages import FLOAT8, Pages, bits
from streamglm.model.batch import PromptBatch, WindowBatch
from streamglm.model.peers import Peers
from streamglm.model.reads import FetchedChunk, Reads
from streamglm.model.split import Split
from streamglm.pool import exchange
from streamglm.pool.carry import Carried, Piece, carried, pieces
from streamglm.pool.exchange import Part, Segment, slot_of
from streamglm.pool.tensors import Raw
from streamglm.step import Carry

Pair = tuple[torch.Tensor, torch.Tensor]
"""Queries [rows, heads, dim], and where their outputs go."""

Attend = Callable[[Reads, Pages, Sequence[Pair]], None]
"""One layer's tiles over latents, for the queries of one rank or of several."""


class Exchange:
    """This rank's end of it; `latents` are pages as every latent cache has them."""

    def __init__(
        self,
        split: Split,
        peers: Peers,
        latents: Pages,
        *,
        poison: bool = False,
    ) -> None:
        self.sent: Counter[str] = Counter()
        """Bytes that this rank has sent: exchange, fetch, carry."""
        self._split = split
        self._peers = peers
        self._dim = latents.dim
        self._poison = poison
        assert split.room.row_bytes == latents.dim * torch.float32.itemsize
        self._memory, self._history = _room(split, latents)
        self.carry_bytes = split.room.bytes
        """Of a piece of a carry at most; the same on every rank."""

    @property
    def rank(self) -> int:
        return self._split.region.rank

    @property
    def bytes(self) -> int:
        """Bytes of the room."""
        return self._memory.nbytes

    def check(self, segments: Sequence[Segment]) -> None:
        """Raise `KvSplitRoom` unless a pass fits the room. Every rank asks before it computes, and
        all get the same answer."""
        self._split.room.check(segments)

    # -- rows of a window

    def window(
        self, batch: WindowBatch, queries: Array, attend: Callable[[Array], Array], out: Array
    ) -> None:
        """queries [rows, heads, dim] of this rank -> `out`. `attend` is for the rows `batch.mine`:
        [M, heads, dim] -> the same shape."""
        n, mine = batch.count, batch.mine
        asked = self._ask(batch.segments, torch.from_numpy(queries[:n]))
        answers = {}
        if len(mine):
            out[mine] = attend(queries[mine])
            for peer, theirs in asked.items():
                answer = np.zeros_like(out[:n])
                answer[mine] = attend(theirs.numpy()[mine])
                answers[peer] = torch.from_numpy(answer)
        self._answer(batch.segments, answers, torch.from_numpy(out[:n]))

    # -- chunks of prompts

    def prompt(
        self,
        batch: PromptBatch,
        cache: Pages,
        latents: torch.Tensor,
        queries: torch.Tensor,
        out: torch.Tensor,
        attend: Attend,
    ) -> None:
        """queries [rows, heads, dim] of this rank -> `out`, and `latents` [rows, dim] are those of
        the same rows, which the owner has in `cache` by now."""
        split = batch.split
        assert split is not None
        if any(segment.owner is not None for segment in split.segments):
            self._exchanged(batch, cache, queries, out, attend)
        for chunk in split.fetched:
            attend(chunk.reads, self._fetched(chunk, cache, latents), [(queries, out)])

    def _exchanged(
        self,
        batch: PromptBatch,
        cache: Pages,
        queries: torch.Tensor,
        out: torch.Tensor,
        attend: Attend,
    ) -> None:
        split = batch.split
        assert split is not None
        real = batch.real
        mine = queries if real is None else queries.index_select(0, real)
        asked = self._ask(split.segments, mine)
        answers = {}
        if split.served.dense or split.served.selected:
            pairs = [(queries, out)]
            for theirs in asked.values():
                placed = _placed(theirs, real, batch.rows)
                pairs.append((placed, torch.zeros_like(placed)))
            attend(split.served, cache, pairs)
            for peer, (_, found) in zip(asked, pairs[1:], strict=True):
                answers[peer] = found if real is None else found.index_select(0, real)
        found = torch.zeros_like(mine)
        self._answer(split.segments, answers, found)
        found = _placed(found, real, batch.rows)
        out.index_copy_(0, split.asked, found.index_select(0, split.asked))

    def _fetched(self, chunk: FetchedChunk, cache: Pages, latents: torch.Tensor) -> Pages:
        """Where this rank finds the chunk's history and its own rows behind it."""
        rows, history, pages = chunk.rows, self._history, len(chunk.history)
        own = chunk.owner == self.rank
        if self._poison:
            self._memory.fill_(0xFF)
        if pages:
            np.take(cache.host, chunk.history.numpy(), 0, history.host[:pages])
            if cache.host_scales is not None and history.host_scales is not None:
                scales = history.host_scales[:pages]
                np.take(cache.host_scales, chunk.history.numpy(), 0, scales)
        if rows.start:
            self._spread(history.values.view(-1, self._dim)[: rows.start], chunk.owner)
            if history.scales is not None:
                self._spread(history.scales.view(-1)[: rows.start], chunk.owner)
        if own:
            return cache
        bits(history.values)[-1] = 0
        if history.scales is not None:
            history.scales[-1] = 0.0
        slots = torch.arange(rows.start, rows.start + rows.rows)
        page_write.page_write(history, slots, latents[rows.first : rows.first + rows.rows])
        return history

    # -- rows of a kept state

    def carry(self, carry: Carry, table: torch.Tensor, places: Sequence[int]) -> None:
        """This rank's part of a carry: out of, or into, the pages `places` of table [caches, P,
        bytes of a page]. A rank that is neither home nor owner has none."""
        cut = pieces(len(table), len(carry.pages), table.shape[2], self.carry_bytes)
        part = carried(self.rank, carry.home, carry.owner, cut)
        if part is None:
            return
        for piece in part.pieces:
            self._carry(part, piece, table, list(places[piece.first : piece.stop]))

    def _carry(self, part: Carried, piece: Piece, table: torch.Tensor, rows: list[int]) -> None:
        span = slice(piece.start, piece.end)
        room = self._memory[: piece.bytes].view(len(rows), -1)
        if part.sends:
            room.copy_(table[piece.cache, rows, span])
            self._trade("carry", [(part.peer, room)], [])
        else:
            self._trade("carry", [], [(part.peer, room)])
            table[piece.cache, rows, span] = room

    def bring(self, pages: Sequence[int], read: Sequence[list[Raw]], size: int) -> list[list[Raw]]:
        """What this rank has read of `pages`, with latent rows from whoever has them where it owns
        the pages, `size` bytes of each: a rank's record has those that it owned when it wrote."""
        owner = self._split.region.owner(pages)
        assert owner is not None
        has = np.array([[len(latents) > 0] for latents, _ in read], np.float32)
        known = self._peers.join(has, [1] * self._peers.world)
        sends, receives, found = [], [], list(read)
        for place, ranks in enumerate(known):
            assert ranks.any(), f"no rank has read the latent rows of page {pages[place]}"
            home = int(ranks.argmax())
            if ranks[owner] or self.rank not in (home, owner):
                continue
            latents, keys = read[place]
            if self.rank == home:
                sends.append((owner, torch.from_numpy(latents.copy())))
            else:
                latents = np.empty(size, np.uint8)
                receives.append((home, torch.from_numpy(latents)))
                found[place] = [latents, keys]
        self._trade("carry", sends, receives)
        return found

    # -- the wire

    def _ask(self, segments: Sequence[Segment], queries: torch.Tensor) -> dict[int, torch.Tensor]:
        """queries [rows, heads, dim] of the pass to the owners of their rows -> those of each other
        rank, in the same rows and shape; only the rows that this rank owns are there."""
        self.check(segments)
        split = self._split
        group = exchange.queries(segments, split.shares, split.region.rank)
        self._trade(
            "exchange",
            [(part.peer, _rows(queries, part).contiguous()) for part in group.sends],
            [(part.peer, self._part(part, 0)) for part in group.receives],
        )
        heads, count = queries.shape[1], len(queries)
        return {
            peer: _widened(self._slot(peer, split.shares[peer], 0)[:count], heads)
            for peer in dict.fromkeys(part.peer for part in group.receives)
        }

    def _answer(
        self,
        segments: Sequence[Segment],
        answers: Mapping[int, torch.Tensor],
        out: torch.Tensor,
    ) -> None:
        """`answers` to each rank that asked, and what others answer into `out`."""
        group = exchange.outputs(segments, self._split.shares, self.rank)
        received = [(part, self._part(part, 1)) for part in group.receives]
        self._trade(
            "exchange",
            [(part.peer, _rows(answers[part.peer], part).contiguous()) for part in group.sends],
            [(part.peer, room) for part, room in received],
        )
        for part, room in received:
            _rows(out, part).copy_(room)

    def _slot(self, peer: int, heads: int, kind: int) -> torch.Tensor:
        """The room of one rank's queries (0) or outputs (1): [rows, heads, dim]."""
        room = self._split.room
        number = kind * (room.world - 1) + slot_of(self.rank, peer)
        start = number * room.slot_bytes
        memory = self._memory[start : start + room.rows * heads * room.row_bytes]
        return memory.view(torch.float32).view(room.rows, heads, self._dim)

    def _part(self, part: Part, kind: int) -> torch.Tensor:
        """Where a part that is received lies in the room."""
        return self._slot(part.peer, part.heads, kind)[part.first : part.first + part.rows]

    def _trade(
        self,
        kind: str,
        sends: Sequence[tuple[int, torch.Tensor]],
        receives: Sequence[tuple[int, torch.Tensor]],
    ) -> None:
        self._peers.trade(sends, receives)
        self.sent[kind] += sum(tensor.nbytes for _, tensor in sends)

    def _spread(self, rows: torch.Tensor, owner: int) -> None:
        self._peers.spread(rows, owner)
        if owner == self.rank:
            self.sent["fetch"] += rows.nbytes * (self._split.region.world - 1)


def _rows(table: torch.Tensor, part: Part) -> torch.Tensor:
    """A part's rows and heads of table [rows, heads, dim]: a view."""
    return table[part.first : part.first + part.rows, : part.heads]


def _widened(queries: torch.Tensor, heads: int) -> torch.Tensor:
    """queries [rows, H, dim] with blank heads behind them, as their own rank has them."""
    missing = heads - queries.shape[1]
    return torch.nn.functional.pad(queries, (0, 0, 0, missing)) if missing else queries


def _placed(rows: torch.Tensor, real: torch.Tensor | None, count: int) -> torch.Tensor:
    """The real rows of a pass among `count`, padding being zeros."""
    if real is None:
        return rows
    return rows.new_zeros(count, *rows.shape[1:]).index_copy_(0, real, rows)


def _room(split: Split, latents: Pages) -> tuple[torch.Tensor, Pages]:
    """Memory [bytes] of the room, and the history in the same memory: pages like `latents`, the
    null page behind them."""
    count, rows, dim = split.history_pages + 1, latents.rows, latents.dim
    dtype = latents.values.dtype
    end = count * rows * dim * dtype.itemsize
    scales_end = end + (count * rows * 4 if dtype == FLOAT8 else 0)
    memory = torch.zeros(max(split.room.bytes, scales_end), dtype=torch.uint8)
    values = memory[:end].view(dtype).view(count, rows, dim)
    scales = (
        memory[end:scales_end].view(torch.float32).view(count, rows) if dtype == FLOAT8 else None
    )
    return memory, Pages(
        values=values,
        scales=scales,
        host=bits(values).numpy(),
        host_scales=None if scales is None else scales.numpy(),
    )
