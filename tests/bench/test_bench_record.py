"""Percentiles, and the one line that a run leaves."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from bench.record import commit, machine, percentile, record, spread


@pytest.mark.parametrize(
    ("percent", "value"), [(1, 1), (50, 50), (95, 95), (99, 99), (99.5, 100), (100, 100)]
)
def test_a_percentile_is_the_value_of_its_rank(percent: float, value: float) -> None:
    """Interpolation would give 50.5 for the middle of 1 to 100."""
    assert percentile(list(range(100, 0, -1)), percent) == value


def test_a_percentile_of_few_values_is_one_of_them() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"p50": 2.0, "p95": 3.0, "p99": 3.0}


def test_a_percentile_of_nothing_is_not_a_number() -> None:
    assert math.isnan(percentile([], 50))


def test_a_line_says_when_where_and_what(tmp_path: Path) -> None:
    for count in (1, 2):
        path = record("x", {"tokens": 3}, {"ms": count}, argv=["x", "--a b"], folder=tmp_path)
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["command"] == "python -m bench x '--a b'"
    assert set(first) == {"date", "commit", "command", "machine", "shapes", "numbers"}
    assert second["numbers"] == {"ms": 2}


def test_the_machine_is_described_without_its_name() -> None:
    assert set(machine()) == {"cpu", "cores", "system", "python", "torch"}
    assert commit()
