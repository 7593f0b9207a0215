"""The last recorded times of kernels on a GPU, for the docs.

Owns the reading of `docs/receipts/records/kernels.jsonl`: lines of `python -m bench kernels` that a
receipt speaks of, one JSON object a run. Knows no operator. A run in the interpreter (`tiny`) has
no figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
RECORDS = _DOCS / "receipts" / "records" / "kernels.jsonl"


@dataclass(frozen=True, slots=True)
class Figures:
    """One run's: `lines` by operator and case, as the bench recorded them."""

    about: str
    """Device, date and ceilings in a sentence."""
    lines: tuple[dict[str, Any], ...]

    def rows(self, folder: str) -> Iterator[tuple[str, ...]]:
        """Cells of the operators whose names begin with `folder`: operator, case, microseconds,
        share of the floor, peers."""
        for line in self.lines:
            if line["op"].partition(".")[0] == folder:
                ours = line["ours"]
                peers = (f"{n} {_us(s)} ({s / ours:.2f}x)" for n, s in line["peers"].items())
                share = f"{line['floor'] / ours:.2f}"
                yield f"`{line['op']}`", line["case"], _us(ours), share, "; ".join(peers)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f}"


def last(records: Path = RECORDS) -> Figures | None:
    """Of every size the last time that was measured, and the run that came last; None without."""
    told = records.read_text().splitlines() if records.is_file() else []
    runs = [json.loads(line) for line in told]
    real = [run for run in runs if not run["shapes"]["tiny"]]
    if not real:
        return None
    newest = real[-1]
    lines: dict[str, dict[str, Any]] = {}
    for run in real:
        lines |= run["numbers"]
    shapes = newest["shapes"]
    copy, product = (shapes["ceilings"][name] / 1e12 for name in ("bytes_a_second", "flops"))
    about = (
        f"{shapes['device']}, {newest['date'][:10]}: a copy of memory {copy:.2f} TB/s, a bfloat16 "
        f"product {product:.0f} TFLOP/s."
    )
    return Figures(about, tuple(lines.values()))
