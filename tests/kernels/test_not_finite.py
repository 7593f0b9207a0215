"""NaN among what is visible ends no process: a row that has it is a row of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from streamglm.kernels.indexer import row_select, select

POOLS, COUNT = 40, 12


@pytest.mark.parametrize("broken", [1, COUNT - 1, COUNT, POOLS - COUNT + 1, POOLS])
def test_scores_that_are_nan_are_never_chosen(broken: int) -> None:
    """In both forms alike; the finite ones that are chosen are the best, and P fills up."""
    noise = np.random.default_rng(broken)
    scores = noise.standard_normal(POOLS).astype(np.float32)
    scores[noise.permutation(POOLS)[:broken]] = np.nan
    finite = np.flatnonzero(~np.isnan(scores))
    best = finite[np.argsort(-scores[finite])][: max(COUNT - broken, 0)]
    want = np.append(np.sort(best), np.full(COUNT - len(best), POOLS))
    assert np.array_equal(row_select(scores, POOLS, COUNT), want)
    both = torch.from_numpy(np.stack([scores, np.arange(POOLS, dtype=np.float32)]))
    found = select(both, torch.tensor([POOLS, POOLS]), COUNT).numpy()
    assert np.array_equal(found[0], want)
    assert np.array_equal(found[1], np.arange(POOLS - COUNT, POOLS))
