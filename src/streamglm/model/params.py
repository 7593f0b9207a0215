"""Taking a checkpoint's tensors by name, each once and of the shape that the spec asks for.

Owns the bookkeeping of what was taken and the padding of fused weights. Knows no files.
Invariant: a tensor leaves the dictionary as it is taken, so that its memory goes when the fused
copy stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from streamglm.errors import CheckpointError
from streamglm.kernels import linear
from streamglm.kernels.linear import Weight


class Params:
    """A view of the parameters whose names start with `prefix`."""

    def __init__(self, tensors: dict[str, torch.Tensor], prefix: str = "") -> None:
        self._tensors = tensors
        self._prefix = prefix

    def under(self, name: str) -> Params:
        """The parameters of `name.`"""
        return Params(self._tensors, f"{self._prefix}{name}.")

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor `name`, float32 and of `shape`; `CheckpointError` naming it otherwise."""
        full = self._prefix + name
        tensor = self._tensors.pop(full, None)
        if tensor is None:
            raise CheckpointError(f"{full}: the checkpoint holds no such tensor")
        if tensor.shape != shape:
            raise CheckpointError(
                f"{full}: shape {list(tensor.shape)}, and config.json asks for {list(shape)}"
            )
        if tensor.dtype != torch.float32:
            raise CheckpointError(f"{full}: {tensor.dtype}, and the CPU computes in float32")
        return tensor

    def any(self) -> bool:
        """Whether any tensor of this prefix is left."""
        return any(name.startswith(self._prefix) for name in self._tensors)

    def finish(self) -> None:
        """Raises `CheckpointError` naming a tensor that nothing took."""
        for name in self._tensors:
            raise CheckpointError(
                f"{name}: {len(self._tensors)} tensors of the checkpoint have no place in the model"
            )


def up(size: int, unit: int = 16) -> int:
    """`size` padded to a multiple of `unit`."""
    return -(-size // unit) * unit


def fuse(weights: Sequence[torch.Tensor], widths: Sequence[int], depth: int) -> Weight:
    """weights [N_i, K] side by side as one [depth, sum of widths], each padded with zeros to its
    width: the columns of a product are independent, so fusing changes no output."""
    return linear.prepare(beside(weights, widths, depth))


def beside(weights: Sequence[torch.Tensor], widths: Sequence[int], depth: int) -> torch.Tensor:
    """`fuse` before it is cut into panels: [depth, sum of widths]."""
    fused = torch.zeros(depth, sum(widths))
    start = 0
    for weight, width in zip(weights, widths, strict=True):
        fused[: weight.shape[1], start : start + weight.shape[0]] = weight.t()
        start += width
    return fused


def padded(vector: torch.Tensor, width: int) -> torch.Tensor:
    """vector [N] with zeros up to `width`."""
    return torch.nn.functional.pad(vector, (0, width - vector.shape[0]))
