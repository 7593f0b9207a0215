"""Kernels that are compiled ahead are the ones that are launched, and nothing depends on it.

One process, whose Triton compiles (`support.compiles`), goes through every scene.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from streamglm.kernels.launch import SWITCH

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not there for this machine"
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if name != SWITCH}
    cache = str(tmp_path_factory.mktemp("triton"))
    path = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-m", "support.compiles"],
        env={**env, "PYTHONPATH": path, "TRITON_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_launches_find_what_was_compiled_ahead(told: dict[str, Any]) -> None:
    """Red where a launch is asked for without its attributes, or without its options."""
    assert told["recorded"] == told["compiled"] >= 4
    assert told["late"] == []


def test_what_was_not_compiled_ahead_is_told_when_it_is_launched(told: dict[str, Any]) -> None:
    assert told["not recorded"] == 1


def test_a_second_start_compiles_nothing(told: dict[str, Any]) -> None:
    assert told["again"] == 0


def test_a_machine_of_one_core_starts_no_process(told: dict[str, Any]) -> None:
    assert told["one core"] == 0


def test_processes_that_fail_fail_no_start(told: dict[str, Any]) -> None:
    assert told["broken"] == 0
    assert told["why"].startswith("the other kernels are compiled when they are launched: ")


def test_what_replies_launch_is_foreseen_and_nothing_is_moved(told: dict[str, Any]) -> None:
    """Red where the steps leave out verify windows, noise or prompts behind the dense limit."""
    assert told["met"] > 20
    assert told["unforeseen"] == []
    assert told["same"]


def test_processes_end_with_who_asked(told: dict[str, Any]) -> None:
    """Red where the children, or the process that made them, do not watch who asked."""
    assert told["left"] == 1
