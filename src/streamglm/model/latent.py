"""A layer that attends to latents: projections, paged rows, indexer, attention in latent space.

Owns the layer's weights, and where its rows, pooled keys and pools in progress go. Knows pages as
slots only. Shapes: x and the result are [rows, hidden padded].

Several ranks divide the heads, and one sum over the ranks takes what comes out of them; latents,
index keys and selection are the same bits on all of them. A rank with fewer heads than the most has
blank ones behind its own. Where one rank has a lane's latent rows, an `Exchange` attends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from streamglm.kernels import indexer, latent_attention, layer_norm, linear, page_write, rms_norm
from streamglm.kernels.arguments import Array, Flags, Ids, Rows
from streamglm.kernels.linear import HeadWeight, Weight
from streamglm.kernels.pages import Pages, read_pages, read_pages_host
from streamglm.kernels.tiling import Tiling
from streamglm.model.batch import PromptBatch, WindowBatch
from streamglm.model.caches import Caches
from streamglm.model.exchange import Exchange, Pair
from streamglm.model.params import Params, fuse, padded, up
from streamglm.model.peers import Peers
from streamglm.model.reads import Reads, SelectedTile
from streamglm.model.share import Share
from streamglm.model.spec import ModelSpec
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry

INDEX_NORM_EPS = 1e-6
"""Of the indexer's layer norm, whatever `rms_norm_eps` is."""


class _Parts(NamedTuple):
    """Columns of the fused projection of x."""

    q: slice
    latent: slice
    key: slice
    gate: slice
    weight: slice


class LatentLayer:
    """`cache` is the layer's place among the latent caches. A `blank` layer has no row 0: it is
    never attended to, and the key of pool 0 comes from rows 1 to `pool` - 1."""

    def __init__(
        self,
        share: Share,
        params: Params,
        cache: int,
        hidden: int,
        geometry: Geometry,
        peers: Peers,
        exchange: Exchange | None = None,
        *,
        blank: bool = False,
    ) -> None:
        spec, own = share.held, share.heads.size
        self.cache = cache
        self._peers = peers
        self._exchange = exchange
        self._blank = blank
        self._geometry = geometry
        self._spec = spec
        index = params.under("indexer")
        self._load_in(spec, params, index, hidden)
        self._load_queries(spec, params, index, own)
        self._load_values(spec, params, hidden, own)
        self._index_norm = layer_norm.prepare(
            index.take("k_norm.weight", spec.index_dim),
            index.take("k_norm.bias", spec.index_dim),
            INDEX_NORM_EPS,
        )
        self._pool = indexer.prepare(
            index.take("index_kpool_compress_ape", spec.pool, spec.index_dim)
        )

    def _load_in(self, spec: ModelSpec, params: Params, index: Params, hidden: int) -> None:
        """q_a | kv_a | wk | compress gate | head weights, all of x."""
        # A score is sum_h w_h relu(q_h . k / sqrt(dim)) / sqrt(heads): both factors are above 0,
        # so they move into w.
        scale = (spec.index_dim * spec.index_heads) ** -0.5
        h, rank, latent = spec.hidden_size, spec.q_lora_rank, spec.kv_lora_rank
        weights = [
            params.take("q_a_proj.weight", rank, h),
            params.take("kv_a_proj_with_mqa.weight", latent, h),
            index.take("wk.weight", spec.index_dim, h),
            index.take("index_kpool_compress_gate", spec.index_dim, h),
            index.take("weights_proj.weight", spec.index_heads, h) * scale,
        ]
        widths = [up(weight.shape[0]) for weight in weights]
        starts = [sum(widths[:i]) for i in range(len(widths))]
        sizes = [widths[0], *(weight.shape[0] for weight in weights[1:])]
        parts = (slice(at, at + size) for at, size in zip(starts, sizes, strict=True))
        self._part = _Parts(*parts)
        self._w_in = fuse(weights, widths, hidden)
        norm = padded(params.take("q_a_layernorm.weight", rank), widths[0])
        self._q_norm = rms_norm.prepare(norm, spec.rms_norm_eps, rank)
        norm = params.take("kv_a_layernorm.weight", latent)
        self._kv_norm = rms_norm.prepare(norm, spec.rms_norm_eps)

    def _load_queries(self, spec: ModelSpec, params: Params, index: Params, own: int) -> None:
        """q_b of `own` heads | wq_b, both of the normalised query latent."""
        width, index_width = spec.heads * spec.nope_dim, spec.index_heads * spec.index_dim
        self._queries = slice(0, width)
        self._index_queries = slice(up(width), up(width) + index_width)
        weights = [
            params.take("q_b_proj.weight", own * spec.nope_dim, spec.q_lora_rank),
            index.take("wq_b.weight", index_width, spec.q_lora_rank),
        ]
        self._w_q = fuse(weights, [up(width), up(index_width)], up(spec.q_lora_rank))

    def _load_values(self, spec: ModelSpec, params: Params, hidden: int, own: int) -> None:
        """kv_b in two: keys for the queries (with the softmax scale), values for the result."""
        width = spec.nope_dim + spec.v_dim
        both = params.take("kv_b_proj.weight", own * width, spec.kv_lora_rank)
        both = F.pad(both.view(own, width, spec.kv_lora_rank), (0, 0, 0, 0, 0, spec.heads - own))
        self._w_k = linear.prepare_heads(both[:, : spec.nope_dim] * spec.nope_dim**-0.5)
        self._w_v = linear.prepare_heads(both[:, spec.nope_dim :].transpose(1, 2))
        w_out = params.take("o_proj.weight", spec.hidden_size, own * spec.v_dim)
        self._w_out = fuse([w_out], [hidden], up(spec.heads * spec.v_dim))

    def weights(self) -> Iterator[Weight | HeadWeight]:
        """Every matrix, for the self-check."""
        yield from (self._w_in, self._w_q, self._w_k, self._w_v, self._w_out)

    def _cached(self, x: Rows, tiling: Tiling) -> tuple[Rows, Rows, Rows]:
        """x -> fused projections, latents, index keys."""
        fused = linear.linear(x, self._w_in, tiling)
        latents = rms_norm.rms_norm(fused[:, self._part.latent], self._kv_norm)
        keys = layer_norm.layer_norm(fused[:, self._part.key], self._index_norm)
        return fused, latents, keys

    def _project(self, x: Rows, tiling: Tiling) -> tuple[Rows, Rows, Rows, Rows, Rows]:
        """x -> fused projections, latents, index keys, queries in latent space, index queries."""
        spec, rows = self._spec, x.shape[0]
        fused, latents, keys = self._cached(x, tiling)
        q = rms_norm.rms_norm(fused[:, self._part.q], self._q_norm)
        both = linear.linear(q, self._w_q, tiling)
        queries = both[:, self._queries].reshape(rows, spec.heads, spec.nope_dim)
        queries = linear.heads(queries, self._w_k, tiling)
        index_queries = both[:, self._index_queries].reshape(rows, spec.index_heads, spec.index_dim)
        return fused, latents, keys, queries, index_queries

    def alike(self, x: Rows, tiling: Tiling) -> tuple[Rows, ...]:
        """What all ranks compute of x to the same bits."""
        fused, latents, keys, _, index_queries = self._project(x, tiling)
        return fused, latents, keys, index_queries

    def prompt(
        self,
        x: torch.Tensor,
        batch: PromptBatch,
        states: LaneStates,
        caches: Caches,
        tiling: Tiling,
    ) -> torch.Tensor:
        """Every chunk of the batch; its rows and whole pools are written before they are read."""
        fused, latents, keys, queries, index_queries = self._project(x, tiling)
        self._write(fused, latents, keys, batch, states, caches)
        weights = fused[:, self._part.weight]

        def attend(reads: Reads, pages: Pages, pairs: Sequence[Pair]) -> None:
            for asked, found in pairs:
                self._dense(asked, reads, pages, found, tiling)
            for tile in reads.selected:
                span = slice(tile.first, tile.first + self._geometry.tile)
                lists = self._select(tile, index_queries[span], weights[span], caches, tiling)
                for asked, found in pairs:
                    found[span] = latent_attention.selected(
                        asked[span], pages, *lists, self._geometry.attend, tiling
                    )

        own = caches.latents[self.cache]
        if self._exchange is None:
            out = torch.empty_like(queries)
            attend(batch.reads, own, [(queries, out)])
        else:
            out = torch.zeros_like(queries)
            self._exchange.prompt(batch, own, latents, queries, out, attend)
        values = linear.heads(out, self._w_v, tiling).flatten(1)
        values = F.pad(values, (0, self._w_out.depth - values.shape[1]))
        return self._peers.add(linear.linear(values, self._w_out, tiling))

    def fill(
        self,
        x: torch.Tensor,
        batch: PromptBatch,
        states: LaneStates,
        caches: Caches,
        tiling: Tiling,
    ) -> None:
        """Only what the layer keeps of the batch's rows: nobody reads what comes out of them."""
        self._write(*self._cached(x, tiling), batch, states, caches)

    def _write(
        self,
        fused: torch.Tensor,
        latents: torch.Tensor,
        keys: torch.Tensor,
        batch: PromptBatch,
        states: LaneStates,
        caches: Caches,
    ) -> None:
        rows = latents if batch.real is None else latents.index_select(0, batch.real)
        page_write.page_write(caches.latents[self.cache], batch.slots, rows)
        gates = fused[:, self._part.gate]
        if self._blank:
            gates = gates.clone()
            for c in batch.chunks:
                if c.start == 0:
                    gates[c.first] = float("-inf")
        self._write_pools(keys, gates, batch, states, caches)

    def _dense(
        self,
        queries: torch.Tensor,
        reads: Reads,
        pages: Pages,
        out: torch.Tensor,
        tiling: Tiling,
    ) -> None:
        """Tiles within the dense limit, into out."""
        g = self._geometry
        shape = (-1, g.tile, *queries.shape[1:])
        tiles, target = queries.view(shape), out.view(shape)
        for group in reads.dense:
            target[group.tiles] = latent_attention.dense(
                tiles[group.tiles], pages, group.slots, group.start, g.dense, tiling
            )

    def _select(
        self,
        tile: SelectedTile,
        queries: torch.Tensor,
        weights: torch.Tensor,
        caches: Caches,
        tiling: Tiling,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """A tile's lists: index queries [M, heads, dim], weights [M, heads] -> slots, seen."""
        g = self._geometry
        keys = read_pages(caches.keys[self.cache], tile.pages)
        keys = keys.view(len(tile.pages) // g.group, -1, keys.shape[-1])
        scores = indexer.scores(queries, weights, keys, tiling)
        chosen = indexer.select(scores, tile.lengths // g.pool, g.topk)
        return g.token_lists(chosen, tile.lengths, tile.latents, tile.blank)

    def _write_pools(
        self,
        keys: torch.Tensor,
        gates: torch.Tensor,
        batch: PromptBatch,
        states: LaneStates,
        caches: Caches,
    ) -> None:
        """Whole pools into their pages; what a prompt's end leaves over into the lane's tail."""
        size = self._geometry.pool
        shape = (batch.rows // size, size, keys.shape[1])
        pooled = indexer.pool_keys(keys.view(shape), gates.reshape(shape), self._pool)
        page_write.page_write(
            caches.keys[self.cache], batch.pool_slots, pooled.index_select(0, batch.pools)
        )
        for c in batch.chunks:
            left = c.rows % size
            if left:
                span = slice(c.first + c.rows - left, c.first + c.rows)
                states.tails[self.cache, c.lane, :left] = torch.cat([keys[span], gates[span]], 1)

    def window(
        self,
        x: Array,
        batch: WindowBatch,
        states: LaneStates,
        caches: Caches,
        tiling: Tiling,
    ) -> Array:
        """Rows of each lane, all of them written before any is read."""
        n = batch.count
        fused, latents, keys, queries, index_queries = self._project(x, tiling)
        page_write.page_write(caches.latents[self.cache], batch.slots, latents[:n])
        self._grow_pools(keys, fused[:, self._part.gate], batch, states, caches)
        if batch.keys is not None:
            lists = batch.keys.slots, batch.keys.seen
        else:
            weights = fused[:, self._part.weight]
            lists = self._select_rows(index_queries, weights, batch, caches)

        def attend(asked: Array) -> Array:
            own = caches.latents[self.cache]
            return latent_attention.selected(asked, own, *lists, self._geometry.attend, tiling)

        o = np.zeros(queries.shape, np.float32)
        if self._exchange is None:
            o[:n] = attend(queries[:n])
        else:
            self._exchange.window(batch, queries, attend, o)
        values = linear.heads(o, self._w_v, tiling).reshape(x.shape[0], -1)
        if values.shape[1] < self._w_out.depth:
            values = np.pad(values, ((0, 0), (0, self._w_out.depth - values.shape[1])))
        return self._peers.add(linear.linear(values, self._w_out, tiling))

    def follow(
        self, x: Array, batch: WindowBatch, states: LaneStates, caches: Caches, tiling: Tiling
    ) -> None:
        """`window`, without what comes out of it."""
        fused, latents, keys = self._cached(x, tiling)
        page_write.page_write(caches.latents[self.cache], batch.slots, latents[: batch.count])
        self._grow_pools(keys, fused[:, self._part.gate], batch, states, caches)

    def _select_rows(
        self, queries: Array, weights: Array, batch: WindowBatch, caches: Caches
    ) -> tuple[Ids, Flags]:
        """Lists of the rows `batch.mine`, each scored over as many pools as its own length asks
        for."""
        g, mine = self._geometry, batch.mine
        lengths = batch.lengths[mine]
        chosen = np.empty((len(mine), g.topk), np.int64)
        for place, (row, length) in enumerate(zip(mine.tolist(), lengths.tolist(), strict=True)):
            if length <= g.limit:
                chosen[place] = np.arange(g.topk)
                continue
            pages = batch.tables[row, : g.score_pages(length)]
            keys = read_pages_host(caches.keys[self.cache], pages)
            keys = keys.reshape(len(pages) // g.group, -1, keys.shape[-1])
            scores = indexer.row_scores(queries[row], weights[row], keys)
            chosen[place] = indexer.row_select(scores, length // g.pool, g.topk)
        return g.row_token_lists(chosen, lengths, batch.latents[mine], blank=self._blank)

    def _grow_pools(
        self,
        keys: Array,
        gates: Array,
        batch: WindowBatch,
        states: LaneStates,
        caches: Caches,
    ) -> None:
        """Rows into the tails, or with a tail into a whole pool."""
        both = np.concatenate([keys, gates], 1)
        tails = states.tail_pages[self.cache]
        if len(batch.growing):
            page_write.page_write(tails, batch.places, both[batch.growing])
        if len(batch.closing):
            ends = both[batch.closing][:, None]
            dim = keys.shape[1]
            before = tails.host.reshape(-1, 2 * dim)[batch.closing_places]
            whole = np.concatenate([before, ends], 1)
            pooled = indexer.pool_keys(whole[..., :dim], whole[..., dim:], self._pool)
            page_write.page_write(caches.keys[self.cache], batch.pool_slots, pooled)
