"""A process in which Triton's interpreter runs kernels on the CPU, contract by contract.

Owns that process and the lines between it and the tests. Triton decides between compiling and
interpreting when a kernel is defined, so a process is of one kind from its start; in this way no
other test is touched. Run as a module, this file is that process: a line of JSON [operator, case,
fault] in, a line of JSON out: what broke, or an empty text.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from types import TracebackType
from typing import Self

from streamglm.kernels.launch import SWITCH, interpreted

THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The interpreter's products are small: beside other tests, threads that wait cost three times."""


class Interpreter:
    """The process, from the tests' side."""

    def __init__(self) -> None:
        paths = [path for path in sys.path if path]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.interpreter"],
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

    def broken(self, op: str, case: str, fault: str = "") -> str:
        """What of its contract the kernel of `op` breaks in a case, with a fault planted in it."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([op, case, fault]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the process ended at {op}, {case}"
        found: str = json.loads(line)
        return found


def verify(name: str, case_name: str, fault_name: str) -> None:
    """Raises `ContractBroken`, or whatever the kernel raises."""
    from streamglm.kernels import OPS
    from streamglm.kernels.contract import TRITON

    op = next(op for op in OPS if op.name == name)
    assert op.kernel
    case = next(case for case in op.kernel.cases if case.name == case_name)
    if not fault_name:
        return op.verify(case, TRITON)
    fault = next(fault for fault in op.faults_of(TRITON) if fault.name == fault_name)
    return op.verify(case, TRITON, run=lambda values: fault.run(values, TRITON))


def main() -> None:
    """Answer until stdin ends."""
    import torch

    from streamglm.kernels.contract import ContractBroken

    torch.set_num_threads(1)
    with interpreted():
        for line in sys.stdin:
            try:
                verify(*json.loads(line))
                told = ""
            except ContractBroken as broken:
                told = str(broken)
            except Exception:
                told = "crashed: " + traceback.format_exc()
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
