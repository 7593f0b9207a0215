"""Where a rank's caches and states lie, and in which dtype activations are kept in them.

Owns the value. Knows no shapes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Memory:
    """Of the host, where numpy sees it too, or of a GPU."""

    device: torch.device
    values: torch.dtype
    """Of activations: convolution rows, tails, hiddens. KDA states are float32 everywhere."""
    kernels: bool = False
    """Whether kernels run on it; host memory has them in tests alone."""

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"


HOST = Memory(torch.device("cpu"), torch.float32)
"""The CPU computes in float32."""
