"""A linear-attention layer: fused projections, short convolution, gated delta rule, gated norm.

Owns the layer's weights and which rows of a batch each operator sees. Knows no pages.
Shapes: x and the result are [rows, hidden padded].
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from streamglm.kernels import kda, linear, rms_norm, short_conv
from streamglm.kernels.arguments import Array
from streamglm.kernels.linear import Weight
from streamglm.kernels.tiling import Tiling
from streamglm.model.batch import PromptBatch, WindowBatch
from streamglm.model.params import Params, fuse, padded, up
from streamglm.model.spec import ModelSpec
from streamglm.model.state import LaneStates


class KdaLayer:
    """`layer` is the layer's place among the KDA layers."""

    def __init__(self, spec: ModelSpec, params: Params, layer: int, hidden: int) -> None:
        heads, dim, h = spec.kda_heads, spec.kda_head_dim, spec.hidden_size
        width = heads * dim
        self._layer = layer
        self._heads, self._dim, self._width = heads, dim, width
        self._constants = kda.constants(heads, dim, spec.gate_lower_bound)
        inner = up(2 * dim + heads)
        self._gates = slice(up(3 * width), up(3 * width) + inner)
        self._w_in = fuse(
            [
                *(params.take(f"{part}_proj.weight", width, h) for part in "qkv"),
                *(params.take(f"{part}_a_proj.weight", dim, h) for part in "fg"),
                params.take("b_proj.weight", heads, h),
            ],
            [width, width, up(3 * width) - 2 * width, dim, dim, inner - 2 * dim],
            hidden,
        )
        self._conv = short_conv.prepare(params.take("conv1d.weight", 3 * width, spec.conv_width))
        self._load_gates(params, inner)
        self._norm = rms_norm.prepare(params.take("o_norm.weight", dim), spec.rms_norm_eps)
        self._w_out = fuse([params.take("o_proj.weight", h, width)], [hidden], up(width))

    def _load_gates(self, params: Params, inner: int) -> None:
        """f_b | g_b block by block, and b passed through: [f_a | g_a | b] -> [f | g | b].

        The decay's exp(A_log) (f + dt_bias) is linear in f, so its factor sits in the weights.
        """
        heads, dim, width = self._heads, self._dim, self._width
        rate = params.take("A_log", heads).exp().repeat_interleave(dim)
        side = self._constants.padded
        weight = torch.zeros(inner, 2 * side + up(heads, 32))
        weight[:dim, :width] = (params.take("f_b_proj.weight", width, dim) * rate[:, None]).t()
        weight[dim : 2 * dim, side : side + width] = params.take("g_b_proj.weight", width, dim).t()
        weight[2 * dim : 2 * dim + heads, 2 * side : 2 * side + heads] = torch.eye(heads)
        self._w_gate = linear.prepare(weight)
        self._b_gate = padded(rate * params.take("dt_bias", width), self._w_gate.width)
        self._b_gate_host: Array = self._b_gate.numpy()

    def weights(self) -> Iterator[Weight]:
        """Every matrix, for the self-check."""
        yield from (self._w_in, self._w_gate, self._w_out)

    def prompt(
        self, x: torch.Tensor, batch: PromptBatch, states: LaneStates, tiling: Tiling
    ) -> torch.Tensor:
        """Every chunk of the batch, each after its lane's state."""
        width = self._width
        fused = linear.linear(x, self._w_in, tiling)
        gates = linear.linear(fused[:, self._gates], self._w_gate, tiling).add_(self._b_gate)
        decay, gate, beta = kda.gate(gates, self._constants)
        out = torch.zeros(x.shape[0], self._w_out.depth)
        for c in batch.chunks:
            carried = states.conv[self._layer, c.lane]
            qkv = short_conv.prompt(fused[c.span, : 3 * width], carried, self._conv, c.rows)
            o = kda.chunk(
                qkv,
                decay[c.span],
                beta[c.span],
                states.kda[self._layer, c.lane],
                c.rows,
                self._constants,
                tiling,
            )
            gated = gate[c.span, :width].view(c.padded, self._heads, self._dim)
            o = rms_norm.gated(o, gated, self._norm)
            out[c.span, :width] = o.view(c.padded, width)
        return linear.linear(out, self._w_out, tiling)

    def window(self, x: Array, batch: WindowBatch, states: LaneStates, tiling: Tiling) -> Array:
        """One row of each lane."""
        n, width, lanes = batch.count, self._width, batch.lanes
        fused = linear.linear(x, self._w_in, tiling)
        carried = lanes.read(states.conv_host[self._layer])
        qkv = short_conv.window(fused[:n, : 3 * width], carried, self._conv)
        lanes.write(states.conv_host[self._layer], carried)
        gates = linear.linear(fused[:, self._gates], self._w_gate, tiling)
        np.add(gates, self._b_gate_host, gates)
        decay, gate, beta = kda.gate(gates, self._constants)
        state = lanes.read(states.kda_host[self._layer])
        o = kda.step(qkv, decay[:n], beta[:n], state, self._constants, tiling)
        lanes.write(states.kda_host[self._layer], state)
        gated = gate[:n, :width].reshape(n, self._heads, self._dim)
        out = np.zeros((x.shape[0], self._w_out.depth), np.float32)
        out[:n, :width] = rms_norm.gated(o, gated, self._norm).reshape(n, width)
        return linear.linear(out, self._w_out, tiling)
