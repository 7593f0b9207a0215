"""Numpy's elementwise functions: no warning at the ends, the same bits at every place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamglm.kernels import host
from streamglm.kernels.arguments import Array


@pytest.mark.parametrize("function", [host.sigmoid, host.silu])
def test_the_ends_of_the_range(function: Callable[[Array], Array]) -> None:
    x = np.array([-3.4e38, -1e4, -100.0, -80.0, 0.0, 80.0, 1e4, 3.4e38], np.float32)
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        exact = 1.0 / (1.0 + np.exp(-wide)) * (wide if function is host.silu else 1.0)
    found = function(x)
    assert np.isfinite(found).all()
    assert np.abs(found - exact)[2:].max() <= 1e-6 * np.abs(exact).max()
    assert (np.abs(found[:2]) < 1e5).all()


@pytest.mark.parametrize("function", [host.sigmoid, host.silu, host.softmax])
def test_any_slice_of_any_array(function: Callable[[Array], Array]) -> None:
    noise = np.random.default_rng(1)
    x = noise.standard_normal((40, 53), np.float32) * 5
    whole = function(x.copy())
    for rows in (1, 2, 3, 17):
        for start in (0, 1, 5, 20):
            part = x[start : start + rows]
            assert np.array_equal(function(part.copy()), whole[start : start + rows])
    spread = noise.standard_normal((40, 100), np.float32)
    spread[:, 9:62] = x
    assert np.array_equal(function(spread[:, 9:62]), whole)


def test_the_root_mean_square_of_a_row_alone() -> None:
    noise = np.random.default_rng(2)
    for width in (5, 24, 32, 333, 5000):
        x = noise.standard_normal((12, 3, width), np.float32)
        whole = host.rms(x, np.float32(1e-5), np.float32(1.0 / width))
        for row in range(12):
            one = host.rms(x[row : row + 1], np.float32(1e-5), np.float32(1.0 / width))
            assert np.array_equal(one[0], whole[row])
