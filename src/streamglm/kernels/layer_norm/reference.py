"""Layer norm in torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from streamglm.kernels.arguments import Array


@dataclass(frozen=True, slots=True)
class LayerNormWeights:
    """A layer norm as it is computed with; `prepare` builds it."""

    weight: torch.Tensor
    bias: torch.Tensor
    """[D]"""
    eps: float
    host_weight: Array
    host_bias: Array
    """The same memory, or copies where the weights are on a GPU."""
    host_eps: np.float32


def prepare(weight: torch.Tensor, bias: torch.Tensor, eps: float) -> LayerNormWeights:
    """weight and bias [D]."""
    weight, bias = weight.clone(), bias.clone()
    on_host = weight.cpu().numpy(), bias.cpu().numpy()
    return LayerNormWeights(weight, bias, eps, *on_host, np.float32(eps))


def layer_norm(x: torch.Tensor, norm: LayerNormWeights) -> torch.Tensor:
    """x [..., D] with mean 0 and variance 1, times the weight, plus the bias."""
    return F.layer_norm(x, norm.weight.shape, norm.weight, norm.bias, norm.eps)
