"""Contract of the layer norm."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from streamglm.kernels.contract import (
    HALF,
    STORED,
    Argument,
    Call,
    Case,
    Contract,
    Kernel,
    Noise,
    Outputs,
    Values,
    Work,
    arrays,
    beside,
    formula,
    rows,
    stored,
    vector,
)
from streamglm.kernels.layer_norm import layer_norm, prepare
from streamglm.kernels.promises import any_chunks, each_alone, own_rows

_EPS = 1e-6


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    width = sizes["D"]
    x = noise.standard_normal((sizes["R"], width), np.float32)
    x *= np.float32(0.1) ** noise.integers(0, 4, (len(x), 1)).astype(np.float32)
    itemsize = sizes.get("BYTES", 4)
    return {
        "x": stored(x, itemsize),
        "itemsize": itemsize,
        "weight": 1.0 + 0.3 * noise.standard_normal(width, np.float32),
        "bias": 0.3 * noise.standard_normal(width, np.float32),
    }


def _ready(values: Values, form: str) -> Call:
    weight, bias = vector(values["weight"], form), vector(values["bias"], form)
    x, norm = rows(values["x"], form, STORED[values["itemsize"]]), prepare(weight, bias, _EPS)
    return lambda: {"y": layer_norm(x, norm)}


def _run(values: Values, form: str) -> Outputs:
    return arrays(_ready(values, form)())


def _formula(values: Values, eps: float, centred: bool = True) -> Outputs:
    x = values["x"].astype(np.float64)
    x = x - x.mean(-1, keepdims=True) if centred else x
    scale = np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return {"y": x / scale * values["weight"] + values["bias"]}


LAYER_NORM = Contract(
    name="layer_norm",
    arguments=(Argument("x", "R D"), Argument("weight", "D"), Argument("bias", "D")),
    cases=(
        Case("whole vectors", {"R": 9, "D": 128}),
        Case("odd width", {"R": 6, "D": 24}),
        Case("one row", {"R": 1, "D": 33}),
    ),
    inputs=_inputs,
    run=_run,
    exact=lambda values: _formula(values, _EPS),
    tolerance=3e-6,
    why="float32 mean and variance of D values",
    promises=(own_rows("x"),),
    faults=(
        formula("eps 1e-5", lambda values: _formula(values, 1e-5)),
        formula("no mean is taken off", lambda values: _formula(values, _EPS, centred=False)),
        beside(_run, "x", "y"),
    ),
    kernel=Kernel(
        cases=(
            Case("odd width", {"R": 4, "D": 24}),
            Case("bfloat16", {"R": 3, "D": 128, "BYTES": 2}, HALF),
        ),
        full=(
            Case("index keys of a window", {"R": 32, "D": 128, "BYTES": 2}, HALF),
            Case("index keys of a prompt", {"R": 2048, "D": 128, "BYTES": 2}, HALF),
        ),
        tolerance=3e-6,
        why="float32 mean and variance of D values; bfloat16 rounds once more",
        promises=(each_alone("x"), any_chunks("x")),
        ready=_ready,
        work=lambda values: Work(2 * values["x"].size * values["itemsize"]),
    ),
)

CONTRACTS = (LAYER_NORM,)
