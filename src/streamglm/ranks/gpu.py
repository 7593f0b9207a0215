"""The GPU of a rank: which one, how much of its memory there is, and what is left alone.

Owns the question, asked in a process of its own where the one that asks may not hold a GPU: the
server never does. Knows no plans.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from streamglm.pool.plan import room_of

_DRIVER = Path("/dev/nvidiactl")
_ASK = (
    "import json, torch.cuda as gpu; "
    "print(json.dumps([[*gpu.mem_get_info(d), *gpu.get_device_capability(d)] "
    "for d in range(gpu.device_count())]))"
)
CAPABLE = (9, 0)
"""The compute capability that the kernels need: they take more shared memory than others have."""
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one GPU, and its compute capability."""

    free: int
    total: int
    capability: tuple[int, int] = CAPABLE

    @property
    def capable(self) -> bool:
        """Whether the kernels run there."""
        return self.capability >= CAPABLE

    def room(self, weights: int) -> int:
        """What caches may take beside weights that are still to be loaded: a reserve is left alone,
        for what a pass computes in, for graphs and for the libraries."""
        return room_of(self.free - weights, self.total, unified=False)


def found(*, asked: bool = False) -> tuple[Memory, ...]:
    """Every GPU that torch sees, in its order; where there is no driver, torch is not asked unless
    a GPU is `asked` for."""
    return _told() if asked or _DRIVER.exists() else ()


@functools.cache
def _told() -> tuple[Memory, ...]:
    """Asked once: a process that imports torch takes seconds, and a start asks for the device and
    for its room."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        )
        told = json.loads(done.stdout)
        return tuple(Memory(free, total, (major, minor)) for free, total, major, minor in told)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
