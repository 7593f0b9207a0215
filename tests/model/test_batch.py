"""The index tensors of a step: rows, slots, pools and tiles from (lane, position)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from streamglm.kernels.tiling import Tiling
from streamglm.model.batch import PromptBatch, WindowBatch
from streamglm.model.spec import ModelSpec
from streamglm.model.tables import Geometry, PageTables
from streamglm.step import Chunk, Row
from support.checkpoints import real_config, spec_of, tiny_config

NULL = 99


@pytest.fixture
def geometry() -> Geometry:
    return Geometry.of(spec_of(tiny_config()), NULL)


@pytest.fixture
def tables(geometry: Geometry) -> PageTables:
    tables = PageTables(4, geometry)
    tables.begin(0, (7, 3, 11, 2, 5))
    tables.begin(2, (40, 41))
    return tables


def test_geometry_of_the_real_model_and_of_a_tiny_one(geometry: Geometry) -> None:
    real = Geometry.of(spec_of(real_config()), NULL)
    assert (real.page, real.pool, real.topk, real.limit) == (512, 4, 512, 2051)
    assert (real.attend, real.dense, real.group) == (512, 512, 1)
    assert (geometry.page, geometry.topk, geometry.limit) == (64, 16, 67)
    assert (geometry.dense, geometry.group) == (64, 8)


def test_scores_read_whole_groups_of_pages(geometry: Geometry) -> None:
    assert [geometry.score_pages(n) for n in (3, 4, 512, 515, 516)] == [0, 8, 8, 8, 16]


def test_page_tables_grow_and_end_in_null_pages(tables: PageTables) -> None:
    assert tables.table[0, :5].tolist() == [7, 3, 11, 2, 5]
    assert set(tables.table[0, 5:].tolist()) == {NULL}
    tables.begin(1, tuple(range(30)))
    assert tables.table.shape == (4, 40)
    assert tables.table[0, :6].tolist() == [7, 3, 11, 2, 5, NULL]
    assert tables.table[1, :31].tolist() == [*range(30), NULL]
    tables.begin(0, (1,))
    assert set(tables.host[0, 1:].tolist()) == {NULL}


def test_a_prompt_batch(tables: PageTables, geometry: Geometry) -> None:
    chunks = (
        Chunk(2, 64, tuple(range(10, 27)), last=True),
        Chunk(0, 0, tuple(range(64)), last=False),
    )
    batch = PromptBatch.of(chunks, tables, geometry)
    assert batch.rows == 128
    assert batch.tokens.tolist() == [*range(10, 27), *[0] * 47, *range(64)]
    assert batch.real is not None
    assert batch.real.tolist() == [*range(17), *range(64, 128)]
    assert batch.slots.tolist() == [*range(41 * 64, 41 * 64 + 17), *range(7 * 64, 8 * 64)]
    assert batch.pools.tolist() == [0, 1, 2, 3, *range(16, 32)]
    assert batch.pool_slots[:5].tolist() == [656, 657, 658, 659, 112]
    assert batch.last == [16]
    # rows 64 to 127 of lane 2 pass the limit of 67, so their tile selects
    assert [tile.first for tile in batch.reads.selected] == [0]
    assert batch.reads.selected[0].lengths.tolist() == [*range(65, 82), *[81] * 47]
    assert [group.tiles.tolist() for group in batch.reads.dense] == [[1]]
    assert batch.reads.dense[0].start.tolist() == [0]
    assert batch.reads.dense[0].slots.tolist() == [list(range(7 * 64, 8 * 64))]


def test_whole_chunks_have_no_padding(tables: PageTables, geometry: Geometry) -> None:
    batch = PromptBatch.of((Chunk(0, 0, (1,) * 128, last=True),), tables, geometry)
    assert batch.real is None
    assert batch.last == [127]


def test_keys_that_a_tile_does_not_have_lie_in_the_null_page(
    tables: PageTables, geometry: Geometry
) -> None:
    batch = PromptBatch.of((Chunk(0, 0, (1, 2, 3), last=True),), tables, geometry)
    slots = batch.reads.dense[0].slots[0]
    assert slots[:3].tolist() == [448, 449, 450]
    assert set(slots[3:].tolist()) == {NULL * 64}


def test_a_window_batch(tables: PageTables, geometry: Geometry) -> None:
    rows = (Row(2, 66, 9), Row(0, 15, 8), Row(1, 0, 7))
    tables.begin(1, (50,))
    batch = WindowBatch.of(rows, tables, geometry, Tiling((4,)), tail=3)
    assert (batch.rows, batch.count) == (4, 3)
    assert batch.tokens.tolist() == [9, 8, 7, 0]
    assert batch.lengths.tolist() == [67, 16, 1]
    assert batch.slots.tolist() == [41 * 64 + 2, 7 * 64 + 15, 50 * 64]
    assert batch.growing.tolist() == [0, 2]
    assert batch.places.tolist() == [2 * 3 + 2, 1 * 3]
    assert batch.closing.tolist() == [1]
    assert batch.closing_places.tolist() == [[0, 1, 2]]
    assert batch.pool_slots.tolist() == [(7 * 64 + 15) // 4]
    assert batch.keys is not None
    assert batch.keys.seen.sum(1).tolist() == [67, 16, 1]


def test_one_row_beyond_the_limit_makes_every_layer_select(
    tables: PageTables, geometry: Geometry
) -> None:
    rows = (Row(2, 3, 9), Row(0, 67, 8))
    assert WindowBatch.of(rows, tables, geometry, Tiling((4,)), tail=3).keys is None


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 16, 33])
def test_a_window_is_padded_to_whole_tiles(rows: int, geometry: Geometry) -> None:
    tables = PageTables(rows, geometry)
    for lane in range(rows):
        tables.begin(lane, (lane,))
    found = WindowBatch.of(
        [Row(lane, 0, 1) for lane in range(rows)], tables, geometry, Tiling((4,)), tail=3
    )
    assert found.rows == -(-rows // 4) * 4
    assert len(found.tokens) == found.rows


def test_a_small_limit_leaves_no_tile_dense() -> None:
    spec: ModelSpec = replace(spec_of(tiny_config()), index_topk=16)
    geometry = Geometry.of(spec, NULL)
    tables = PageTables(1, geometry)
    tables.begin(0, (0, 1))
    batch = PromptBatch.of((Chunk(0, 0, (1,) * 70, last=True),), tables, geometry)
    assert batch.reads.dense == ()
    assert [tile.first for tile in batch.reads.selected] == [0, 64]
    assert torch.equal(batch.reads.selected[0].lengths, torch.arange(1, 65))
    assert np.array_equal(tables.host[0, :3], [0, 1, NULL])
