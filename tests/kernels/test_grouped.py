"""Rows grouped by expert: every pair stands in one block of its expert, in order."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from streamglm.kernels.experts import choose
from streamglm.kernels.experts.grouped import group
from streamglm.kernels.launch import SWITCH

_BOTH_WAYS = """
import torch
from streamglm.kernels.experts import grouped, kernel, prompt_kernel

for rows, experts, count in ((150, 288, 8), (1, 5, 2), (1500, 3, 1)):
    chosen = torch.rand(rows, experts).topk(count).indices.sort().values.int()
    found = prompt_kernel.group(chosen, experts)
    want = grouped.group(chosen, experts, prompt_kernel.BLOCK)
    assert torch.equal(found.order, want.order), (rows, experts, "order")
    assert torch.equal(found.table, want.table), (rows, experts, "table")

for rows, experts, count in ((32, 288, 8), (7, 40, 3), (5, 3, 2), (1, 288, 8), (1, 1, 1)):
    chosen = torch.rand(rows, experts).topk(count).indices.sort().values.int()
    found = kernel.group_window(chosen, experts)
    want = grouped.group(chosen, experts, 32)
    assert torch.equal(found.order, want.order), ("window", rows, experts, "order")
    blocks = found.table.shape[1]
    assert torch.equal(found.table, want.table[:, :blocks]), ("window", rows, experts, "table")
"""


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


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not there")
def test_kernels_group_rows_as_torch_does() -> None:
    """More pairs than a turn has, experts with several blocks and with none, and idle blocks; in a
    window more pairs than experts, and fewer."""
    paths = os.pathsep.join(path for path in sys.path if path)
    subprocess.run(
        [sys.executable, "-c", _BOTH_WAYS],
        env={**os.environ, SWITCH: "1", "PYTHONPATH": paths},
        check=True,
        timeout=120,
    )


def test_scores_that_are_nan_are_chosen_last() -> None:
    logits = torch.tensor([[1.0, float("nan"), 3.0, float("nan")]])
    for count, want in ((2, [0, 2]), (3, [0, 1, 2]), (4, [0, 1, 2, 3])):
        chosen, _ = choose(logits, torch.zeros(4), count=count, normalise=True, factor=1.0)
        assert chosen.tolist() == [want]
