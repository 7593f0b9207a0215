"""A linear-attention layer: fused projections, short convolution, gated delta rule, gated norm.

Owns the layer's weights and which rows of a batch each operator sees. Knows no pages.
Shapes: x and the result are [rows, hidden padded].

A window of one row a lane moves the lane's state. In a window of more, the lane's state moves on a
copy: which rows count is known once all layers are through. The window's projections stay in the
replay rows, and `replay` moves the state over the accepted ones, row by row with the routine of
one row, so that the state is the one that as many windows of one row leave.

Several ranks divide the heads, and one sum over the ranks takes what comes out of them. A rank with
fewer heads than the most has blank ones behind its own, whose states stay zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from streamglm.kernels import kda, linear, rms_norm, short_conv
from streamglm.kernels.arguments import Array
from streamglm.kernels.linear import Weight
from streamglm.kernels.tiling import Tiling
from streamglm.model.batch import PromptBatch, WindowBatch
from streamglm.model.params import Params, fuse, padded, up
from streamglm.model.peers import Peers
from streamglm.model.share import Share
from streamglm.model.state import LaneStates


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a window between the projections and the state."""

    qkv: Array
    """[N, 3 H d]"""
    decay: Array
    gate: Array
    beta: Array


class KdaLayer:
    """`layer` is the layer's place among the KDA layers."""

    def __init__(self, share: Share, params: Params, layer: int, hidden: int, peers: Peers) -> None:
        spec, own = share.held, share.kda_heads.size
        heads, dim, h = spec.kda_heads, spec.kda_head_dim, spec.hidden_size
        width = heads * dim
        self.layer = layer
        self._peers = peers
        self._heads, self._dim, self._width = heads, dim, width
        self.constants = kda.constants(heads, dim, spec.gate_lower_bound)
        self._inner = 2 * dim + heads
        inner = up(self._inner)
        self._gates = slice(up(3 * width), up(3 * width) + inner)
        self._w_in = fuse(
            [
                *(params.take(f"{part}_proj.weight", own * dim, h) for part in "qkv"),
                *(params.take(f"{part}_a_proj.weight", dim, h) for part in "fg"),
                params.take("b_proj.weight", own, h),
            ],
            [width, width, up(3 * width) - 2 * width, dim, dim, inner - 2 * dim],
            hidden,
        )
        taps = params.take("conv1d.weight", 3 * own * dim, spec.conv_width)
        taps = taps.view(3, own * dim, spec.conv_width)
        taps = torch.nn.functional.pad(taps, (0, 0, 0, width - own * dim))
        self._conv = short_conv.prepare(taps.reshape(3 * width, spec.conv_width))
        self._load_gates(params, inner, own)
        self._norm = rms_norm.prepare(params.take("o_norm.weight", dim), spec.rms_norm_eps)
        self._w_out = fuse([params.take("o_proj.weight", h, own * dim)], [hidden], up(width))

    def _load_gates(self, params: Params, inner: int, own: int) -> None:
        """f_b | g_b block by block, and b passed through: [f_a | g_a | b] -> [f | g | b], of the
        first `own` heads.

        The decay's exp(A_log) (f + dt_bias) is linear in f, so its factor sits in the weights.
        """
        heads, dim = self._heads, self._dim
        width = own * dim
        rate = params.take("A_log", own).exp().repeat_interleave(dim)
        side = self.constants.padded
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
        decay, gate, beta = kda.gate(gates, self.constants)
        out = torch.zeros(x.shape[0], self._w_out.depth)
        for c in batch.chunks:
            carried = states.conv[self.layer, c.lane]
            qkv = short_conv.prompt(fused[c.span, : 3 * width], carried, self._conv, c.rows)
            o = kda.chunk(
                qkv,
                decay[c.span],
                beta[c.span],
                states.kda[self.layer, c.lane],
                c.rows,
                self.constants,
                tiling,
            )
            gated = gate[c.span, :width].view(c.padded, self._heads, self._dim)
            o = rms_norm.gated(o, gated, self._norm)
            out[c.span, :width] = o.view(c.padded, width)
        return self._peers.add(linear.linear(out, self._w_out, tiling))

    def window(self, x: Array, batch: WindowBatch, states: LaneStates, tiling: Tiling) -> Array:
        """Rows of each lane."""
        n, width, lanes = batch.count, self._width, batch.lanes
        fused = linear.linear(x, self._w_in, tiling)
        inputs = fused[:n, : 3 * width]
        if len(batch.depths) == 1:
            carried = lanes.read(states.conv_host[self.layer])
            rows = self._rows(inputs, carried, fused[:, self._gates], tiling)
            lanes.write(states.conv_host[self.layer], carried)
            state = lanes.read(states.kda_host[self.layer])
            o = kda.step(rows.qkv, rows.decay[:n], rows.beta[:n], state, self.constants, tiling)
            lanes.write(states.kda_host[self.layer], state)
        else:
            rows, o = self._verify(inputs, fused[:, self._gates], batch, states, tiling)
        gated = rows.gate[:n, :width].reshape(n, self._heads, self._dim)
        out = np.zeros((x.shape[0], self._w_out.depth), np.float32)
        out[:n, :width] = rms_norm.gated(o, gated, self._norm).reshape(n, width)
        return self._peers.add(linear.linear(out, self._w_out, tiling))

    def _rows(self, inputs: Array, carried: Array, gates: Array, tiling: Tiling) -> Rows:
        """inputs [N, 3 H d] after carried [N, K - 1, 3 H d], which moves on; gates are in tiles."""
        qkv = short_conv.window(inputs, carried, self._conv)
        gates = linear.linear(gates, self._w_gate, tiling)
        np.add(gates, self._b_gate_host, gates)
        return Rows(qkv, *kda.gate(gates, self.constants))

    def _verify(
        self, inputs: Array, gates: Array, batch: WindowBatch, states: LaneStates, tiling: Tiling
    ) -> tuple[Rows, Array]:
        """Several rows of some lanes: the states of those that have one row move."""
        lanes = batch.lanes.index
        conv, kept = states.conv_host[self.layer], states.replay_host[self.layer]
        carried = np.empty((batch.count, *conv.shape[1:]), np.float32)
        for lane, span in zip(lanes.tolist(), batch.spans, strict=True):
            mine = inputs[span]
            carried[span] = _before(conv[lane], mine)
            if len(mine) > 1:
                kept[lane, : len(mine), : mine.shape[1]] = mine
                gates_mine = gates[span]
                kept[lane, : len(mine), mine.shape[1] :] = gates_mine[:, : self._inner]
        rows = self._rows(inputs, carried, gates, tiling)
        state = states.kda_host[self.layer][lanes]
        o = np.empty((batch.count, self._heads, self._dim), np.float32)
        for depth in batch.depths:
            at = depth.rows
            mine = state[depth.members]
            o[at] = kda.step(
                rows.qkv[at], rows.decay[at], rows.beta[at], mine, self.constants, tiling
            )
            if not isinstance(depth.members, slice):
                state[depth.members] = mine
        for place, (lane, span) in enumerate(zip(lanes.tolist(), batch.spans, strict=True)):
            if span.stop - span.start == 1:
                states.kda_host[self.layer][lane] = state[place]
                conv[lane] = carried[span.start]
        return rows, o

    def replayed(self, lane: int, count: int, states: LaneStates, tiling: Tiling) -> Rows:
        """The lane's first `count` replay rows again; its convolution rows are then the last
        inputs of those."""
        kept = states.replay_host[self.layer][lane, :count]
        inputs = kept[:, : 3 * self._width]
        conv = states.conv_host[self.layer]
        carried = _before(conv[lane], inputs)
        gates = np.zeros((tiling.pad(count), self._w_gate.depth), np.float32)
        gates[:count, : self._inner] = kept[:, 3 * self._width :]
        rows = self._rows(inputs, carried, gates, tiling)
        conv[lane] = carried[-1]
        return rows


def _before(conv: Array, inputs: Array) -> Array:
    """What each of inputs [N, C] is convolved with, conv [K - 1, C] coming before the first ->
    [N, K - 1, C]."""
    line = np.concatenate([conv, inputs[:-1]])
    taps = len(conv)
    return np.stack([line[row : row + taps] for row in range(len(inputs))])


def replay(
    layers: Sequence[KdaLayer],
    accepted: Sequence[tuple[int, int]],
    states: LaneStates,
    tiling: Tiling,
) -> None:
    """Lanes that had a window of more than one row move over the first rows of it: (lane, rows).

    All layers take a row in one step: the states of different layers are as independent as those of
    different lanes.
    """
    for lane, count in accepted:
        rows = [layer.replayed(lane, count, states, tiling) for layer in layers]
        numbers = layers[0].constants
        qkv, decay, beta = (
            np.stack(parts)
            for parts in zip(*((r.qkv, r.decay[:count], r.beta[:count]) for r in rows), strict=True)
        )
        state = np.stack([table[lane] for table in states.kda_host])
        for row in range(count):
            kda.step(qkv[:, row], decay[:, row], beta[:, row], state, numbers, tiling)
        for table, moved in zip(states.kda_host, state, strict=True):
            table[lane] = moved
