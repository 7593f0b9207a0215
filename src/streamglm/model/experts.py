"""The feed-forward half of a layer: one dense MLP, or routed experts with a shared one.

Owns the weights and the fusing of router and shared expert. Knows no lanes and no pages. Several
ranks divide the inner columns of every expert; all choose alike, and one sum over the ranks takes
routed and shared experts together.
Shapes: x and the result are [rows, hidden padded].
"""

from __future__ import annotations

from collections.abc import Iterator

from streamglm.kernels import experts, mlp
from streamglm.kernels.arguments import Rows
from streamglm.kernels.linear import Weight
from streamglm.kernels.tiling import Tiling
from streamglm.model.params import Params, fuse, padded, up
from streamglm.model.peers import Peers
from streamglm.model.share import Share


class DenseMlp:
    """SwiGLU of `intermediate_size` values."""

    def __init__(self, share: Share, params: Params, hidden: int, peers: Peers) -> None:
        spec = share.spec
        self._peers = peers
        h, size = spec.hidden_size, share.columns(spec.intermediate_size).size
        wide = up(size, 32)
        both = [params.take(f"{part}_proj.weight", size, h) for part in ("gate", "up")]
        self._gate_up = fuse(both, [wide, wide], hidden)
        self._down = fuse([params.take("down_proj.weight", h, size)], [hidden], wide)
        self._limit = spec.swiglu_limit

    def weights(self) -> Iterator[Weight]:
        """Every matrix, for the self-check."""
        yield from (self._gate_up, self._down)

    def __call__(self, x: Rows, rows: int, tiling: Tiling) -> Rows:
        """Every row of x; `rows` is how many are not padding."""
        return self._peers.add(mlp.mlp(x, self._gate_up, self._down, self._limit, tiling))


class SparseMlp:
    """Routed experts, and the shared one that every row passes through."""

    def __init__(self, share: Share, params: Params, hidden: int, peers: Peers) -> None:
        spec = share.spec
        self._peers = peers
        count, h = spec.n_routed_experts, spec.hidden_size
        size = share.columns(spec.moe_intermediate_size).size
        inner = spec.moe_intermediate_size * spec.n_shared_experts
        shared = share.columns(inner).size
        width, wide = up(count, 32), up(size, 32)
        # The router lies beside the shared expert: in a weight of one shape on every rank.
        wide_shared = up(share.most_columns(inner), 32)
        part = params.under("shared_experts")
        enter = [
            params.take("gate.weight", count, h),
            part.take("gate_proj.weight", shared, h),
            part.take("up_proj.weight", shared, h),
        ]
        shared_down = part.take("down_proj.weight", h, shared)
        bias = padded(params.take("gate.e_score_correction_bias", count), width)
        bias[count:] = float("-inf")
        both = params.take("experts.gate_up_proj", count, 2 * size, h)
        gate_up = [fuse([w[:size], w[size:]], [wide, wide], hidden) for w in both]
        del both
        down = params.take("experts.down_proj", count, h, size)
        self._weights = experts.ExpertWeights(
            enter=fuse(enter, [width, wide_shared, wide_shared], hidden),
            choice=experts.Choice(
                bias=bias.numpy(),
                count=spec.num_experts_per_tok,
                normalise=spec.norm_topk_prob,
                factor=spec.routed_scaling_factor,
            ),
            gate_up=gate_up,
            down=[fuse([w], [hidden], wide) for w in down],
            shared_down=fuse([shared_down], [hidden], wide_shared),
            limit=spec.swiglu_limit,
        )

    def weights(self) -> Iterator[Weight]:
        """Every matrix, for the self-check."""
        w = self._weights
        yield from (w.enter, w.shared_down, *w.gate_up, *w.down)

    def __call__(self, x: Rows, rows: int, tiling: Tiling) -> Rows:
        """Every row of x; experts only for the first `rows`, which are not padding."""
        return self._peers.add(experts.mix(x, rows, self._weights, tiling))
