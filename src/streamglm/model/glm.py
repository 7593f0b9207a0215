"""The trunk on one page: embed, blocks, mean of the streams, final norm, head.

Owns the order of the whole and the sizes that depend on nothing but the spec. Knows no steps.
Several ranks divide the rows of the head, and all have whole rows of logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from streamglm.kernels import hyper, linear, rms_norm
from streamglm.kernels.arguments import Array, Ids, Rows
from streamglm.kernels.linear import HeadWeight, Weight
from streamglm.kernels.tiling import Tiling
from streamglm.model.batch import PromptBatch, WindowBatch
from streamglm.model.block import Block
from streamglm.model.caches import Caches
from streamglm.model.exchange import Exchange
from streamglm.model.kda import KdaLayer, replay
from streamglm.model.params import Params, fuse, padded
from streamglm.model.peers import Peers
from streamglm.model.share import Share
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry


class Glm:
    """`glm5_next` without its next-token layer."""

    def __init__(
        self,
        share: Share,
        params: Params,
        geometry: Geometry,
        peers: Peers,
        exchange: Exchange | None = None,
    ) -> None:
        spec = share.spec
        self._peers = peers
        hidden = linear.padded_width(spec.hidden_size)
        embed = params.take("embed_tokens.weight", spec.vocab_size, spec.hidden_size)
        self._embed = F.pad(embed, (0, hidden - spec.hidden_size))
        self._embed_host: Array = self._embed.numpy()
        self._streams = spec.streams
        layers = params.under("layers")
        self.blocks = [
            Block(share, layers.under(str(n)), n, hidden, geometry, peers, exchange)
            for n in range(len(spec.layers))
        ]
        norm = padded(params.take("norm.weight", spec.hidden_size), hidden)
        self._norm = rms_norm.prepare(norm, spec.rms_norm_eps, spec.hidden_size)
        self._vocab = share.vocabulary
        self._own = share.vocabulary[share.rank]
        head = params.take("lm_head.weight", self._own, spec.hidden_size)
        self._head = fuse([head], [self._own], hidden)

    def weights(self) -> Iterator[Weight | HeadWeight]:
        """Every matrix, for the self-check."""
        yield self._head
        for block in self.blocks:
            yield from block.weights()

    @property
    def tokens(self) -> int:
        """Rows of the embedding."""
        return self._embed.shape[0]

    def alike(self, rows: Rows, tiling: Tiling) -> Iterator[Rows]:
        """Of embedded rows in whole tiles, what all ranks compute to the same bits: through the
        first block of each kind."""
        streams = self._spread(rows)
        first = {type(block.attention): block for block in reversed(self.blocks)}
        for block in first.values():
            yield from block.alike(streams, tiling)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens [N] -> [N, hidden padded]"""
        return self._embed.index_select(0, tokens)

    def embed_host(self, tokens: Ids) -> Array:
        """The same of a window's tokens."""
        rows: Array = self._embed_host[tokens]
        return rows

    def replay(
        self, accepted: Sequence[tuple[int, int]], states: LaneStates, tiling: Tiling
    ) -> None:
        """`kda.replay` of the last window's rows: (lane, rows) of each lane that had several."""
        layers = [block.attention for block in self.blocks]
        replay([one for one in layers if isinstance(one, KdaLayer)], accepted, states, tiling)

    def prompt(
        self, batch: PromptBatch, states: LaneStates, caches: Caches, tiling: Tiling
    ) -> torch.Tensor:
        """Normed hidden [rows, hidden padded] of every row of the batch."""
        streams = self._spread(self.embed(batch.tokens))
        for block in self.blocks:
            streams = block.prompt(streams, batch, states, caches, tiling)
        return rms_norm.rms_norm(hyper.mean(streams), self._norm)

    def window(
        self, batch: WindowBatch, states: LaneStates, caches: Caches, tiling: Tiling
    ) -> Array:
        """Normed hidden [rows, hidden padded] of every row of the batch."""
        streams = self._spread(self.embed_host(batch.tokens))
        for block in self.blocks:
            streams = block.window(streams, batch, states, caches, tiling)
        return rms_norm.rms_norm(hyper.mean(streams), self._norm)

    def _spread(self, rows: Rows) -> Rows:
        """rows [N, hidden padded] in every stream."""
        if isinstance(rows, np.ndarray):
            return np.repeat(rows[:, None], self._streams, 1)
        return rows.unsqueeze(1).expand(-1, self._streams, -1).contiguous()

    def logits(self, hidden: Array, tiling: Tiling) -> Array:
        """hidden [rows, hidden padded], rows in whole tiles -> [rows, vocab]."""
        part = linear.linear(hidden, self._head, tiling)[:, : self._own]
        return self._peers.join(part, self._vocab)
