"""`python -m bench kernels`: refused without a GPU, whole in its tiny mode, void when broken."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench import kernel_peers, kernel_plot, kernels
from bench.record import ROOT, Void
from streamglm.kernels import OPS
from streamglm.kernels.contract import TRITON, Case, Contract, ContractBroken

LIMIT = kernels.Ceilings(bytes_a_second=100.0, flops=1000.0)


def test_the_tiny_mode_makes_table_line_and_plot(tmp_path: Path) -> None:
    """In a process of its own, for it interprets kernels."""
    command = [sys.executable, "-m", "bench", "kernels", "--tiny", "--runs", "1"]
    done = subprocess.run(
        [*command, "--only", "page_move", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "No GPU is there" in done.stdout.replace("\n", " ")
    line = json.loads((tmp_path / "kernels.jsonl").read_text())
    assert set(line["numbers"]) == {f"page_move.{n}, a few pages" for n in ("copy", "pack", "fill")}
    pack = line["numbers"]["page_move.pack, a few pages"]
    assert pack["ours"] > 0
    assert pack["floor"] > 0
    assert set(pack["peers"]) == {"torch"}
    assert line["shapes"]["device"].startswith("No GPU is there")
    assert "page_move.fill" in (tmp_path / "kernels.svg").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_timed(tmp_path: Path) -> None:
    args = argparse.Namespace(tiny=False, only="", runs=1, results=tmp_path)
    with pytest.raises(Void, match=r"need a CUDA device.*--tiny"):
        kernels.run(args)
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_breaks_its_contract_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    op = next(op for op in OPS if op.kernel and op.kernel.ready)
    assert op.kernel

    def verify(self: Contract, case: Case, form: str) -> None:
        assert form == TRITON
        raise ContractBroken("y is off")

    monkeypatch.setattr(Contract, "verify", verify)
    args = argparse.Namespace(tiny=False, runs=1)
    with pytest.raises(Void, match="y is off"):
        kernels._line(op, op.kernel, op.kernel.cases[0], LIMIT, args)


def test_the_floor_is_the_slower_of_bytes_and_operations() -> None:
    assert LIMIT.floor(50, 10) == 0.5
    assert LIMIT.floor(50, 900) == 0.9


def test_peers_are_of_operators_that_exist() -> None:
    names = {op.name for op in OPS if op.kernel and op.kernel.ready}
    assert {ours for ours, _, _, _ in kernel_peers.PEERS} <= names
    assert [name for name, _ in kernel_peers.of("page_move.pack")] == ["torch"]
    assert list(kernel_peers.of("page_move.fill")) == []


def test_a_bar_ends_at_the_floor() -> None:
    drawn = kernel_plot.svg([("half", 0.5), ("past <it>", 3.0)], "a & b")
    assert 'width="200.0"' in drawn
    assert 'width="400.0"' in drawn
    assert "past &lt;it&gt;" in drawn
    assert "a &amp; b" in drawn
