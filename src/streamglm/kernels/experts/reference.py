"""Routed experts and the shared one, in torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from streamglm.kernels.experts.routes import Choice, Routes, route
from streamglm.kernels.linear.reference import Weight, linear, multiply
from streamglm.kernels.mlp.reference import swiglu
from streamglm.kernels.tiling import Tiling, bmm, sigmoid_


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """The weights of one sparse layer; I and J are multiples of 32."""

    enter: Weight
    """[D, E' + 2 J]; router (E experts padded to E'), gate and up of the shared expert."""
    choice: Choice
    gate_up: Sequence[Weight]
    """E x [D, 2 I]"""
    down: Sequence[Weight]
    """E x [I, D']"""
    shared_down: Weight
    """[J, D']"""
    limit: float


def mix(x: torch.Tensor, rows: int, weights: ExpertWeights, tiling: Tiling) -> torch.Tensor:
    """x [R, D] -> [R, D']."""
    fused = linear(x, weights.enter, tiling)
    width = weights.choice.bias.shape[0]
    scores = sigmoid_(fused[:rows, :width].contiguous())
    routes, shares = route(scores.numpy(), weights.choice, tiling)
    inner = 2 * weights.shared_down.depth
    shared = swiglu(fused[:, width : width + inner], weights.limit)
    y = linear(shared, weights.shared_down, tiling)
    found = _apply(x, routes, weights, tiling).view(rows, shares.shape[1], -1)
    y[:rows] += bmm(torch.from_numpy(shares).unsqueeze(1), found, tiling).squeeze(1)
    return y


def _apply(x: torch.Tensor, routes: Routes, weights: ExpertWeights, tiling: Tiling) -> torch.Tensor:
    """Each row through its experts -> [M * count, D']."""
    grouped = x.index_select(0, torch.tensor(routes.rows))
    hidden = torch.empty(grouped.shape[0], weights.gate_up[0].width)
    for expert, at, n in routes.groups:
        multiply(grouped[at : at + n], weights.gate_up[expert], hidden[at : at + n], tiling)
    hidden = swiglu(hidden, weights.limit)
    results = torch.empty(grouped.shape[0], weights.down[0].width)
    for expert, at, n in routes.groups:
        multiply(hidden[at : at + n], weights.down[expert], results[at : at + n], tiling)
    return results.index_select(0, torch.tensor(routes.places))
