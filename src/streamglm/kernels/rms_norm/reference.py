"""RMS norm in torch: the norm of a row, then one factor a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from streamglm.kernels.arguments import Array


@dataclass(frozen=True, slots=True)
class NormWeights:
    """A norm as it is computed with; `prepare` builds it."""

    weight: torch.Tensor
    """[D]"""
    eps: torch.Tensor
    """[]; making it costs more than using it."""
    count: int
    """Values of a row that are not padding: the mean is over them."""
    host: Array
    """`weight`'s memory, or a copy of it where `weight` is on a GPU."""
    host_eps: np.float32
    host_share: np.float32
    """1 / count"""


def prepare(weight: torch.Tensor, eps: float, count: int | None = None) -> NormWeights:
    """weight [D], zeros behind the first `count`."""
    count = count or weight.shape[0]
    weight = weight.clone()
    return NormWeights(
        weight=weight,
        eps=torch.tensor(eps, device=weight.device),
        count=count,
        host=weight.cpu().numpy(),
        host_eps=np.float32(eps),
        host_share=np.float32(1.0 / count),
    )


def rms_factor(x: torch.Tensor, eps: torch.Tensor, count: int) -> torch.Tensor:
    """1 / sqrt(sum(x^2) / count + eps) of [..., D] -> [..., 1]."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return torch.addcmul(eps, norm, norm, value=1.0 / count).rsqrt_()


def rms_norm(x: torch.Tensor, norm: NormWeights) -> torch.Tensor:
    """x [..., D] over its root mean square, times the weight."""
    return torch.mul(x, rms_factor(x, norm.eps, norm.count)).mul_(norm.weight)


def gated(x: torch.Tensor, gate: torch.Tensor, norm: NormWeights) -> torch.Tensor:
    """`rms_norm`, times gate [..., D] (a sigmoid already)."""
    return rms_norm(x, norm).mul_(gate)
