"""The docs' figures of kernels are the last that a GPU gave, case by case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamglm import figures


def run(date: str, device: str, tiny: bool = False, **seconds: float) -> str:
    """A line of the records; `seconds` by case of `linear.window`."""
    numbers: dict[str, Any] = {
        f"linear.window, {case}": {
            "op": "linear.window", "case": case, "ours": ours, "floor": 1e-6, "peers": {"p": 3e-6},
        }
        for case, ours in seconds.items()
    }  # fmt: skip
    ceilings = {"bytes_a_second": 4.22e12, "flops": 7.9e14}
    shapes = {"device": device, "tiny": tiny, "ceilings": ceilings}
    return json.dumps({"date": date, "shapes": shapes, "numbers": numbers}) + "\n"


def test_of_every_case_the_last_time_counts(tmp_path: Path) -> None:
    file = tmp_path / "kernels.jsonl"
    file.write_text(
        run("2026-01-01T00:00:00", "old", a=9e-6, b=4e-6)
        + run("2026-01-02T00:00:00", "new", a=2e-6)
        + run("2026-01-03T00:00:00", "none", tiny=True, a=1e-6)
    )
    found = figures.last(file)
    assert found is not None
    assert found.about == (
        "new, 2026-01-02: a copy of memory 4.22 TB/s, a bfloat16 product 790 TFLOP/s."
    )
    assert list(found.rows("linear")) == [
        ("`linear.window`", "a", "2.0", "0.50", "p 3.0 (1.50x)"),
        ("`linear.window`", "b", "4.0", "0.25", "p 3.0 (0.75x)"),
    ]
    assert list(found.rows("line")) == []


def test_without_a_run_there_are_none(tmp_path: Path) -> None:
    assert figures.last(tmp_path / "none.jsonl") is None
    (tmp_path / "tiny.jsonl").write_text(run("2026-01-03T00:00:00", "none", tiny=True, a=1e-6))
    assert figures.last(tmp_path / "tiny.jsonl") is None
