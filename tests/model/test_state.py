"""What a lane carries, and the choice between a view and a copy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from streamglm.model.state import FixedParts, LaneRows, LaneStates
from streamglm.pool.layout import CacheShape, RowFormat

SHAPE = CacheShape(
    caches=2,
    latent_dim=8,
    index_dim=4,
    pool=4,
    page_rows=64,
    kda_layers=3,
    kda_heads=2,
    kda_head_dim=5,
    conv_width=4,
    rows=RowFormat.FP32,
    hidden=0,
    verify_rows=0,
    value_itemsize=4,
)


def test_consecutive_lanes_are_views_and_others_are_copies() -> None:
    table = np.arange(24.0).reshape(6, 4)
    for lanes, view in (([2, 3, 4], True), ([5], True), ([3, 2], False), ([0, 2], False)):
        rows = LaneRows.of(lanes)
        part = rows.read(table)
        assert np.array_equal(part, table[lanes])
        assert np.shares_memory(part, table) is view
        part += 100.0
        rows.write(table, part)
        assert (table[lanes] >= 100.0).all()
        table[lanes] -= 100.0
    assert np.array_equal(table, np.arange(24.0).reshape(6, 4))


def test_a_lane_begins_with_zeros_and_leaves_others_alone() -> None:
    states = LaneStates(SHAPE, 3, poison=True)
    assert torch.isnan(states.kda).all()
    states.begin(1)
    for table in (states.kda, states.conv, states.tails):
        assert (table[:, 1] == 0.0).all()
        assert torch.isnan(table[:, [0, 2]]).all()
    states.end(1)
    assert torch.isnan(states.tails).all()


def test_a_lane_resumes_with_what_was_kept_and_no_pool_in_progress() -> None:
    states, slots = LaneStates(SHAPE, 3, poison=True), FixedParts(SHAPE, 2, poison=True)
    states.begin(2)
    states.kda[:, 2], states.conv[:, 2], states.tails[:, 2] = 3.0, 4.0, 5.0
    slots.copy(1, states, 2)
    states.end(2)
    states.resume(0, slots, 1)
    assert (states.kda[:, 0] == 3.0).all()
    assert (states.conv[:, 0] == 4.0).all()
    assert (states.tails[:, 0] == 0.0).all()
    for table in (states.kda, states.conv, states.tails):
        assert torch.isnan(table[:, 1:]).all()
    assert torch.isnan(slots.kda[:, 0]).all()


def test_arrays_and_tensors_are_one_memory() -> None:
    states = LaneStates(SHAPE, 2)
    states.kda_host[2][1] = 7.0
    states.conv_host[0][0] = 3.0
    states.tail_pages[1].host[1] = 5.0
    assert states.kda[2, 1].eq(7.0).all()
    assert states.conv[0, 0].eq(3.0).all()
    assert states.tails[1, 1].eq(5.0).all()
    assert states.kda.sum() == 7.0 * 50


def test_bytes_are_those_of_the_layout() -> None:
    assert LaneStates(SHAPE, 5).bytes == 5 * SHAPE.fixed_bytes
    assert FixedParts(SHAPE, 5).bytes == 5 * SHAPE.slot_bytes


def test_a_fixed_part_goes_out_as_bytes_and_comes_back() -> None:
    """All of it: a tensor that `parts` forgets is a state that does not come back."""
    shape = replace(SHAPE, hidden=6)
    parts, other = FixedParts(shape, 3), FixedParts(shape, 2, poison=True)
    parts.kda.normal_()
    parts.conv.normal_()
    parts.hidden.normal_()
    out = parts.dump(1)
    assert tuple(one.nbytes for one in out) == tuple(size for size, _ in parts.sections)
    assert sum(one.nbytes for one in out) == shape.slot_bytes
    before = [one.copy() for one in out]
    kda, conv, hidden = parts.kda[:, 1].clone(), parts.conv[:, 1].clone(), parts.hidden[1].clone()
    parts.kda.zero_()
    parts.conv.zero_()
    parts.hidden.zero_()
    assert all(np.array_equal(a, b) for a, b in zip(out, before, strict=True))
    other.load(0, out)
    assert torch.equal(other.kda[:, 0], kda)
    assert torch.equal(other.conv[:, 0], conv)
    assert torch.equal(other.hidden[0], hidden)
    assert torch.isnan(other.kda[:, 1]).all()
