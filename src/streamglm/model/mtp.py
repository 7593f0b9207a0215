"""The next-token layer: its weights, taken and checked with the rest of the checkpoint.

Owns the weights of `layers.N.*` behind the trunk: one plain block on a single stream with its own
latent cache, fed with the embedding of the next token beside the trunk's hidden. Knows no drafts.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamglm.kernels import rms_norm
from streamglm.kernels.linear import HeadWeight, Weight
from streamglm.model.batch import Geometry
from streamglm.model.experts import SparseMlp
from streamglm.model.latent import LatentLayer
from streamglm.model.params import Params, fuse, padded
from streamglm.model.spec import ModelSpec


class Mtp:
    """Weights of the next-token layer, in the form that the trunk's are kept in."""

    def __init__(self, spec: ModelSpec, params: Params, hidden: int, geometry: Geometry) -> None:
        h = spec.hidden_size
        self.embedding_norm = _norm(spec, params, "enorm.weight", hidden)
        self.hidden_norm = _norm(spec, params, "hnorm.weight", hidden)
        join = params.take("eh_proj.weight", h, 2 * h)
        self.join_embedding = fuse([join[:, :h]], [hidden], hidden)
        self.join_hidden = fuse([join[:, h:]], [hidden], hidden)
        self.attention_norm = _norm(spec, params, "input_layernorm.weight", hidden)
        cache = len(spec.dsa_layers)
        self.attention = LatentLayer(spec, params.under("self_attn"), cache, hidden, geometry)
        self.mlp_norm = _norm(spec, params, "post_attention_layernorm.weight", hidden)
        self.mlp = SparseMlp(spec, params.under("mlp"), hidden)
        self.head_norm = _norm(spec, params, "shared_head.norm.weight", hidden)

    def weights(self) -> Iterator[Weight | HeadWeight]:
        """Every matrix, for the self-check."""
        yield from (self.join_embedding, self.join_hidden)
        yield from self.attention.weights()
        yield from self.mlp.weights()


def _norm(spec: ModelSpec, params: Params, name: str, hidden: int) -> rms_norm.NormWeights:
    weight = padded(params.take(name, spec.hidden_size), hidden)
    return rms_norm.prepare(weight, spec.rms_norm_eps, spec.hidden_size)
