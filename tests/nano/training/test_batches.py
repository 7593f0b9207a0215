"""Flat rows: packing, alignment, what a position predicts, seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamglm.nano.training import batches, scores
from streamglm.nano.training.batches import Packed, Packer
from streamglm.nano.training.dialog import Kind
from streamglm.nano.training.layout import ALIGN, Layout
from streamglm.nano.training.schedule import PHASES, Course


@pytest.fixture(scope="module")
def row(layout: Layout) -> Packed:
    return Packer(layout, 4096, 8).row(PHASES[2], 11)


def test_conversations_begin_on_tiles_and_fill_the_row(row: Packed) -> None:
    assert row.edges[0] == 0
    assert row.edges[-1] == len(row.ids)
    assert not np.any(row.edges % ALIGN)
    for begin, end in zip(row.edges[:-1], row.edges[1:], strict=True):
        assert np.all(row.start[begin:end] == begin)


def test_a_position_predicts_the_next_token_of_its_own_conversation(row: Packed) -> None:
    learned = np.flatnonzero(row.weight)
    assert np.all(row.targets[learned] == row.ids[learned + 1])
    assert np.all(row.start[learned] == row.start[learned + 1])


def test_a_row_is_mostly_conversation(row: Packed) -> None:
    assert np.mean(row.ids[:-1] != 0) > 0.9
    assert np.mean(row.weight >= 1.0) > 0.15


def test_long_phases_hold_long_conversations(layout: Layout) -> None:
    made = Packer(layout, 32_768, 8).row(PHASES[4], 5)
    assert np.diff(made.edges).max() > 3000
    assert np.diff(made.edges).max() <= PHASES[4].longest


def test_rows_do_not_depend_on_the_number_of_workers(data: Path) -> None:
    course = Course(steps=4, tokens=1024, tiles=4)
    rows = [list(batches.stream(data, course, 1, workers)) for workers in (1, 2)]
    assert [len(made) for made in rows] == [3, 3]
    for one, two in zip(*rows, strict=True):
        assert np.array_equal(one.ids, two.ids)
        assert np.array_equal(one.tiles, two.tiles)


def test_scores_count_whole_answers(row: Packed) -> None:
    best = row.targets.astype(np.int64)
    right = scores.count(row, best, best)
    for good, total in right.values():
        assert good == total
    answers = sum(right[kind.name.lower()][1] for kind in Kind)
    assert answers == row.turn.max()
    place = int(np.flatnonzero(row.turn == 1)[0])
    best[place] += 1
    missed = scores.count(row, best, row.targets.astype(np.int64))
    assert sum(good for good, _ in missed.values()) < sum(good for good, _ in right.values())
