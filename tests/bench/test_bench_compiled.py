"""`python -m bench compiled`: every full-size case of a kernel is compiled, and none is run."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import compiled
from bench.record import ROOT, Void
from streamglm.kernels import OPS
from streamglm.kernels.contract import Outputs, Values
from streamglm.kernels.launch import SWITCH

WRITE = next(op for op in OPS if op.name == "page_write.fp8")

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not there for this machine"
)


@needs_triton
def test_a_kernel_is_compiled_once_for_each_of_its_full_size_cases(tmp_path: Path) -> None:
    """In a process of its own: Triton here may have been told to interpret. Red without the
    patch of `JITFunction.run`, for then it looks for a GPU."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", "compiled", "--only", WRITE.name],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if name != SWITCH},
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "TRITON_CACHE_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert WRITE.kernel
    for case in WRITE.kernel.full:
        assert done.stdout.count(f"_write_kernel of {WRITE.name}, {case.name}\n") == 1
    assert done.stdout.count("_write_kernel") == len(WRITE.kernel.full)


def test_kernels_that_would_be_interpreted_are_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    with pytest.raises(Void, match="unset it"):
        compiled.run(argparse.Namespace(only=""))


@needs_triton
def test_a_kernel_that_does_not_compile_is_void_by_name() -> None:
    def broken(values: Values, form: str) -> Outputs:
        raise TypeError("initial value for `at` is of type int32")

    with pytest.raises(Void, match=r"page_write\.fp8, latents of a window: initial value"):
        list(compiled.compiled(replace(WRITE, run=broken)))
