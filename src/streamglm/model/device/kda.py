"""A linear-attention layer on kernels; `model/kda.py` is the same layer on the CPU.

Owns the layer's weights and the rows that a verify window leaves behind. Knows no pages.
Shapes: x and the result are [rows, hidden].

A window of one row a lane moves the lane's state. A verify window leaves states as they are, and
what entered them stays in `Held`; `replay` then moves them over the accepted rows with the same
routine of one row, so a state is the one that as many windows of one row leave.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from streamglm.kernels import kda, rms_norm, short_conv
from streamglm.kernels.matrix import plain
from streamglm.model.device.index import PromptIndex, WindowIndex
from streamglm.model.device.weights import Product, Weights
from streamglm.model.params import up
from streamglm.model.peers import Peers, partials
from streamglm.model.share import Share
from streamglm.model.state import LaneStates


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a verify window between the projections and the state."""

    inputs: torch.Tensor
    """[R, 3 H d] before the convolution"""
    qkv: torch.Tensor
    decay: torch.Tensor
    beta: torch.Tensor


class KdaLayer:
    """`layer` is the layer's place among the KDA layers. Where another rank has more heads, those
    of this one are the first of a lane's states, and the blank ones behind them stay as they are.
    """

    def __init__(self, share: Share, weights: Weights, layer: int, peers: Peers) -> None:
        spec, heads = share.spec, share.kda_heads.size
        dim, h = spec.kda_head_dim, spec.hidden_size
        width = heads * dim
        self.layer = layer
        self._peers = peers
        self._heads, self._dim = heads, dim
        self._constants = kda.constants(heads, dim, spec.gate_lower_bound)
        self._qkv = slice(0, 3 * width)
        self._low = slice(3 * width, 3 * width + 2 * dim + heads)
        self._w_in = Product.of(
            *(weights.stack(f"{part}_proj.weight", width, h) for part in "qkv"),
            *(weights.stack(f"{part}_a_proj.weight", dim, h) for part in "fg"),
            weights.stack("b_proj.weight", heads, h),
        )
        taps = weights.values("conv1d.weight", 3 * width, spec.conv_width)
        self._conv = short_conv.prepare(taps)
        self._w_gate = self._gate_weight(weights)
        self._factors = weights.values("A_log", heads).exp()
        self._biases = weights.values("dt_bias", width).contiguous()
        self._norm = rms_norm.prepare(weights.values("o_norm.weight", dim), spec.rms_norm_eps)
        self._w_out = Product.of(weights.stack("o_proj.weight", h, width))

    def _gate_weight(self, weights: Weights) -> Product:
        """f_b | g_b block by block, and b passed through: [f_a | g_a | b] -> [f | g | b]. Zeros
        beside a block add exact zeros."""
        dim, width, heads = self._dim, self._heads * self._dim, self._heads
        side = self._constants.padded
        f, g = (weights.plain(f"{part}_b_proj.weight", width, dim) for part in "fg")
        weight = f.new_zeros(2 * side + up(heads), 2 * dim + heads)
        weight[:width, :dim] = f
        weight[side : side + width, dim : 2 * dim] = g
        weight[2 * side : 2 * side + heads, 2 * dim :] = torch.eye(heads, device=f.device)
        return Product.of(plain(weight))

    @property
    def products(self) -> tuple[Product, ...]:
        """Every matrix."""
        return self._w_in, self._w_gate, self._w_out

    def _gates(
        self, fused: torch.Tensor, wide: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        from streamglm.kernels.kda import kernel

        gates = self._w_gate(fused[:, self._low], wide=wide)
        return kernel.gate(gates, self._constants, self._factors, self._biases)

    def _out(self, o: torch.Tensor, gate: torch.Tensor, wide: bool) -> torch.Tensor:
        gated = rms_norm.gated(o, gate.view(o.shape), self._norm)
        own = self._w_out(
            gated.view(len(o), -1), wide=wide, dtype=partials(self._peers, gated.dtype)
        )
        return self._peers.add(own, gated.dtype)

    def _carried(self, states: LaneStates) -> tuple[torch.Tensor, torch.Tensor]:
        """What this rank's heads carry: states [lanes, H, d, d], rows [lanes, K - 1, 3 H d]."""
        conv = states.conv[self.layer][:, :, : self._qkv.stop]
        return states.kda[self.layer][:, : self._heads], conv

    def prompt(self, x: torch.Tensor, index: PromptIndex, states: LaneStates) -> torch.Tensor:
        """Every chunk of the pass."""
        from streamglm.kernels.kda import kernel
        from streamglm.kernels.short_conv import kernel as conv

        fused = self._w_in(x, wide=True)
        decay, gate, beta = self._gates(fused, True)
        state, carried = self._carried(states)
        qkv = conv.conv(fused[:, self._qkv], carried, self._conv, index.lanes, index.most)
        o = kernel.prompt(
            qkv,
            decay,
            beta,
            state,
            index.kda_chunks,
            index.kda_lanes,
            self._constants,
        )
        return self._out(o, gate, True)

    def window(
        self, x: torch.Tensor, index: WindowIndex, states: LaneStates
    ) -> tuple[torch.Tensor, Held]:
        """The rows of a window; the second is for `replay`, where the index says `verify`."""
        from streamglm.kernels.kda import kernel
        from streamglm.kernels.short_conv import kernel as conv

        keep = not index.verify
        fused = self._w_in(x, wide=False)
        decay, gate, beta = self._gates(fused, False)
        inputs, (state, carried) = fused[:, self._qkv], self._carried(states)
        qkv = conv.conv(inputs, carried, self._conv, index.lanes, len(x), keep=keep)
        o = kernel.window(qkv, decay, beta, state, index.lanes, self._constants, keep=keep)
        return self._out(o, gate, False), Held(inputs, qkv, decay, beta)

    def replay(self, held: Held, accepted: torch.Tensor, states: LaneStates) -> None:
        """Move on over the first rows of each lane: accepted [N, 3] int32 first row, rows, slot."""
        from streamglm.kernels.kda import kernel
        from streamglm.kernels.short_conv import kernel as conv

        state, carried = self._carried(states)
        conv.conv(held.inputs, carried, self._conv, accepted, len(held.inputs), give=False)
        kernel.window(
            held.qkv,
            held.decay,
            held.beta,
            state,
            accepted,
            self._constants,
            keep=True,
            give=False,
        )
