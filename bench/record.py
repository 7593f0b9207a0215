"""One JSON line per run: when, where, which code, which command, which shapes, which numbers.

Owns the form of a result and the files under `results/`. Invariant: a line is written only by a
run whose equalities held; a run that is void raises `Void` and leaves no number behind.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"


class Void(Exception):
    """The run proves nothing: an equality failed, or nothing was measured."""


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of `values` do not exceed (nearest rank).

    A value that was really seen, so p99 of fewer than 100 values is their largest. NaN for none.
    """
    if not values:
        return math.nan
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]


def spread(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99 of `values`, in their unit."""
    return {f"p{percent}": percentile(values, percent) for percent in (50, 95, 99)}


def machine() -> dict[str, Any]:
    """What the numbers depend on. Nothing in it names the host."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def commit() -> str:
    """The commit that is checked out, with `+changes` if files differ from it."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return head + ("+changes" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=20
    )
    return done.stdout.strip()


def record(
    measurement: str,
    shapes: Mapping[str, Any],
    numbers: Mapping[str, Any],
    *,
    argv: Sequence[str] | None = None,
    folder: Path = RESULTS,
) -> Path:
    """Append the line of one run to `folder/MEASUREMENT.jsonl`; the file."""
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": "python -m bench " + shlex.join(sys.argv[1:] if argv is None else argv),
        "machine": machine(),
        "shapes": dict(shapes),
        "numbers": dict(numbers),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{measurement}.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return path
