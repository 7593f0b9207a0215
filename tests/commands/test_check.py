"""`streamglm check` finds what is broken, says so in table, receipt and status, and passes here.

The cases run on a tiny model in this process, behind a rank's own checks; the whole command on the
built-in model starts real ranks.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from streamglm import cli
from streamglm.commands import check
from streamglm.commands.check_cases import (
    IDLE,
    Bed,
    Comparison,
    Finding,
    cases,
    digests,
    find,
    poison_changes_nothing,
)
from streamglm.commands.check_edges import LANES, SLOTS, Edges
from streamglm.commands.check_rank import Watched
from streamglm.commands.check_receipt import Receipt
from streamglm.commands.check_streams import Store
from streamglm.model.executor import Executor
from streamglm.model.kept import KeptTensors
from streamglm.model.passes import HostPasses
from streamglm.model.spec import ModelSpec
from streamglm.model.state import FixedParts
from streamglm.model.tables import PageTables
from streamglm.pool.tensors import PoolTensors
from streamglm.step import Step, StepResult
from support.streams import Bench
from support.tiny import TinyShape, tiny_model, write

CASES = dict((*cases(), IDLE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of each kind, and chunks of two pages, so that few rows meet every boundary."""
    path = tmp_path_factory.mktemp("tiny")
    write(tiny_model(TinyShape(num_hidden_layers=4), 0), path, chunk_rows=128)
    return path


class Checked:
    """A rank of a check in this process."""

    def __init__(self, bench: Bench) -> None:
        self._mirror = bench.ranks.mirror
        self._watched = Watched(bench.executor)

    async def run(self, step: Step, digest: int) -> StepResult:
        self._mirror.check(step, digest)
        result = self._watched.run(step)
        self._mirror.apply(step)
        return result


def bed(folder: Path, *, poison: bool = True) -> Bed:
    torch.set_num_threads(1)
    spec = ModelSpec.from_folder(folder)
    pages = Edges.of(spec).pages
    bench = Bench(folder, pages=pages, lanes=LANES, store=Store(slots=SLOTS), poison=poison)
    return Bed(Checked(bench), spec, bench.shape)


@pytest.mark.parametrize("name", CASES)
async def test_every_case_passes_on_what_is_exact(folder: Path, name: str) -> None:
    finding = await find(name, CASES[name], bed(folder))
    assert finding.differences == ()
    assert finding.ok


async def test_poison_is_compared_with_ranks_that_have_none(folder: Path) -> None:
    plain = await digests(bed(folder, poison=False))
    assert (await find("poison", poison_changes_nothing(plain), bed(folder))).ok
    changed = [(*bits[:-1], bits[-1] + 1) for bits in plain]
    finding = await find("poison", poison_changes_nothing(changed), bed(folder))
    assert len(finding.differences) == finding.compared == len(plain)


# -- what is broken is found

_begin, _copy, _out = PageTables.begin, FixedParts.copy, PoolTensors.copy_out


def _nothing(*arguments: Any) -> None:
    """A piece that is gone."""


def _first_page_lost(self: PageTables, lane: int, pages: Any) -> None:
    _begin(self, lane, pages if list(pages) == sorted(pages) else [pages[-1], *pages[1:]])


def _next_place(self: FixedParts, place: int, source: FixedParts, at: int) -> None:
    _copy(self, place, source, (at + 1) % source.kda.shape[1])


def _a_page_too_many(self: PoolTensors, pages: Any) -> Any:
    return _out(self, [*pages, pages[0]])


BROKEN: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "a page of the table is another": ("pages == windows", PageTables, "begin", _first_page_lost),
    "nothing is saved": ("resumed == fresh: shared pages", KeptTensors, "save", _nothing),
    "rows are not restored": ("resumed == fresh: a copy", PoolTensors, "copy_in", _nothing),
    "another lane is kept": ("three heirs == fresh", FixedParts, "copy", _next_place),
    "a copy takes a page too many": (
        "kept bytes follow the position",
        PoolTensors,
        "copy_out",
        _a_page_too_many,
    ),
    "nothing is poisoned": ("a planted fault shows", PoolTensors, "take", _nothing),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_piece_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    case, owner, piece, broken = BROKEN[name]
    monkeypatch.setattr(owner, piece, broken)
    finding = await find(case, CASES[case], bed(folder))
    assert not finding.ok
    assert finding.differences


def _company(self: HostPasses, hidden: Any, asks: Any) -> Any:
    """A breath of how many rows are computed at once, as a sum in another order would give."""
    return _logits(self, hidden * (1.0 + 1e-7 * len(hidden)), asks)


def _short_chunks(self: Executor, step: Step, tap: Any) -> Any:
    """The last bit of a state, after chunks that are not whole."""
    result = _run(self, step, tap)
    for chunk in step.chunks:
        if len(chunk.tokens) < self.spec.rows.chunk and not chunk.last:
            self.states.kda[:, chunk.lane] *= 1.0 + 2.0**-23
    return result


