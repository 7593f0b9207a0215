"""Routed experts with a shared one beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from streamglm.kernels import launch, mlp
from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.experts import grouped, host, reference
from streamglm.kernels.experts.reference import ExpertWeights
from streamglm.kernels.experts.routes import Choice, Routes, group, route
from streamglm.kernels.linear import WINDOW
from streamglm.kernels.matrix import Matrix
from streamglm.kernels.tiling import Tiling

__all__ = [
    "Choice",
    "ExpertStacks",
    "ExpertWeights",
    "Routes",
    "choose",
    "group",
    "mix",
    "prompt",
    "route",
    "window",
]


@dataclass(frozen=True, slots=True)
class ExpertStacks:
    """The routed experts of a layer as kernels read them."""

    gate_up: Matrix
    """[E, 2 I, K]; gate, then up"""
    down: Matrix
    """[E, N, I]"""
    limit: float


def mix(x: Rows, rows: int, weights: ExpertWeights, tiling: Tiling) -> Rows:
    """x [R, D] -> [R, D']: the shared expert of every row and, for the first `rows` rows, plus the
    weighted sum of the row's experts, ascending in the expert.

    Raises `ArgumentError` when the weights do not fit x or one another.
    """
    enter, choice = weights.enter, weights.choice
    if x.shape[1] != enter.depth or not 0 < rows <= x.shape[0]:
        raise ArgumentError(f"mix: x {x.shape}, {rows} rows, weights of depth {enter.depth}")
    if enter.width < choice.bias.shape[0] + 2 * weights.shared_down.depth:
        raise ArgumentError(f"mix: {enter.width} columns for router and shared expert")
    if isinstance(x, np.ndarray):
        return host.mix(x, rows, weights, tiling)
    return reference.mix(x, rows, weights, tiling)


def choose(
    logits: torch.Tensor, bias: torch.Tensor, *, count: int, normalise: bool, factor: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits [R, E] float32, bias [E] -> experts [R, C] int32, ascending, and shares [R, C].

    The `count` largest of sigmoid + bias, ties to the lower expert; shares are without the bias.
    A score that is not a number is chosen last. Raises `ArgumentError` when E or C do not fit.
    """
    if logits.shape[1] != len(bias) or not 0 < count <= len(bias) or logits.stride(1) != 1:
        raise ArgumentError(f"choose: {count} of logits {tuple(logits.shape)}, {len(bias)} biases")
    if launch.by_kernel(logits):
        from streamglm.kernels.experts import kernel

        return kernel.choose(logits, bias, count, normalise, factor)
    return reference.choose(logits, bias, count, normalise, factor)


def window(
    x: torch.Tensor,
    chosen: torch.Tensor,
    shares: torch.Tensor,
    stacks: ExpertStacks,
    shared: torch.Tensor,
) -> torch.Tensor:
    """x [R, K], R from 1 to 32; experts and shares [R, C] of `choose`; shared [R, N] -> [R, N] of
    shared's dtype: shared plus the row's experts times their shares, added up in their order.

    Raises `ArgumentError` when the shapes do not fit.
    """
    if not 1 <= x.shape[0] <= WINDOW:
        raise ArgumentError(f"experts: {x.shape[0]} rows, and a window has 1 to {WINDOW}")
    _check(x, chosen, shares, stacks, shared)
    if not launch.by_kernel(x):
        return reference.by_rows(
            x, chosen, shares, stacks.gate_up, stacks.down, stacks.limit, shared
        )
    from streamglm.kernels.experts import kernel, window_kernel
    from streamglm.kernels.product import expert_window_tile

    rows = kernel.group_window(chosen, stacks.down.count)
    tiles = expert_window_tile(stacks.gate_up), expert_window_tile(stacks.down)
    count = chosen.shape[1]
    found = window_kernel.apply(x, rows, count, stacks.gate_up, stacks.down, stacks.limit, tiles)
    return kernel.combine(found, shares, shared)


def prompt(
    x: torch.Tensor,
    chosen: torch.Tensor,
    shares: torch.Tensor,
    stacks: ExpertStacks,
    shared: torch.Tensor,
) -> torch.Tensor:
    """`window` for any R.

    Raises `ArgumentError` when the shapes do not fit.
    """
    _check(x, chosen, shares, stacks, shared)
    if not launch.by_kernel(x):
        return reference.by_rows(
            x, chosen, shares, stacks.gate_up, stacks.down, stacks.limit, shared
        )
    from streamglm.kernels.experts import kernel, prompt_kernel
    from streamglm.kernels.product import expert_tile

    gate_up, down, limit, count = stacks.gate_up, stacks.down, stacks.limit, chosen.shape[1]
    if prompt_kernel.takes(x, gate_up, down):
        rows = prompt_kernel.group(chosen.contiguous(), down.count)
        found = prompt_kernel.apply(x, rows, count, gate_up, down, limit)
    else:
        tiles = expert_tile(gate_up), expert_tile(down)
        rows = grouped.group(chosen, down.count, tiles[0].r)
        found = kernel.apply(x, rows, count, gate_up, down, limit, tiles)
    return kernel.combine(found, shares, shared)


def _check(
    x: torch.Tensor,
    chosen: torch.Tensor,
    shares: torch.Tensor,
    stacks: ExpertStacks,
    shared: torch.Tensor,
) -> None:
    rows, gate_up, down = len(x), stacks.gate_up, stacks.down
    fits = (
        x.shape[1] == gate_up.depth
        and x.stride(1) == 1
        and chosen.shape == shares.shape
        and len(chosen) == rows
        and tuple(shared.shape) == (rows, down.width)
    )
    if not fits:
        raise ArgumentError(
            f"experts: x {tuple(x.shape)}, experts {tuple(chosen.shape)}, shares "
            f"{tuple(shares.shape)}, shared {tuple(shared.shape)} for {down.count} experts "
            f"{gate_up.depth} -> {down.width}"
        )
    mlp.check_halves("experts", gate_up, down)
