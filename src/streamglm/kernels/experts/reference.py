"""Routed experts and the shared one, in torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from streamglm.kernels.experts.routes import Choice, Routes, route
from streamglm.kernels.linear.reference import Weight, linear, multiply
from streamglm.kernels.matrix import Matrix
from streamglm.kernels.mlp.reference import bounded, swiglu
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


def choose(
    logits: torch.Tensor, bias: torch.Tensor, count: int, normalise: bool, factor: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits [R, E], bias [E] -> experts [R, C] int32, ascending, and shares [R, C]."""
    scores = sigmoid_(logits.clone(memory_format=torch.contiguous_format))
    keys = (scores + bias).nan_to_num_(nan=-3.0e38)
    ranked = torch.sort(keys, dim=1, descending=True, stable=True).indices[:, :count]
    chosen = ranked.sort(1).values
    shares = scores.gather(1, chosen)
    if normalise:
        shares = shares / (shares.sum(1, keepdim=True) + 1e-20)
    return chosen.int(), shares * factor


def by_rows(
    x: torch.Tensor,
    chosen: torch.Tensor,
    shares: torch.Tensor,
    gate_up: Matrix,
    down: Matrix,
    limit: float,
    shared: torch.Tensor,
) -> torch.Tensor:
    """Row after row, expert after expert."""
    first, second = gate_up.values(), down.values()
    y = torch.empty(shared.shape)
    for row in range(len(x)):
        total = torch.zeros(down.width)
        for expert, share in zip(chosen[row].tolist(), shares[row], strict=True):
            hidden = bounded(torch.mv(first[expert], x[row].float()), limit).to(x.dtype)
            total += share * torch.mv(second[expert], hidden.float())
        y[row] = total + shared[row].float()
    return y.to(shared.dtype)
