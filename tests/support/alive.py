"""Whether a process runs."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    """A process of this number runs, and is not merely waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
