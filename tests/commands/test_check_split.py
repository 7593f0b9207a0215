"""The check of the latent split: it passes on two ranks that are exact, and finds what is not.

Two executors in this process, each behind a mirror of its own, answer as the ranks of a check do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from streamglm import cli
from streamglm.commands import check_split
from streamglm.commands.check_cases import Bed, Bits, cases, find
from streamglm.commands.check_edges import LANES, SLOTS, Edges, pool_of
from streamglm.commands.check_rank import Watched
from streamglm.commands.check_split import carried_equals_home, prompts, split_equals_whole
from streamglm.model.kept import KeptTensors
from streamglm.model.spec import ModelSpec
from streamglm.ranks.mirror import Mirror
from streamglm.ranks.wire import SpecNumbers
from streamglm.step import Step, StepResult
from support.ranked import Ranked
from support.tiny import TinyShape, tiny_model, write

WORLD = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    write(tiny_model(TinyShape(num_hidden_layers=4), 0), path, chunk_rows=128)
    return path


class Checked:
    """The ranks of a check in this process: all give the same numbers."""

    def __init__(self, ranked: Ranked, pages: int) -> None:
        spec, classes = ranked.spec, WORLD if ranked.kv_split else 1
        numbers = SpecNumbers(
            page_rows=spec.rows.page,
            chunk_rows=spec.rows.chunk,
            kda_chunk=spec.rows.kda_chunk,
            window_rows=spec.rows.window,
            vocab_size=spec.vocab_size,
            layers=len(spec.layers),
        )
        self._mirror = Mirror(numbers, pages, LANES, SLOTS, classes)
        self._world = ranked.world
        self._watched = [Watched(one) for one in ranked.executors]

    async def run(self, step: Step, digest: int) -> StepResult:
        self._mirror.check(step, digest)
        first, *others = self._world.run(lambda peer: self._watched[peer.rank].run(step))
        assert all(one.drawn == first.drawn for one in others), "ranks answer with other numbers"
        self._mirror.apply(step, first.drawn)
        return first


def bed(folder: Path, *, split: bool) -> Bed:
    torch.set_num_threads(1)
    spec = ModelSpec.from_folder(folder)
    classes = WORLD if split else 1
    pages = pool_of(Edges.of(spec), classes)
    ranked = Ranked(folder, WORLD, pages=pages, lanes=LANES, slots=SLOTS, kv_split=split)
    return Bed(Checked(ranked, pages), spec, ranked.pool.shape, classes)


@pytest.fixture(autouse=True)
def few_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dense limit and its neighbours; the long prompt stays."""
    whole = Edges.lengths.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Edges, "lengths", property(lambda self: whole(self)[4:7]))


async def test_the_split_is_equal_where_it_is_and_nowhere_else(folder: Path) -> None:
    whole = await prompts(bed(folder, split=False))
    half: list[Bits] = [(*bits[:-1], bits[-1] + place % 2) for place, bits in enumerate(whole)]
    finding = await find("split", split_equals_whole(half), bed(folder, split=True))
    assert (finding.compared, len(finding.differences)) == (8, 4)
    assert all("a stream beside it" in line for line in finding.differences)


async def test_a_carried_prompt_is_equal_where_it_is(folder: Path) -> None:
    finding = await find("carried", carried_equals_home, bed(folder, split=True))
    assert (finding.differences, finding.compared) == ((), 8)


def _nothing(*arguments: Any) -> None:
    """A piece that is gone."""


async def test_a_carry_that_moves_nothing_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeptTensors, "carry", _nothing)
    finding = await find("carried", carried_equals_home, bed(folder, split=True))
    assert finding.differences


@pytest.mark.parametrize(
    ("flags", "says"),
    [(("--ranks", "1"), "SplitNeedsRanks"), (("--ranks", "2", "--kv-cache", "fp8"), "fp8")],
)
def test_a_split_that_cannot_be_is_refused_as_serve_refuses_it(
    flags: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", "nano", "--kv-split", *flags]) == 1
    assert says in capsys.readouterr().err


def test_every_case_of_one_pool_is_one_that_there_is() -> None:
    """A case that is renamed would run where it has no meaning."""
    names = [name for name, _ in cases()]
    assert set(check_split._OF_ONE_POOL) <= set(names)
    split = [name for name, _ in check_split.split_cases()]
    assert len(split) == 1 + len(names) - len(check_split._OF_ONE_POOL)