_logits, _run = HostPasses.logits, Executor._run


@pytest.mark.parametrize(
    ("name", "owner", "piece", "broken"),
    [
        ("concurrent == solo", HostPasses, "logits", _company),
        ("chunked == whole", Executor, "_run", _short_chunks),
    ],
)
async def test_a_difference_in_the_last_bit_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, owner: Any, piece: str, broken: Any
) -> None:
    monkeypatch.setattr(owner, piece, broken)
    assert (await find(name, CASES[name], bed(folder))).differences


async def test_a_rank_that_refuses_is_a_difference(folder: Path) -> None:
    async def case(of: Bed, compare: Comparison) -> None:
        compare.same("one", 1, 1)
        streams = of.streams()
        streams.begin(0, (1, 2, 3))
        await streams.close()

    finding = await find("left alone", case, bed(folder))
    assert finding.compared == 1
    assert "AssertionError: not idle" in finding.differences[0]


# -- table, receipt, status


def receipt(*findings: Finding) -> Receipt:
    made = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
    return Receipt({"model": "m"}, findings, made, "streamglm check m")


GOOD = Finding("a == b", 12, (), 1.25)
BAD = Finding("c == d", 5, tuple(f"{n} tokens" for n in range(5)), 0.5)


def test_a_receipt_says_what_was_proved_where_and_how() -> None:
    text = receipt(GOOD).markdown()
    for part in (
        "All 12 comparisons are equal",
        "```\nstreamglm check m\n```",
        "| date | 2031-02-03T04:05:06+00:00 |",
        "| commit | ",
        "| machine | ",
        "torch 2.",
        "| model | m |",
        "| a == b | 12 | 0 | 1.2 | equal |",
    ):
        assert part in text
    assert "Differences" not in text


def test_a_difference_is_named_in_receipt_and_table() -> None:
    found = receipt(GOOD, BAD)
    assert not found.ok
    assert "Not exact on this machine: c == d." in found.markdown()
    assert "| c == d | 5 | 5 | 0.5 | DIFFERENT |" in found.markdown()
    lines = list(found.differences())
    assert lines == [
        "c == d: 0 tokens",
        "c == d: 1 tokens",
        "c == d: 2 tokens",
        "c == d: and 2 more",
    ]
    console = Console(width=100, record=True, force_terminal=False)
    check.show(console, found)
    shown = console.export_text()
    assert "DIFFERENT" in shown
    assert "c == d: 2 tokens" in shown


def test_a_case_that_compared_nothing_has_proved_nothing() -> None:
    found = receipt(Finding("a == b", 0, (), 0.1))
    assert not found.ok
    assert list(found.differences()) == ["a == b: nothing was compared"]
    assert not receipt().ok


@pytest.mark.parametrize(("finding", "status"), [(GOOD, 0), (BAD, 1)])
def test_the_exit_status_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, finding: Finding, status: int
) -> None:
    class Fake:
        def __init__(self, settings: Any, told: Any) -> None:
            assert settings.kv_cache == "fp8"

        async def findings(self) -> list[Finding]:
            return [finding]

    monkeypatch.setattr(check, "Prover", Fake)
    file = tmp_path / "receipt.md"
    assert cli.main(["check", "nano", "--kv-cache", "fp8", "--receipt", str(file)]) == status
    assert finding.name in file.read_text()


def test_a_model_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "/nowhere"]) == 1
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_built_in_model_is_exact_here(tmp_path: Path) -> None:
    """The whole command with real rank processes, in float32 and in fp8."""
    file = tmp_path / "receipt.md"
    arguments = argparse.Namespace(model="nano", config=None, receipt=file, kernels=False)
    assert check.run(arguments) == 0
    text = file.read_text()
    for name in (*CASES, IDLE[0], "poison changes nothing", "fp8: resumed == fresh: a copy"):
        assert f"| {name} | " in text
    assert "DIFFERENT" not in text


def test_a_log_has_what_came_before_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal every line is said when it comes; red where only a spinner has it."""
    with check.telling(Console(force_terminal=False), "first") as told:
        told("pages [equal]: 3 comparisons")
        assert capsys.readouterr().out == "first\npages [equal]: 3 comparisons\n"


def test_what_ranks_note_is_told_while_a_check_runs() -> None:
    """That kernels are compiled, say; red where no handler stands, or stays, or stands too high."""
    ranks, told = logging.getLogger("streamglm.ranks.client"), list[object]()
    with check._notes(told.append):
        ranks.info("rank 0: %s", "compiling 9 kernels")
    ranks.warning("rank 0: later")
    assert told == ["rank 0: compiling 9 kernels"]
