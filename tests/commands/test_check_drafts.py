"""The check of drafts and of several ranks: it passes on what is exact, and finds what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from streamglm.commands.check_cases import (
    Bed,
    find,
)
from streamglm.commands.check_drafts import DRAFTED
from streamglm.commands.check_edges import LANES, Edges
from streamglm.commands.check_rank import NOT_FINITE, Watched
from streamglm.model import executor, verify
from streamglm.model.glm import Glm
from streamglm.model.spec import ModelSpec
from streamglm.model.state import LaneStates
from streamglm.step import Drawn, Step, StepResult
from support.streams import Bench
from support.tiny import TinyShape, tiny_model, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    write(tiny_model(TinyShape(num_hidden_layers=4), 0), path, chunk_rows=128)
    return path


class Checked:
    """A rank of a check in this process, with drafts."""

    def __init__(self, bench: Bench) -> None:
        self._mirror = bench.ranks.mirror
        self._watched = Watched(bench.executor)

    async def run(self, step: Step, digest: int) -> StepResult:
        self._mirror.check(step, digest)
        result = self._watched.run(step)
        self._mirror.apply(step, result.drawn)
        return result


def bed(folder: Path) -> Bed:
    torch.set_num_threads(1)
    spec = ModelSpec.from_folder(folder)
    bench = Bench(folder, pages=Edges.of(spec).pages, lanes=LANES, drafts=True)
    return Bed(Checked(bench), spec, bench.shape)


async def test_drafted_is_plain_where_it_is(folder: Path) -> None:
    finding = await find(*DRAFTED, bed(folder))
    assert finding.differences == ()
    assert finding.compared == 27


def _nothing(*arguments: Any) -> None:
    """A piece that is gone."""


def _one_too_many(*arguments: Any) -> Drawn:
    """A wrong draft counts as a right one."""
    found = _accept(*arguments)
    drafts = arguments[4] if len(arguments) > 4 else ()
    count = len(found.tokens)
    more = (*found.tokens, 1) if count <= len(drafts) and found.tokens[-1] >= 0 else found.tokens
    return Drawn(found.lane, more)


_accept = verify.accept

BROKEN: dict[str, tuple[Any, str, Any, str]] = {
    "tails stay where they were": (LaneStates, "keep_tails", _nothing, "states"),
    "states are not replayed": (Glm, "replay", _nothing, "states"),
    "a wrong draft is taken": (executor, "accept", _one_too_many, ""),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_piece_of_drafts_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    owner, piece, broken, part = BROKEN[name]
    monkeypatch.setattr(owner, piece, broken)
    finding = await find(*DRAFTED, bed(folder))
    assert any(part in line for line in finding.differences)


class Pair:
    """Rank 0 of two, of which the other has `theirs`."""

    rank, world = 0, 2

    def __init__(self, theirs: list[int]) -> None:
        self._theirs = theirs

    def join(self, part: Any, widths: Any) -> Any:
        raw = np.array(self._theirs, np.int64).view(np.uint8).reshape(-1, 8)
        return np.concatenate([part, raw.astype(np.float32)], 1)


@pytest.mark.parametrize(
    ("mine", "theirs", "found"),
    [
        ([5, 2**55 + 3], [5, 2**55 + 3], [5, 2**55 + 3]),
        ([5], [NOT_FINITE], [NOT_FINITE]),
        ([NOT_FINITE], [5], [NOT_FINITE]),
    ],
)
def test_several_ranks_answer_with_one_number(
    folder: Path, mine: list[int], theirs: list[int], found: list[int]
) -> None:
    watched = Watched(Bench(folder, pages=4, lanes=1).executor)
    watched._peers = Pair(theirs)  # type: ignore[assignment]
    assert watched._agreed(mine) == found


def test_a_difference_on_any_rank_is_another_number(folder: Path) -> None:
    watched = Watched(Bench(folder, pages=4, lanes=1).executor)
    numbers = set()
    for theirs in (5, 6, 7):
        watched._peers = Pair([theirs])  # type: ignore[assignment]
        numbers.add(watched._agreed([5])[0])
    assert len(numbers) == 3
