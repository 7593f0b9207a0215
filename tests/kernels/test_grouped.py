"""Rows grouped by expert: every pair stands in one block of its expert, in order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from streamglm.kernels.experts import choose
from streamglm.kernels.experts.grouped import group


@pytest.mark.parametrize(("rows", "experts", "count"), [(1, 3, 1), (7, 5, 2), (90, 4, 3)])
@pytest.mark.parametrize("size", [4, 64])
def test_every_pair_stands_once_in_a_block_of_its_expert(
    rows: int, experts: int, count: int, size: int
) -> None:
    noise = np.random.default_rng(rows)
    chosen = np.sort(np.argsort(noise.random((rows, experts)), 1)[:, :count], 1)
    found = group(torch.from_numpy(chosen.astype(np.int32)), experts, size)
    seen = []
    for expert, first, places in found.table.t().tolist():
        assert places <= size
        pairs = found.order[first : first + places].tolist()
        assert all(chosen.ravel()[pair] == expert for pair in pairs)
        assert pairs == sorted(pairs)
        seen += pairs
    assert sorted(seen) == list(range(rows * count))
    blocks = [-(-n // size) for n in np.bincount(chosen.ravel(), minlength=experts)]
    assert int((found.table[2] > 0).sum()) == sum(blocks)


def test_scores_that_are_nan_are_chosen_last() -> None:
    logits = torch.tensor([[1.0, float("nan"), 3.0, float("nan")]])
    for count, want in ((2, [0, 2]), (3, [0, 1, 2]), (4, [0, 1, 2, 3])):
        chosen, _ = choose(logits, torch.zeros(4), count=count, normalise=True, factor=1.0)
        assert chosen.tolist() == [want]
