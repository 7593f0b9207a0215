"""The feed-forward half of a layer on kernels; `model/experts.py` is the same on the CPU.

Owns the weights. Knows no lanes and no pages. Shapes: x and the result are [rows, hidden].
"""

from __future__ import annotations

import torch

from streamglm.kernels import experts, mlp
from streamglm.kernels.experts import ExpertStacks
from streamglm.kernels.matrix import Matrix
from streamglm.model.device.weights import Product, Weights, halves
from streamglm.model.peers import Peers, partials
from streamglm.model.share import Share
from streamglm.model.spec import ModelSpec


class DenseMlp:
    """SwiGLU of `inner` columns, of which this rank has a share."""

    def __init__(self, share: Share, weights: Weights, inner: int) -> None:
        h, size = share.spec.hidden_size, share.columns(inner).size
        self._limit = share.spec.swiglu_limit
        gate, up = (weights.stack(f"{part}_proj.weight", size, h) for part in ("gate", "up"))
        self.gate_up = halves(gate, up)
        self.down = weights.stack("down_proj.weight", h, size)

    def __call__(self, x: torch.Tensor, *, wide: bool, dtype: torch.dtype) -> torch.Tensor:
        """This rank's part of the sum."""
        apply = mlp.prompt if wide else mlp.window
        return apply(x, self.gate_up, self.down, self._limit, dtype)

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """Every matrix."""
        return self.gate_up, self.down


class SparseMlp:
    """Routed experts, and the shared one that every row passes through."""

    def __init__(self, share: Share, weights: Weights) -> None:
        spec = share.spec
        count, h = spec.n_routed_experts, spec.hidden_size
        size = share.columns(spec.moe_intermediate_size).size
        self._spec = spec
        self.shared = DenseMlp(
            share,
            weights.under("shared_experts"),
            spec.moe_intermediate_size * spec.n_shared_experts,
        )
        self.router = Product.of(weights.stack("gate.weight", count, h))
        self._bias = weights.values("gate.e_score_correction_bias", count)
        self.stacks = ExpertStacks(
            gate_up=weights.stack("experts.gate_up_proj", count, 2 * size, h),
            down=weights.stack("experts.down_proj", count, h, size),
            limit=spec.swiglu_limit,
        )

    def __call__(self, x: torch.Tensor, *, wide: bool, dtype: torch.dtype) -> torch.Tensor:
        """This rank's part of the sum."""
        spec = self._spec
        logits = self.router(x, wide=wide, dtype=torch.float32)
        chosen, shares = experts.choose(
            logits,
            self._bias,
            count=spec.num_experts_per_tok,
            normalise=spec.norm_topk_prob,
            factor=spec.routed_scaling_factor,
        )
        apply = experts.prompt if wide else experts.window
        shared = self.shared(x, wide=wide, dtype=dtype)
        return apply(x, chosen, shares, self.stacks, shared)

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """Every matrix but those of the routed experts."""
        return (*self.router.parts, *self.shared.matrices)


class Feed:
    """Either of them, summed over the ranks."""

    def __init__(self, share: Share, weights: Weights, sparse: bool, peers: Peers) -> None:
        spec: ModelSpec = share.spec
        self._peers = peers
        self.mlp: DenseMlp | SparseMlp
        if sparse:
            self.mlp = SparseMlp(share, weights)
        else:
            self.mlp = DenseMlp(share, weights, spec.intermediate_size)

    def __call__(self, x: torch.Tensor, *, wide: bool) -> torch.Tensor:
        own = self.mlp(x, wide=wide, dtype=partials(self._peers, x.dtype))
        return self._peers.add(own, x.dtype)
