"""The next-token layer: a plain block on a single stream, with a cache of its own.

Owns the weights of `layers.N.*` behind the trunk and what goes into and out of them. Row i of its
cache pairs token i with the trunk's hidden of row i - 1 and predicts token i + 1; there is no row
0. Knows no lanes, and not whose hidden it is given:

    in    the trunk's hidden behind its final norm, or, of a drafted token, the layer's own output
    out   the output behind the layer's own norm, which the trunk's head takes as it is

Both normed forms are what most servers feed and recycle, and the one measured comparison prefers
them; either choice changes drafts alone.
Shapes: hidden and the result are [rows, hidden padded].
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from streamglm.kernels import linear, rms_norm
from streamglm.kernels.arguments import Array, Rows
from streamglm.kernels.linear import HeadWeight, Weight
from streamglm.kernels.tiling import Tiling
from streamglm.model.batch import PromptBatch, WindowBatch
from streamglm.model.caches import Caches
from streamglm.model.exchange import Exchange
from streamglm.model.experts import SparseMlp
from streamglm.model.latent import LatentLayer
from streamglm.model.params import Params, fuse, padded
from streamglm.model.peers import Peers
from streamglm.model.share import Share
from streamglm.model.spec import ModelSpec
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry


class Mtp:
    """The layer over the last of the latent caches."""

    def __init__(
        self,
        share: Share,
        params: Params,
        hidden: int,
        geometry: Geometry,
        peers: Peers,
        exchange: Exchange | None = None,
    ) -> None:
        spec, h = share.spec, share.spec.hidden_size
        self._embedding_norm = _norm(spec, params, "enorm.weight", hidden)
        self._hidden_norm = _norm(spec, params, "hnorm.weight", hidden)
        join = params.take("eh_proj.weight", h, 2 * h)
        self._join = fuse([_halves(join, h, hidden)], [hidden], 2 * hidden)
        self._attention_norm = _norm(spec, params, "input_layernorm.weight", hidden)
        self.cache = len(spec.dsa_layers)
        attention = params.under("self_attn")
        self._attention = LatentLayer(
            share, attention, self.cache, hidden, geometry, peers, exchange, blank=True
        )
        self._mlp_norm = _norm(spec, params, "post_attention_layernorm.weight", hidden)
        self._mlp = SparseMlp(share, params.under("mlp"), hidden, peers)
        self._head_norm = _norm(spec, params, "shared_head.norm.weight", hidden)

    def weights(self) -> Iterator[Weight | HeadWeight]:
        """Every matrix, for the self-check."""
        yield self._join
        yield from self._attention.weights()
        yield from self._mlp.weights()

    def fill(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        batch: PromptBatch,
        states: LaneStates,
        caches: Caches,
        tiling: Tiling,
    ) -> None:
        """What the cache keeps of a prompt's rows: embedded tokens, each beside the hidden of the
        row before it."""
        x = rms_norm.rms_norm(self._joined(embedded, hidden, tiling), self._attention_norm)
        self._attention.fill(x, batch, states, caches, tiling)

    def follow(
        self,
        embedded: Array,
        hidden: Array,
        batch: WindowBatch,
        states: LaneStates,
        caches: Caches,
        tiling: Tiling,
    ) -> None:
        """The same of a reply's rows."""
        x = rms_norm.rms_norm(self._joined(embedded, hidden, tiling), self._attention_norm)
        self._attention.follow(x, batch, states, caches, tiling)

    def window(
        self,
        embedded: Array,
        hidden: Array,
        batch: WindowBatch,
        states: LaneStates,
        caches: Caches,
        tiling: Tiling,
    ) -> Array:
        """`follow`, and what comes out of the rows."""
        x = self._joined(embedded, hidden, tiling)
        y = rms_norm.rms_norm(x, self._attention_norm)
        x = x + self._attention.window(y, batch, states, caches, tiling)
        y = rms_norm.rms_norm(x, self._mlp_norm)
        x = x + self._mlp(y, batch.count, tiling)
        return rms_norm.rms_norm(x, self._head_norm)

    def _joined(self, embedded: Rows, hidden: Rows, tiling: Tiling) -> Rows:
        """The embedding first, then the hidden."""
        embedded = rms_norm.rms_norm(embedded, self._embedding_norm)
        hidden = rms_norm.rms_norm(hidden, self._hidden_norm)
        if isinstance(embedded, np.ndarray):
            both: Rows = np.concatenate([embedded, hidden], 1)
        else:
            both = torch.cat([embedded, hidden], 1)
        return linear.linear(both, self._join, tiling)


def _norm(spec: ModelSpec, params: Params, name: str, hidden: int) -> rms_norm.NormWeights:
    weight = padded(params.take(name, spec.hidden_size), hidden)
    return rms_norm.prepare(weight, spec.rms_norm_eps, spec.hidden_size)


def _halves(join: torch.Tensor, size: int, hidden: int) -> torch.Tensor:
    """Columns [embedding | hidden], each half padded to `hidden`."""
    halves = join.view(size, 2, size)
    return torch.nn.functional.pad(halves, (0, hidden - size)).reshape(size, 2 * hidden)
