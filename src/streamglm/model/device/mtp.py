"""The next-token layer on kernels; `model/mtp.py` is the same layer on the CPU.

Owns the weights of `layers.N.*` behind the trunk. Knows no lanes, and not whose hidden it is given.
Shapes: embedded, hidden and the result are [rows, hidden].
"""

from __future__ import annotations

import torch

from streamglm.kernels import rms_norm
from streamglm.kernels.rms_norm import NormWeights
from streamglm.model.caches import Caches
from streamglm.model.device.feed import Feed
from streamglm.model.device.index import PromptIndex, WindowIndex
from streamglm.model.device.latent import LatentLayer
from streamglm.model.device.weights import Product, Weights
from streamglm.model.peers import Peers
from streamglm.model.share import Share
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry


class NextToken:
    """The layer over the last of the latent caches."""

    def __init__(self, share: Share, weights: Weights, geometry: Geometry, peers: Peers) -> None:
        spec, h = share.spec, share.spec.hidden_size

        def norm(name: str) -> NormWeights:
            return rms_norm.prepare(weights.values(f"{name}.weight", h), spec.rms_norm_eps)

        self._embedding_norm, self._hidden_norm = norm("enorm"), norm("hnorm")
        self._join = Product.of(weights.stack("eh_proj.weight", h, 2 * h))
        self._attention_norm = norm("input_layernorm")
        self.cache = len(spec.dsa_layers)
        self._attention = LatentLayer(
            share, weights.under("self_attn"), self.cache, geometry, peers, blank=True
        )
        self._mlp_norm = norm("post_attention_layernorm")
        self._feed = Feed(share, weights.under("mlp"), True, peers)
        self._head_norm = norm("shared_head.norm")

    def fill(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        index: PromptIndex,
        states: LaneStates,
        caches: Caches,
    ) -> None:
        """What the cache keeps of a prompt's rows."""
        x = rms_norm.rms_norm(self._joined(embedded, hidden, True), self._attention_norm)
        self._attention.fill(x, index, states, caches)

    def follow(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        index: WindowIndex,
        states: LaneStates,
        caches: Caches,
    ) -> None:
        """The same of a reply's rows."""
        x = rms_norm.rms_norm(self._joined(embedded, hidden, False), self._attention_norm)
        self._attention.follow(x, index, states, caches)

    def window(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        index: WindowIndex,
        states: LaneStates,
        caches: Caches,
    ) -> torch.Tensor:
        """`follow`, and what comes out of the rows."""
        x = self._joined(embedded, hidden, False)
        y = rms_norm.rms_norm(x, self._attention_norm)
        x = x + self._attention.window(y, index, states, caches)
        y = rms_norm.rms_norm(x, self._mlp_norm)
        x = x + self._feed(y, wide=False)
        return rms_norm.rms_norm(x, self._head_norm)

    def _joined(self, embedded: torch.Tensor, hidden: torch.Tensor, wide: bool) -> torch.Tensor:
        """The embedding first, then the hidden."""
        embedded = rms_norm.rms_norm(embedded, self._embedding_norm)
        hidden = rms_norm.rms_norm(hidden, self._hidden_norm)
        return self._join(torch.cat([embedded, hidden], 1), wide=wide)
