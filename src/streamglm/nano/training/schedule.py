"""The course of training: which lengths, how many pools, how many steps, which step size.

Owns the phases. Lengths grow, and the number of pools that attention may select shrinks from all
of a short conversation to the 32 of the finished model, so that the indexer is trained before it
is relied on. Invariant: a step number decides everything here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from streamglm.nano.training.net import Selection

POOLS = 32
"""Pools that the finished model selects: `index_topk` 128 over pools of 4."""


@dataclass(frozen=True, slots=True)
class Phase:
    """`lengths` are (tokens, share): conversations of about that length, by share of the tokens."""

    share: float
    lengths: tuple[tuple[int, float], ...]
    selection: Selection

    @property
    def longest(self) -> int:
        """Tokens of the longest conversation, a multiple of 256."""
        return max(length for length, _ in self.lengths)


PHASES = (
    Phase(0.10, ((256, 0.35), (512, 0.65)), Selection(128, "all")),
    Phase(0.10, ((256, 0.2), (512, 0.3), (1024, 0.5)), Selection(128)),
    Phase(0.20, ((256, 0.15), (512, 0.2), (1024, 0.3), (2048, 0.35)), Selection(64)),
    Phase(
        0.28,
        ((256, 0.15), (512, 0.15), (1024, 0.2), (2048, 0.2), (4096, 0.3)),
        Selection(POOLS),
    ),
    Phase(
        0.18,
        ((256, 0.15), (768, 0.2), (2048, 0.2), (4096, 0.15), (8192, 0.3)),
        Selection(POOLS),
    ),
    Phase(
        0.14,
        ((256, 0.15), (768, 0.2), (2048, 0.15), (8192, 0.15), (16384, 0.15), (32768, 0.2)),
        Selection(POOLS),
    ),
)


@dataclass(frozen=True, slots=True)
class Course:
    """A whole run of `steps` steps."""

    steps: int
    tokens: int = 131_072
    """Tokens of a step."""
    rate: float = 3e-3
    floor: float = 0.03
    """The last step's rate, as a part of `rate`."""
    warmup: int = 100
    tiles: int = 64
    """Tiles of 16 queries on which the indexer is compared with attention, in a step."""
    draft_weight: float = 0.2
    index_weight: float = 1.0
    seed: int = 1

    def phase(self, step: int) -> Phase:
        edge = 0.0
        for phase in PHASES:
            edge += phase.share * self.steps
            if step < edge:
                return phase
        return PHASES[-1]

    def rate_at(self, step: int) -> float:
        """Linear warm-up, then half a cosine."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        done = min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))
        return self.rate * (self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2)
