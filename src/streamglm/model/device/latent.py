"""A layer that attends to latents, on kernels; `model/latent.py` is the same layer on the CPU.

Owns the layer's weights and the order of writes and reads: rows and whole pools are written before
any row reads. Knows no lanes beyond the index it is given. Shapes: x and the result are
[rows, hidden].
"""

from __future__ import annotations

from dataclasses import replace

import torch

from streamglm.kernels import layer_norm, linear, matrix, rms_norm
from streamglm.model.caches import Caches
from streamglm.model.device.index import DenseRead, PromptIndex, SelectedRead, WindowIndex
from streamglm.model.device.weights import Product, Weights
from streamglm.model.latent import INDEX_NORM_EPS
from streamglm.model.peers import Peers, partials
from streamglm.model.share import Share
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry


class LatentLayer:
    """`cache` is the layer's place among the latent caches. A `blank` layer has no row 0."""

    def __init__(
        self,
        share: Share,
        weights: Weights,
        cache: int,
        geometry: Geometry,
        peers: Peers,
        *,
        blank: bool = False,
    ) -> None:
        self.cache = cache
        self._spec = replace(share.spec, heads=share.heads.size)
        """With this rank's heads alone: no state has a place for blank ones."""
        self._geometry, self._peers = geometry, peers
        self._blank = blank
        self._load(share, weights, weights.under("indexer"))

    def _load(self, share: Share, weights: Weights, index: Weights) -> None:
        spec, own, h = self._spec, share.heads.size, share.spec.hidden_size
        rank, latent, dim = spec.q_lora_rank, spec.kv_lora_rank, spec.index_dim
        # A score is sum_h w_h relu(q_h . k / sqrt(dim)) / sqrt(heads): both factors are above 0,
        # so they move into w; of the real model they are a power of two.
        scale = (dim * spec.index_heads) ** -0.5
        scores = index.values("weights_proj.weight", spec.index_heads, h) * scale
        self._w_in = Product.of(
            weights.stack("q_a_proj.weight", rank, h),
            weights.stack("kv_a_proj_with_mqa.weight", latent, h),
            index.stack("wk.weight", dim, h),
            index.stack("index_kpool_compress_gate", dim, h),
            matrix.plain(scores.to(weights.dtype)),
        )
        ends = [rank, rank + latent, rank + latent + dim, rank + latent + 2 * dim]
        self._q, self._latent = slice(0, ends[0]), slice(ends[0], ends[1])
        self._key, self._gate = slice(ends[1], ends[2]), slice(ends[2], ends[3])
        self._weight = slice(ends[3], ends[3] + spec.index_heads)
        norm = weights.values("q_a_layernorm.weight", rank)
        self._q_norm = rms_norm.prepare(norm, spec.rms_norm_eps)
        norm = weights.values("kv_a_layernorm.weight", latent)
        self._kv_norm = rms_norm.prepare(norm, spec.rms_norm_eps)
        self._w_q = Product.of(
            weights.stack("q_b_proj.weight", own * spec.nope_dim, rank),
            index.stack("wq_b.weight", spec.index_heads * dim, rank),
        )
        width = spec.nope_dim + spec.v_dim
        both = weights.values("kv_b_proj.weight", own * width, latent).view(own, width, latent)
        keys = both[:, : spec.nope_dim].transpose(1, 2) * spec.nope_dim**-0.5
        self._w_k = matrix.plain(keys.to(weights.dtype).contiguous())
        self._w_v = matrix.plain(both[:, spec.nope_dim :].to(weights.dtype).contiguous())
        self._w_out = Product.of(weights.stack("o_proj.weight", h, own * spec.v_dim))
        self._key_norm = layer_norm.prepare(
            index.values("k_norm.weight", dim), index.values("k_norm.bias", dim), INDEX_NORM_EPS
        )
        self._ape = index.values("index_kpool_compress_ape", spec.pool, dim).contiguous()

    @property
    def products(self) -> tuple[Product, ...]:
        """Every matrix."""
        heads = Product((self._w_k,)), Product((self._w_v,))
        return self._w_in, self._w_q, *heads, self._w_out

    def _cached(
        self, x: torch.Tensor, wide: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x -> fused projections, latents, index keys."""
        fused = self._w_in(x, wide=wide)
        latents = rms_norm.rms_norm(fused[:, self._latent], self._kv_norm)
        return fused, latents, layer_norm.layer_norm(fused[:, self._key], self._key_norm)

    def _queries(self, fused: torch.Tensor, wide: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries in latent space [R, H, latent], index queries [R, heads, dim]."""
        spec, rows = self._spec, len(fused)
        both = self._w_q(rms_norm.rms_norm(fused[:, self._q], self._q_norm), wide=wide)
        width = spec.heads * spec.nope_dim
        queries = both[:, :width].view(rows, spec.heads, spec.nope_dim)
        index = both[:, width:].view(rows, spec.index_heads, spec.index_dim)
        return linear.by_head(queries, self._w_k, wide=wide), index

    def _values(self, o: torch.Tensor, wide: bool) -> torch.Tensor:
        """What was read in latent space [R, H, latent] -> [R, H * v], which is narrower."""
        return linear.by_head(o, self._w_v, wide=wide).flatten(1)

    def _out(self, values: torch.Tensor, wide: bool) -> torch.Tensor:
        dtype = values.dtype
        own = self._w_out(values, wide=wide, dtype=partials(self._peers, dtype))
        return self._peers.add(own, dtype)

    def prompt(
        self, x: torch.Tensor, index: PromptIndex, states: LaneStates, caches: Caches
    ) -> torch.Tensor:
        """Every chunk of the pass."""
        fused, latents, keys = self._cached(x, True)
        self._write(fused, latents, keys, index, states, caches)
        queries, index_queries = self._queries(fused, True)
        weights = fused[:, self._weight]
        parts = [
            self._values(
                self._dense(queries[read.rows], read, caches)
                if isinstance(read, DenseRead)
                else self._selected(
                    queries[read.rows], index_queries[read.rows], weights[read.rows], read, caches
                ),
                True,
            )
            for read in index.reads
        ]
        return self._out(parts[0] if len(parts) == 1 else torch.cat(parts), True)

    def fill(self, x: torch.Tensor, index: PromptIndex, states: LaneStates, caches: Caches) -> None:
        """Only what the layer keeps of a prompt's rows."""
        self._write(*self._cached(x, True), index, states, caches)

    def _write(
        self,
        fused: torch.Tensor,
        latents: torch.Tensor,
        keys: torch.Tensor,
        index: PromptIndex,
        states: LaneStates,
        caches: Caches,
    ) -> None:
        from streamglm.kernels.indexer import kernel as indexer
        from streamglm.kernels.page_write import kernel as page_write

        page_write.page_write(caches.latents[self.cache], index.slots, latents)
        gates = fused[:, self._gate]
        if self._blank and any(c.start == 0 for c in index.chunks):
            gates = gates.clone()
            gates[[c.first for c in index.chunks if c.start == 0]] = float("-inf")
        pages = caches.keys[self.cache]
        if len(index.pool_slots):
            members, slots = index.members, index.pool_slots
            indexer.pool_write(keys, gates, self._ape, members, pages, slots)
        if len(index.left):
            both = torch.cat([keys[index.left], gates[index.left]], 1)
            states.tails[self.cache].flatten(0, 1)[index.left_places] = both

    def _dense(self, queries: torch.Tensor, read: DenseRead, caches: Caches) -> torch.Tensor:
        from streamglm.kernels.latent_attention import kernel

        tiles = queries.view(-1, self._geometry.tile, *queries.shape[1:])
        pages = caches.latents[self.cache]
        return kernel.dense(tiles, pages, read.tables, read.start, read.counts).flatten(0, 1)

    def _selected(
        self,
        queries: torch.Tensor,
        index_queries: torch.Tensor,
        weights: torch.Tensor,
        read: SelectedRead,
        caches: Caches,
    ) -> torch.Tensor:
        from streamglm.kernels.indexer import kernel as indexer
        from streamglm.kernels.latent_attention import prompt_kernel

        g = self._geometry
        scores = torch.empty(len(queries), read.pools, device=queries.device)
        keys = caches.keys[self.cache]
        indexer.scores(index_queries, weights, keys, read.tables, read.visible, scores)
        chosen = indexer.select(scores, read.visible, g.topk)
        lists = indexer.token_lists(
            chosen, read.lengths, read.row_tables, page=g.page, pool=g.pool, blank=self._blank
        )
        return prompt_kernel.selected_prompt(queries, caches.latents[self.cache], lists)

    def window(
        self, x: torch.Tensor, index: WindowIndex, states: LaneStates, caches: Caches
    ) -> torch.Tensor:
        """Rows of each lane, all of them written before any is read."""
        from streamglm.kernels.latent_attention import kernel

        fused, latents, keys = self._cached(x, False)
        self._grow(fused, latents, keys, index, states, caches)
        queries, index_queries = self._queries(fused, False)
        lists = self._lists(index_queries, fused[:, self._weight], index, caches)
        o = kernel.selected_window(queries, caches.latents[self.cache], lists)
        return self._out(self._values(o, False), False)

    def follow(
        self, x: torch.Tensor, index: WindowIndex, states: LaneStates, caches: Caches
    ) -> None:
        """`window`, without what comes out of it."""
        self._grow(*self._cached(x, False), index, states, caches)

    def _grow(
        self,
        fused: torch.Tensor,
        latents: torch.Tensor,
        keys: torch.Tensor,
        index: WindowIndex,
        states: LaneStates,
        caches: Caches,
    ) -> None:
        """Rows into pages and tails, and from the tails the pools that are whole now."""
        from streamglm.kernels.indexer import kernel as indexer
        from streamglm.kernels.page_write import kernel as page_write

        page_write.page_write(caches.latents[self.cache], index.slots, latents)
        both = torch.cat([keys, fused[:, self._gate]], 1)
        page_write.page_write(states.tail_pages[self.cache], index.places, both)
        tails, dim = states.tails[self.cache].flatten(0, 1), keys.shape[1]
        pages, slots = caches.keys[self.cache], index.pool_slots
        indexer.pool_write(tails[:, :dim], tails[:, dim:], self._ape, index.members, pages, slots)

    def _lists(
        self, queries: torch.Tensor, weights: torch.Tensor, index: WindowIndex, caches: Caches
    ) -> torch.Tensor:
        """Slots of the tokens of each row's list. How many pools are scored changes no list: a row
        that sees no more than a list holds has all of them, in their order, either way."""
        from streamglm.kernels.indexer import kernel as indexer

        g, rows, lanes = self._geometry, len(queries), index.row_lanes
        if index.pools:
            scores = torch.empty(rows, index.pools, device=queries.device)
            keys = caches.keys[self.cache]
            indexer.scores(queries, weights, keys, index.table, index.visible, scores, lanes)
            chosen = indexer.select(scores, index.visible, g.topk)
        else:
            chosen = torch.arange(g.topk, dtype=torch.int32, device=queries.device)
            chosen = chosen.expand(rows, -1).contiguous()
        return indexer.token_lists(
            chosen, index.lengths, index.table,
            page=g.page, pool=g.pool, blank=self._blank, lanes=lanes,
        )  # fmt: skip
