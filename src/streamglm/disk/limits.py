"""The numbers of one disk tier: what it may hold, and how large its records are.

Owns the arithmetic. Knows no files. Sizes are of one rank, in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamglm.disk.record import HEADER_BYTES

QUEUE_BYTES = 256 << 20
"""Copied by the ranks and not written yet, on all of them: the memory that writing may take."""
BLOCK_BYTES = 4096
"""What a folder's list of names takes at least: as much as a record may add or give back."""
ROW_BYTES = 512
"""What a record adds to the index, or less."""
MARGIN = 32768
"""Kept free under the limit, for what the index grows by in one commit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`total` bytes of a folder; pages and fixed parts as they are copied."""

    total: int
    page: int
    fixed: int
    queue: int = QUEUE_BYTES

    def record(self, *, fixed: bool, tokens: int) -> int:
        """The most that a record takes on one rank: nothing in it packs."""
        return (
            (self.fixed if fixed else self.page) + tokens + HEADER_BYTES + BLOCK_BYTES + ROW_BYTES
        )
