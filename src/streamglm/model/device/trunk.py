"""The trunk on kernels: embed, layers, mean of the streams, final norm, head.

Owns the order of a layer's parts: between two layers stands a site, which takes one's output into
the streams and gives the other its normed input, so a pass is a walk over sites. Knows no steps and
no graphs. Shapes: streams [rows, streams, hidden], hidden [rows, hidden].
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from streamglm.kernels import hyper
from streamglm.kernels.hyper import Mix, Site
from streamglm.kernels.linear import WINDOW
from streamglm.kernels.matrix import Matrix
from streamglm.model.caches import Caches
from streamglm.model.device.feed import Feed
from streamglm.model.device.index import PromptIndex, WindowIndex
from streamglm.model.device.kda import Held, KdaLayer
from streamglm.model.device.latent import LatentLayer
from streamglm.model.device.weights import Product, Weights
from streamglm.model.peers import Peers
from streamglm.model.share import Share
from streamglm.model.spec import LayerKind, ModelSpec
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry


class Layer:
    """Layer `number` of the trunk: its two sites, its attention and its feed-forward half."""

    def __init__(
        self, share: Share, weights: Weights, number: int, geometry: Geometry, peers: Peers
    ) -> None:
        spec = share.spec
        self.enter = _site(spec, weights, "hc_attn", "input_layernorm")
        self.between = _site(spec, weights, "hc_ffn", "post_attention_layernorm")
        attn = weights.under("self_attn")
        self.attention: KdaLayer | LatentLayer
        if spec.layers[number] is LayerKind.KDA:
            self.attention = KdaLayer(share, attn, spec.kda_layers.index(number), peers)
        else:
            cache = spec.dsa_layers.index(number)
            self.attention = LatentLayer(share, attn, cache, geometry, peers)
        self.feed = Feed(share, weights.under("mlp"), spec.sparse_mlp[number], peers)


class Trunk:
    """`glm5_next` without its next-token layer."""

    def __init__(self, share: Share, weights: Weights, geometry: Geometry, peers: Peers) -> None:
        spec = share.spec
        self._peers, self._streams = peers, spec.streams
        self._embed = weights.plain("embed_tokens.weight", spec.vocab_size, spec.hidden_size)
        layers = weights.under("layers")
        self.layers = [
            Layer(share, layers.under(str(n)), n, geometry, peers) for n in range(len(spec.layers))
        ]
        self._norm = weights.plain("norm.weight", spec.hidden_size)
        self._eps = spec.rms_norm_eps
        self._vocab = share.vocabulary
        own = share.vocabulary[share.rank]
        self._head = Product.of(weights.stack("lm_head.weight", own, spec.hidden_size))

    def matrices(self) -> Iterator[Matrix]:
        """Every matrix that a row reads whole, so all but those of routed experts."""
        yield from self._head.parts
        for layer in self.layers:
            for product in layer.attention.products:
                yield from product.parts
            yield from layer.feed.mlp.matrices

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens [N] -> [N, hidden]"""
        return self._embed.index_select(0, tokens)

    def prompt(self, index: PromptIndex, states: LaneStates, caches: Caches) -> torch.Tensor:
        """Normed hidden of every row of the pass."""
        streams = self._spread(index.tokens)
        y: torch.Tensor | None = None
        mix: Mix | None = None
        for layer in self.layers:
            streams, x, mix = _proceed(streams, y, mix, layer.enter)
            if isinstance(layer.attention, KdaLayer):
                y = layer.attention.prompt(x, index, states)
            else:
                y = layer.attention.prompt(x, index, states, caches)
            streams, x, mix = hyper.proceed(streams, y, mix, layer.between)
            y = layer.feed(x, wide=True)
        assert y is not None
        assert mix is not None
        return hyper.last(streams, y, mix, self._norm, self._eps)

    def window(
        self, index: WindowIndex, states: LaneStates, caches: Caches
    ) -> tuple[torch.Tensor, list[Held]]:
        """Normed hidden of every row of the window, and what a verify window holds back."""
        streams = self._spread(index.tokens)
        y: torch.Tensor | None = None
        mix: Mix | None = None
        held: list[Held] = []
        for layer in self.layers:
            streams, x, mix = _proceed(streams, y, mix, layer.enter)
            if isinstance(layer.attention, KdaLayer):
                y, rows = layer.attention.window(x, index, states)
                held.append(rows)
            else:
                y = layer.attention.window(x, index, states, caches)
            streams, x, mix = hyper.proceed(streams, y, mix, layer.between)
            y = layer.feed(x, wide=False)
        assert y is not None
        assert mix is not None
        return hyper.last(streams, y, mix, self._norm, self._eps), held

    def replay(self, held: list[Held], accepted: torch.Tensor, states: LaneStates) -> None:
        """Every KDA state and convolution over the first rows of each lane of a verify window."""
        layers = [one.attention for one in self.layers if isinstance(one.attention, KdaLayer)]
        for layer, rows in zip(layers, held, strict=True):
            layer.replay(rows, accepted, states)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [N, hidden] -> [N, vocab] float32, by windows of rows for prompts too."""
        windows = torch.split(hidden, WINDOW)
        parts = [self._head(rows, wide=False, dtype=torch.float32) for rows in windows]
        own = parts[0] if len(parts) == 1 else torch.cat(parts)
        return own if self._peers.world == 1 else self._peers.join(own, self._vocab)

    def _spread(self, tokens: torch.Tensor) -> torch.Tensor:
        """The embedding in every stream, each copied from the table."""
        each = tokens.unsqueeze(1).expand(-1, self._streams)
        return self.embed(each.reshape(-1)).view(*each.shape, -1)


def _proceed(
    streams: torch.Tensor, y: torch.Tensor | None, mix: Mix | None, site: Site
) -> tuple[torch.Tensor, torch.Tensor, Mix]:
    if y is None or mix is None:
        return (streams, *hyper.begin(streams, site))
    return hyper.proceed(streams, y, mix, site)


def _site(spec: ModelSpec, weights: Weights, name: str, norm: str) -> Site:
    s = spec.streams
    return Site(
        fn=weights.plain(f"{name}_fn", spec.hc_outputs, s * spec.hidden_size),
        base=weights.values(f"{name}_base", spec.hc_outputs),
        scale=weights.values(f"{name}_scale", 3),
        norm=weights.plain(f"{norm}.weight", spec.hidden_size),
        streams=s,
        fn_eps=spec.rms_norm_eps,
        norm_eps=spec.rms_norm_eps,
        eps=spec.hc_eps,
        iterations=spec.sinkhorn_iters,
    )
