"""One layer of the trunk: a hyper-connection in and out around attention, and around the MLP.

Owns the order of a layer's parts. Knows neither pages nor weights of its parts.
Shapes: streams are [rows, streams, hidden padded].
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from streamglm.kernels import hyper, rms_norm
from streamglm.kernels.arguments import Array, Rows
from streamglm.kernels.linear import HeadWeight, Weight
from streamglm.kernels.tiling import Tiling
from streamglm.model.batch import PromptBatch, WindowBatch
from streamglm.model.caches import Caches
from streamglm.model.exchange import Exchange
from streamglm.model.experts import DenseMlp, SparseMlp
from streamglm.model.kda import KdaLayer
from streamglm.model.latent import LatentLayer
from streamglm.model.params import Params, padded
from streamglm.model.peers import Peers
from streamglm.model.share import Share
from streamglm.model.spec import LayerKind, ModelSpec
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry


class Block:
    """Layer `number` of the trunk."""

    def __init__(
        self,
        share: Share,
        params: Params,
        number: int,
        hidden: int,
        geometry: Geometry,
        peers: Peers,
        exchange: Exchange | None = None,
    ) -> None:
        spec = share.spec
        self._hyper_attn = _hyper(spec, params, "hc_attn", hidden)
        self._hyper_mlp = _hyper(spec, params, "hc_ffn", hidden)
        self._norm_attn = _norm(spec, params, "input_layernorm", hidden)
        self._norm_mlp = _norm(spec, params, "post_attention_layernorm", hidden)
        attn, mlp = params.under("self_attn"), params.under("mlp")
        self.attention: KdaLayer | LatentLayer
        if spec.layers[number] is LayerKind.KDA:
            place = spec.kda_layers.index(number)
            self.attention = KdaLayer(share, attn, place, hidden, peers)
        else:
            cache = spec.dsa_layers.index(number)
            self.attention = LatentLayer(share, attn, cache, hidden, geometry, peers, exchange)
        self._mlp: DenseMlp | SparseMlp
        if spec.sparse_mlp[number]:
            self._mlp = SparseMlp(share, mlp, hidden, peers)
        else:
            self._mlp = DenseMlp(share, mlp, hidden, peers)

    def weights(self) -> Iterator[Weight | HeadWeight]:
        """Every matrix, for the self-check."""
        yield from (self._hyper_attn.fn, self._hyper_mlp.fn)
        yield from self.attention.weights()
        yield from self._mlp.weights()

    def alike(self, streams: Rows, tiling: Tiling) -> Iterator[Rows]:
        """What all ranks compute of streams to the same bits: all but their heads and columns."""
        pre, post, comb = hyper.coefficients(streams, self._hyper_attn, tiling)
        x = rms_norm.rms_norm(hyper.collapse(streams, pre, tiling), self._norm_attn)
        yield from (x, hyper.expand(streams, x, post, comb, tiling))
        if isinstance(self.attention, LatentLayer):
            yield from self.attention.alike(x, tiling)

    def prompt(
        self,
        streams: torch.Tensor,
        batch: PromptBatch,
        states: LaneStates,
        caches: Caches,
        tiling: Tiling,
    ) -> torch.Tensor:
        """Rows of prompts through the layer."""
        pre, post, comb = hyper.coefficients(streams, self._hyper_attn, tiling)
        x = rms_norm.rms_norm(hyper.collapse(streams, pre, tiling), self._norm_attn)
        if isinstance(self.attention, KdaLayer):
            y = self.attention.prompt(x, batch, states, tiling)
        else:
            y = self.attention.prompt(x, batch, states, caches, tiling)
        streams = hyper.expand(streams, y, post, comb, tiling)
        return self._feed(streams, batch.rows, tiling)

    def window(
        self,
        streams: Array,
        batch: WindowBatch,
        states: LaneStates,
        caches: Caches,
        tiling: Tiling,
    ) -> Array:
        """Decoded rows through the layer."""
        pre, post, comb = hyper.coefficients(streams, self._hyper_attn, tiling)
        x = rms_norm.rms_norm(hyper.collapse(streams, pre, tiling), self._norm_attn)
        if isinstance(self.attention, KdaLayer):
            y = self.attention.window(x, batch, states, tiling)
        else:
            y = self.attention.window(x, batch, states, caches, tiling)
        streams = hyper.expand(streams, y, post, comb, tiling)
        return self._feed(streams, batch.count, tiling)

    def _feed(self, streams: Rows, rows: int, tiling: Tiling) -> Rows:
        """The half around the MLP; `rows` of the rows are not padding."""
        pre, post, comb = hyper.coefficients(streams, self._hyper_mlp, tiling)
        x = rms_norm.rms_norm(hyper.collapse(streams, pre, tiling), self._norm_mlp)
        return hyper.expand(streams, self._mlp(x, rows, tiling), post, comb, tiling)


def _hyper(spec: ModelSpec, params: Params, name: str, hidden: int) -> hyper.HyperWeights:
    streams, size = spec.streams, spec.hidden_size
    fn = params.take(f"{name}_fn", spec.hc_outputs, streams * size).view(-1, streams, size)
    fn = torch.nn.functional.pad(fn, (0, hidden - size)).flatten(1)
    return hyper.prepare(
        fn,
        params.take(f"{name}_base", spec.hc_outputs),
        params.take(f"{name}_scale", 3),
        streams=streams,
        count=streams * size,
        norm_eps=spec.rms_norm_eps,
        eps=spec.hc_eps,
        iterations=spec.sinkhorn_iters,
    )


def _norm(spec: ModelSpec, params: Params, name: str, hidden: int) -> rms_norm.NormWeights:
    weight = padded(params.take(f"{name}.weight", spec.hidden_size), hidden)
    return rms_norm.prepare(weight, spec.rms_norm_eps, spec.hidden_size)
