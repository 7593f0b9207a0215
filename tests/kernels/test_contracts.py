"""Every operator keeps its contract, and every planted fault turns its contract red.

A new operator is picked up from `OPS` without a change here.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from streamglm.kernels import OPS
from streamglm.kernels.contract import (
    NUMPY,
    TILINGS,
    Case,
    Contract,
    ContractBroken,
    Fault,
    Outputs,
    Values,
)
from streamglm.kernels.tiling import Tiling

CASES = [(op, case, form) for op in OPS for case in op.cases for form in op.forms]
FAULTS = [(op, fault) for op in OPS for fault in op.faults]


@pytest.mark.parametrize(
    ("op", "case", "form"), CASES, ids=[f"{op.name}-{case.name}-{form}" for op, case, form in CASES]
)
def test_the_contract_is_kept(op: Contract, case: Case, form: str) -> None:
    op.verify(case, form)


@pytest.mark.parametrize(
    ("op", "fault"), FAULTS, ids=[f"{op.name}-{fault.name}" for op, fault in FAULTS]
)
def test_the_planted_fault_is_red(op: Contract, fault: Fault) -> None:
    for form in op.forms:
        with pytest.raises(ContractBroken, match=op.name):
            verify_with(op, form, fault)


def verify_with(op: Contract, form: str, fault: Fault) -> None:
    for case in op.cases:
        op.verify(case, form, run=lambda values: fault.run(values, form))


@pytest.mark.parametrize(
    ("op", "case", "form"),
    [(op, op.cases[0], form) for op in OPS for form in op.forms],
    ids=[f"{op.name}-{form}" for op in OPS for form in op.forms],
)
def test_the_contract_is_kept_row_by_row_too(
    monkeypatch: pytest.MonkeyPatch, op: Contract, case: Case, form: str
) -> None:
    """As on a machine where the self-check fails."""
    slow = dict.fromkeys(TILINGS, Tiling((1,), entries=False))
    for module in list(sys.modules.values()):
        if getattr(module, "TILINGS", None) is TILINGS:
            monkeypatch.setattr(module, "TILINGS", slow)
    op.verify(case, form)


def test_an_output_that_nobody_wrote_is_red() -> None:
    op = next(op for op in OPS if op.name == "layer_norm")

    def forgets_a_row(values: Values) -> Outputs:
        y = np.empty_like(values["x"])
        y[:-1] = op.run(values, NUMPY)["y"][:-1]
        return {"y": y}

    with pytest.raises(ContractBroken, match="off by nan"):
        op.verify(op.cases[0], NUMPY, run=forgets_a_row)


def test_every_contract_plants_a_fault_and_says_why() -> None:
    for op in OPS:
        assert op.faults, op.name
        assert op.why, op.name
        assert op.arguments, op.name
    names = [op.name for op in OPS]
    assert len(set(names)) == len(names)
