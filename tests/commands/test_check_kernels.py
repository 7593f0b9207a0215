"""`streamglm check --kernels` runs every kernel's full-size cases, and refuses without a GPU."""

from __future__ import annotations

import math

import pytest
import torch

from streamglm import cli
from streamglm.commands import check_kernels
from streamglm.commands.check_receipt import Receipt
from streamglm.errors import SettingError
from streamglm.kernels import OPS
from streamglm.kernels.contract import TRITON, Case, Contract, ContractBroken
from streamglm.kernels.launch import NoDevice

KERNELS = [op for op in OPS if op.kernel]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--kernels"]) == 1
    assert "--kernels: kernels need a CUDA device" in capsys.readouterr().err
    with pytest.raises(SettingError, match="CUDA"):
        check_kernels.kernel_findings(lambda text: None)


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """What would run on a GPU; the last contract of `OPS` with a kernel is broken in each case."""
    seen = []

    def verify(op: Contract, case: Case, form: str) -> None:
        seen.append((op.name, case.name, form))
        if op is KERNELS[-1]:
            raise ContractBroken(f"{op.name}, {case.name}: y is off")

    monkeypatch.setattr(Contract, "verify", verify)
    monkeypatch.setattr(check_kernels, "device", lambda: torch.device("cuda"))
    return seen


def test_every_full_size_case_of_every_kernel_is_run(verified: list[tuple[str, str, str]]) -> None:
    told: list[str] = []
    findings = check_kernels.kernel_findings(told.append, processes=1)
    full = [(op.name, case.name, TRITON) for op in KERNELS if op.kernel for case in op.kernel.full]
    assert sorted(verified) == sorted(full)
    assert sorted(f"{name}, {case}" for name, case, _ in full) == sorted(
        line.partition(":")[0] for line in told
    )
    broken = [line for line in told if line.endswith(": y is off, 0.0 s")]
    assert len(broken) == len(KERNELS[-1].kernel.full)  # type: ignore[union-attr]
    assert sum(one.compared for one in findings) == len(full)
    assert [one.name for one in findings if not one.ok] == [KERNELS[-1].name]


def test_large_cases_begin_first(verified: list[tuple[str, str, str]]) -> None:
    """A case that takes a minute and begins last has all other processes wait; red where cases run
    in the order of their operators."""
    check_kernels.kernel_findings(lambda text: None, processes=1)
    sizes = {
        (op.name, case.name): math.prod(case.sizes.values())
        for op in KERNELS
        if op.kernel
        for case in op.kernel.full
    }
    begun = [sizes[name, case] for name, case, _ in verified]
    assert begun == sorted(begun, reverse=True)


def test_what_breaks_is_in_the_receipt(verified: list[tuple[str, str, str]]) -> None:
    findings = check_kernels.kernel_findings(lambda text: None, processes=1)
    receipt = Receipt.of({"GPU": "g"}, findings, check_kernels.CLAIM)
    assert not receipt.ok
    assert f"{KERNELS[-1].name}, " in "".join(receipt.differences())
    kept = Receipt.of({"GPU": "g"}, findings[:-1], check_kernels.CLAIM)
    assert kept.verdict.endswith("full-size cases of kernels keep their contracts.")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_process_that_verifies_nothing_is_no_pass(
    verified: list[tuple[str, str, str]],
) -> None:
    """Its processes find no GPU here, and say so; red where what they raise is dropped."""
    with pytest.raises(NoDevice):
        check_kernels.kernel_findings(lambda text: None, KERNELS[:1], processes=2)
