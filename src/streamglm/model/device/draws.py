"""Tokens that a device draws by itself, and rows that the host still can.

Owns which of the two a lane gets. Knows no lanes. A sampler that only its row, seed and position
move is served by the draw kernel; one with a history, a bias, masks or log-probabilities is handed
its row of logits in the host's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from streamglm.kernels import launch
from streamglm.kernels.arguments import Array
from streamglm.model.verify import Sampler
from streamglm.step import Choice, Draw


class Row(msgspec.Struct, frozen=True):
    """One row of logits on the device, and the token that it draws there."""

    logits: torch.Tensor
    """[R, V] float32, all rows: most are never looked at by the host."""
    place: int
    token: int | None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found: Array = self.logits[self.place].cpu().numpy()
        return found


class Offered:
    """A lane's sampler, before rows of a device."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.plain, self.spelled = sampler.plain, sampler.spelled

    def choose(self, logits: Any, position: int) -> Choice:
        """The token for `position`; changes nothing."""
        if logits.token is not None and self.plain is not None:
            return Choice(logits.token, None)
        return self._sampler.choose(np.asarray(logits), position)

    def push(self, token: int) -> None:
        """`token` stands in the reply."""
        self._sampler.push(token)


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """The highest of each row [N, V], the lower id of equals; -1 where it is not finite."""
    if launch.by_kernel(logits):
        from streamglm.kernels.draw import kernel

        return kernel.greedy(logits)
    best, ids = logits.max(1)
    return torch.where(best.isfinite(), ids, -1)


def plain(logits: torch.Tensor, draws: Sequence[tuple[Draw, int]], spelled: int) -> torch.Tensor:
    """What each row [N, V] draws for its position."""
    if all(draw.temperature == 0.0 for draw, _ in draws):
        return greedy(logits)
    from streamglm.kernels.draw import kernel

    numbers = torch.tensor(
        [(draw.temperature, draw.top_p, draw.min_p) for draw, _ in draws], dtype=torch.float64
    )
    counts = torch.tensor(
        [(signed(draw.seed), position, draw.top_k) for draw, position in draws], dtype=torch.int64
    )
    there = logits.device
    return kernel.draw(logits, numbers.to(there), counts.to(there), spelled)


def signed(seed: int) -> int:
    """The 64 bits of a seed as the signed number that has them."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed
