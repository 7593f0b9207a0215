"""The sizes of a check: how long its prompts are, and how many lanes, slots and pages they need.

Owns the numbers, which follow from the model's own. Knows no ranks and no streams.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamglm.model.spec import ModelSpec
from streamglm.pool.layout import pages_for

LANES = 8
SLOTS = 8
ROOM = 64
"""Tokens of a lease behind its prompt."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Where a prompt passes from one way of computing it to another."""

    page: int
    chunk: int
    limit: int
    """Visible tokens up to which attention is dense."""

    @classmethod
    def of(cls, spec: ModelSpec) -> Edges:
        return cls(spec.rows.page, spec.rows.chunk, spec.dense_limit)

    @property
    def lengths(self) -> list[int]:
        """Prompts on both sides of every boundary, and one of several chunks."""
        around = {n + off for n in (2 * self.page, self.limit, self.chunk) for off in (-1, 0, 1)}
        return sorted({self.page + 1, 3 * self.chunk + 1} | around)

    @property
    def long(self) -> int:
        """A prompt of more than 32 pages and of at least two dense limits: tables and lists of a
        size that shorter prompts never have."""
        return max(33 * self.page, 2 * self.limit, self.lengths[-1]) + 5

    @property
    def window(self) -> int:
        """Pages of a lane that holds any of them."""
        return pages_for(self.long + ROOM, self.page)

    @property
    def pages(self) -> int:
        """Pages of the pool: a window a lane."""
        return LANES * self.window


def pool_of(edges: Edges, classes: int) -> int:
    """Page ids of a pool in `classes`: a window a lane, wherever the lanes lie."""
    if classes == 1:
        return edges.pages
    return classes * (edges.pages + 1)
