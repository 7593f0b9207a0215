"""The GPU of a rank: which one, how much of its memory there is, and what is left alone.

Owns the question, asked in a process of its own where the one that asks may not hold a GPU: the
server never does. Knows no plans.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from streamglm.pool.plan import room_of

_DRIVER = Path("/dev/nvidiactl")
_ASK = (
    "import json, torch.cuda as gpu; "
    "print(json.dumps([list(gpu.mem_get_info(d)) for d in range(gpu.device_count())]))"
)
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one GPU."""

    free: int
    total: int

    def room(self, weights: int) -> int:
        """What caches may take beside weights that are still to be loaded: a reserve is left alone,
        for what a pass computes in, for graphs and for the libraries."""
        return room_of(self.free - weights, self.total, unified=False)


def found(*, asked: bool = False) -> tuple[Memory, ...]:
    """Every GPU that torch sees, in its order; where there is no driver, torch is not asked unless
    a GPU is `asked` for."""
    if not asked and not _DRIVER.exists():
        return ()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        )
        return tuple(Memory(*one) for one in json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
