"""`streamglm check --kernels`: every kernel keeps its contract at the model's sizes, on a GPU.

Owns the run over all kernels and the refusal without a GPU. What is promised, and the sizes, are
in the operators' contracts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib.metadata import version

import torch

from streamglm.commands.check_cases import Finding
from streamglm.errors import SettingError
from streamglm.kernels import OPS
from streamglm.kernels.contract import TRITON, Contract, ContractBroken
from streamglm.kernels.launch import NoDevice, device

CLAIM = "full-size cases of kernels keep their contracts"


def kernel_findings(
    told: Callable[[str], object], ops: Iterable[Contract] = OPS
) -> tuple[Finding, ...]:
    """Verify the full-size cases of all kernels; `told` hears what happens now.

    Raises `SettingError` without a GPU.
    """
    try:
        device()
    except NoDevice as error:
        raise SettingError(f"--kernels: {error}") from None
    return tuple(_finding(op, told) for op in ops if op.kernel)


def about() -> dict[str, str]:
    """What the bits and the errors of kernels depend on, beside the machine."""
    return {"GPU": torch.cuda.get_device_name(), "triton": version("triton")}


def _finding(op: Contract, told: Callable[[str], object]) -> Finding:
    assert op.kernel
    broken, start = [], time.perf_counter()
    for case in op.kernel.full:
        told(f"{op.name}, {case.name}")
        try:
            op.verify(case, TRITON)
        except ContractBroken as error:
            broken.append(str(error))
    return Finding(op.name, len(op.kernel.full), tuple(broken), time.perf_counter() - start)
