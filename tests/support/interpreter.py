"""A process in which Triton's interpreter runs kernels on the CPU, contract by contract.

Owns what that process does with a question: operator, case and fault in; what broke, or an empty
text, out. Run as a module, this file is that process.
"""

from __future__ import annotations

import traceback

from streamglm.kernels.launch import interpreted
from support.asked import Asked, answer


class Interpreter(Asked):
    """The process, from the tests' side."""

    def __init__(self) -> None:
        super().__init__("support.interpreter")

    def broken(self, op: str, case: str, fault: str = "") -> str:
        """What of its contract the kernel of `op` breaks in a case, with a fault planted in it."""
        found: str = self.ask(op, case, fault)
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


def told(name: str, case: str, fault: str) -> str:
    """What broke."""
    from streamglm.kernels.contract import ContractBroken

    try:
        verify(name, case, fault)
    except ContractBroken as broken:
        return str(broken)
    except Exception:
        return "crashed: " + traceback.format_exc()
    return ""


if __name__ == "__main__":
    with interpreted():
        answer(told)
