"""A GPU that is not there, for Triton: what the compiler asks of one, and nothing that runs on it.

Owns that answer. Knows no kernels. A process that only compiles needs no driver, no context and no
memory of a GPU: the compiler asks for the target alone, and the cache's key holds nothing else.
Invariant: a kernel that is compiled for it is the one that a GPU of that target compiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from triton.backends.compiler import GPUTarget
from triton.runtime import driver


@dataclass(frozen=True, slots=True)
class Absent:
    """What Triton asks of its driver before it compiles; launching is not among it."""

    target: GPUTarget

    def get_current_target(self) -> GPUTarget:
        """What kernels are compiled for."""
        return self.target

    def get_current_device(self) -> int:
        """The first."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The default one."""
        return 0


@contextmanager
def absent(target: GPUTarget) -> Iterator[None]:
    """Triton is told of a GPU of `target` that is not there, in this process."""
    before = driver._active
    driver.set_active(Absent(target))
    try:
        yield
    finally:
        driver._active = before
