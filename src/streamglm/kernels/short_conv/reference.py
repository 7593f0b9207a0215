"""Causal depthwise convolution over rows, with the rows before carried along, in torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from streamglm.kernels.arguments import Array
from streamglm.kernels.tiling import silu_


@dataclass(frozen=True, slots=True)
class ConvWeights:
    """A weight [C, K] as it is computed with: [K, C], its first row times the oldest input."""

    taps: torch.Tensor
    host: Array
    """The same memory; of taps on a GPU, a copy."""


def prepare(weight: torch.Tensor) -> ConvWeights:
    """weight [C, K]."""
    taps = weight.t().contiguous()
    return ConvWeights(taps, taps.cpu().numpy())


def prompt(x: torch.Tensor, carried: torch.Tensor, weight: ConvWeights, rows: int) -> torch.Tensor:
    """x [n, C] of one lane after carried [K - 1, C] -> silu(conv) [n, C]; carried moves on."""
    taps, n = weight.taps.unbind(0), x.shape[0]
    inputs = torch.cat([carried, x])
    y = inputs[:n] * taps[0]
    for tap in range(1, len(taps)):
        y += inputs[tap : tap + n] * taps[tap]
    carried.copy_(inputs[rows : rows + len(taps) - 1])
    return silu_(y)


def window(x: torch.Tensor, carried: torch.Tensor, weight: ConvWeights) -> torch.Tensor:
    """One row a lane: x [N, C] after carried [N, K - 1, C], which moves on by one row."""
    inputs = torch.cat([carried, x.unsqueeze(1)], 1).unbind(1)
    y = inputs[0] * weight.taps[0]
    for tap in range(1, len(inputs)):
        y += inputs[tap] * weight.taps[tap]
    carried.copy_(torch.stack(inputs[1:], 1))
    return silu_(y)
