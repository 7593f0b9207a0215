"""Places for kept states: numbered slots, and budgets of bytes a rank.

Owns the counting. Knows no states. Invariant: never more is taken than there is, and a slot is
given back by the one who has it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


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
    """`total` bytes on each of some ranks. Whatever is placed takes its bytes of each of them, and
    not of all the same where one alone holds rows."""

    __slots__ = ("_used", "total")

    def __init__(self, total: int, ranks: int = 1) -> None:
        self.total = total
        self._used = [0] * ranks

    @property
    def used(self) -> int:
        """Bytes of the rank with the most."""
        return max(self._used)

    @property
    def free(self) -> list[int]:
        """Bytes of each rank."""
        return [self.total - used for used in self._used]

    def take(self, sizes: Sequence[int]) -> None:
        """Take bytes that are free, of each rank."""
        for size, free in zip(sizes, self.free, strict=True):
            assert 0 < size <= free, f"{size} bytes of {free} free"
        self._used = [used + size for used, size in zip(self._used, sizes, strict=True)]

    def give(self, sizes: Sequence[int]) -> None:
        """Give bytes back that were taken."""
        for size, used in zip(sizes, self._used, strict=True):
            assert 0 < size <= used, f"{size} bytes back of {used} taken"
        self._used = [used - size for used, size in zip(self._used, sizes, strict=True)]
