"""`python -m bench kernels`: refused without a GPU, whole in its tiny mode, void when broken."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import kernel_peers, kernel_plot, kernel_sizes, kernels
from bench.record import ROOT, Void
from streamglm.commands.check_cases import Finding
from streamglm.kernels import OPS
from streamglm.kernels.contract import Case, Contract

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
    args = argparse.Namespace(tiny=False, only=[""], runs=1, results=tmp_path, goals=False)
    with pytest.raises(Void, match=r"need a CUDA device.*--tiny"):
        kernels.run(args)
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_breaks_its_contract_has_no_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two operators, of which one is broken: the other is timed, and the run fails all the same."""
    good, bad = "page_move.copy", "page_move.pack"

    def findings(told: object, ops: list[Contract]) -> list[Finding]:
        said = {bad: ("y is off",)}
        return [Finding(op.name, 1, said.get(op.name, ()), 0.0) for op in ops]

    def line(op: Contract, kernel: object, case: Case, *rest: object) -> kernels.Line:
        return kernels.Line(op.name, case.name, 2.0, 1.0, None, {})

    for name, stand_in in (
        ("kernel_findings", findings),
        ("_line", line),
        ("_need_gpu", lambda: None),
        ("_ceilings", lambda tiny: LIMIT),
    ):
        monkeypatch.setattr(kernels, name, stand_in)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    args = argparse.Namespace(tiny=False, only=[good, bad], runs=1, results=tmp_path, goals=False)
    assert kernels.run(args) == 1
    assert "no time: y is off" in capsys.readouterr().out
    numbers = json.loads((tmp_path / "kernels.jsonl").read_text())["numbers"]
    assert numbers
    assert all(name.startswith(good) for name in numbers)


def test_goals_are_of_operators_that_exist_and_repeat_no_case() -> None:
    found = {op.name: op.kernel for op in OPS if op.kernel and op.kernel.ready}
    assert set(kernel_sizes.GOALS) <= set(found)
    for name, kernel in found.items():
        assert kernel
        cases = kernel_sizes.sizes_of(name, kernel, goals=False)
        sizes = [tuple(sorted(case.sizes.items())) for case in cases]
        assert len(set(sizes)) == len(sizes), name
        assert cases[: len(kernel.full)] == kernel.full


def test_goals_of_lists_are_without_gaps_over_as_many_latents_as_they_say() -> None:
    op = next(op for op in OPS if op.name == "latent_attention.selected_prompt")
    goal = kernel_sizes.GOALS[op.name][0].sizes
    assert (goal["M"], goal["L"], goal["PAST"]) == (2048, 2048, 131072)
    small = {**goal, "M": 3, "H": 2, "D": 16, "L": 128, "PAST": 1024}
    values = op.inputs(small, kernel_sizes.Repeated(np.random.PCG64(1)))
    assert values["seen"].all()
    assert np.isfinite(values["latents"]).all()
    assert values["latents"].shape == (16, 64, 16)
    slots = values["slots"]
    assert (np.diff(slots, axis=1) > 0).all()
    assert 0 <= slots.min() < slots.max() < 1024
    assert slots.max() > 900
    assert not np.array_equal(slots[0], slots[1])


def test_repeated_noise_is_noise_of_the_size_asked_for() -> None:
    noise = kernel_sizes.Repeated(np.random.PCG64(1))
    large = noise.standard_normal((3, 2_000_003), np.float32)
    assert large.shape == (3, 2_000_003)
    assert large.dtype == np.float32
    assert not np.array_equal(large[0], large[1])
    assert 0.9 < large.std() < 1.1
    assert noise.random(7, np.float32).max() < 1.0
    assert isinstance(noise.random(), float)


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
