"""Every Triton kernel keeps its contract under Triton's interpreter, and every fault is red.

A new kernel is picked up from `OPS` without a change here. The interpreter runs in a process of
its own (`support.interpreter`), so that nothing here depends on which test came first.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
import torch

from streamglm.kernels import OPS, launch
from streamglm.kernels.contract import TRITON, Case, Contract, Fault, Kernel
from support.interpreter import Interpreter

KERNELS = [(op, op.kernel) for op in OPS if op.kernel]
CASES = [(op, case) for op, kernel in KERNELS for case in kernel.cases]
FAULTS = [(op, kernel, fault) for op, kernel in KERNELS for fault in op.faults_of(TRITON)]

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not there for this machine"
)


@needs_triton
@pytest.mark.parametrize(
    ("op", "case"), CASES, ids=[f"{op.name}-{case.name}" for op, case in CASES]
)
def test_the_kernel_keeps_the_contract(op: Contract, case: Case, interpreter: Interpreter) -> None:
    assert interpreter.broken(op.name, case.name) == ""


@needs_triton
@pytest.mark.parametrize(
    ("op", "kernel", "fault"), FAULTS, ids=[f"{op.name}-{fault.name}" for op, _, fault in FAULTS]
)
def test_the_planted_fault_is_red(
    op: Contract, kernel: Kernel, fault: Fault, interpreter: Interpreter
) -> None:
    """In one of the kernel's cases at least, and by the contract, not by a crash."""

    def found() -> Iterator[str]:
        for case in kernel.cases:
            yield interpreter.broken(op.name, case.name, fault.name)

    assert next((told for told in found() if told), "nothing").startswith(op.name)


def test_what_the_environment_says_moves_no_tensor_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(launch.SWITCH, "1")
    assert not launch.by_kernel(torch.zeros(1))


def test_kernels_are_interpreted_only_in_a_process_made_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(launch.SWITCH, raising=False)
    with pytest.raises(launch.NoDevice, match="starts with TRITON_INTERPRET=1"):
        launch.interpreted().__enter__()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_kernels_without_a_gpu_are_refused_by_name() -> None:
    op, kernel = KERNELS[0]
    with pytest.raises(launch.NoDevice, match="kernels need a CUDA device"):
        op.verify(kernel.full[0], TRITON)


def test_every_kernel_has_cases_of_both_sizes_and_says_why() -> None:
    for op, kernel in KERNELS:
        assert kernel.cases, op.name
        assert kernel.full, op.name
        assert kernel.why, op.name
        assert kernel.promises or op.promises, op.name
