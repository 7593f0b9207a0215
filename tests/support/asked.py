"""A module of the tests in a process of its own, which is asked line by line.

Owns the process and both ends of the lines between: JSON in, JSON out. Knows no questions. Triton
decides between compiling and interpreting when a kernel is defined, so a process is of one kind
from its start; in this way no other test is touched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from streamglm.kernels.launch import SWITCH

THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The interpreter's products are small: beside other tests, threads that wait cost three times."""


class Asked:
    """The process that runs `module`, from the tests' side. Kernels are interpreted there."""

    def __init__(self, module: str) -> None:
        paths = [path for path in sys.path if path]
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **THREADS, SWITCH: "1", "PYTHONPATH": os.pathsep.join(paths)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=20)

    def ask(self, *question: Any) -> Any:
        """The answer. Raises `AssertionError` when the process ends instead."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the process ended at {question}"
        return json.loads(line)


def answer(told: Callable[..., Any]) -> None:
    """The process's side, until stdin ends: each question is `told`'s arguments."""
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(told(*json.loads(line))) + "\n")
        sys.stdout.flush()
