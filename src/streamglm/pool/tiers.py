"""Places for kept states: numbered slots, and budgets of bytes.

Owns the counting. Knows no states. Invariant: never more is taken than there is, and a slot is
given back by the one who has it.
"""

from __future__ import annotations

import heapq


class Slots:
    """Slots 0 to `total - 1`, each for the fixed part of one state; the lowest goes first."""

    __slots__ = ("_free", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total))

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """A free slot. There must be one."""
        assert self._free, f"all {self.total} slots are taken"
        return heapq.heappop(self._free)

    def give(self, slot: int) -> None:
        """Give a slot back. It must be taken."""
        assert 0 <= slot < self.total, f"slot {slot} of {self.total}"
        assert slot not in self._free, f"slot {slot} is free already"
        heapq.heappush(self._free, slot)


class Budget:
    """`total` bytes."""

    __slots__ = ("total", "used")

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0

    @property
    def free(self) -> int:
        return self.total - self.used

    def take(self, size: int) -> None:
        """Take bytes that are free."""
        assert 0 < size <= self.free, f"{size} bytes of {self.free} free"
        self.used += size

    def give(self, size: int) -> None:
        """Give bytes back that were taken."""
        assert 0 < size <= self.used, f"{size} bytes back of {self.used} taken"
        self.used -= size
