"""Contracts of the RMS norms."""

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
from streamglm.kernels.promises import any_chunks, each_alone, own_rows
from streamglm.kernels.rms_norm import gated, prepare, rms_norm

_EPS = 1e-5
_WHY = "a float32 sum of D squares, one root, two products"
_KERNEL_WHY = f"{_WHY}; bfloat16 rounds once more"


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    width, count = sizes["D"], sizes["COUNT"]
    weight = 1.0 + 0.3 * noise.standard_normal(width, np.float32)
    x = noise.standard_normal((sizes["R"], width), np.float32)
    x *= np.float32(10.0) ** noise.integers(-3, 3, (len(x), 1)).astype(np.float32)
    x[:, count:] = 0.0
    itemsize = sizes.get("BYTES", 4)
    return {"x": stored(x, itemsize), "weight": weight, "count": count, "itemsize": itemsize}


def _ready(values: Values, form: str) -> Call:
    norm = prepare(vector(values["weight"], form), _EPS, values["count"])
    x = rows(values["x"], form, STORED[values["itemsize"]])
    return lambda: {"y": rms_norm(x, norm)}


def _run(values: Values, form: str) -> Outputs:
    return arrays(_ready(values, form)())


def work(values: Values) -> Work:
    """Every row read once, and written once; of a gate, read as well."""
    passes = 3 if "gate" in values else 2
    return Work(passes * values["x"].size * values["itemsize"])


def _plain(values: Values, count: int, eps: float) -> Outputs:
    x = values["x"].astype(np.float64)
    mean = (x * x).sum(-1, keepdims=True) / count
    return {"y": x / np.sqrt(mean + eps) * values["weight"]}


def _exact(values: Values) -> Outputs:
    return _plain(values, values["count"], _EPS)


RMS_NORM = Contract(
    name="rms_norm",
    arguments=(
        Argument("x", "R D", note="any leading dimensions; zeros behind COUNT"),
        Argument("weight", "D"),
        Argument("count", "", "int", "values that the mean is over"),
    ),
    cases=(
        Case("whole vectors", {"R": 9, "D": 256, "COUNT": 256}),
        Case("odd width", {"R": 5, "D": 41, "COUNT": 41}),
        Case("padded", {"R": 8, "D": 64, "COUNT": 40}),
        Case("one row", {"R": 1, "D": 16, "COUNT": 16}),
    ),
    inputs=_inputs,
    run=_run,
    exact=_exact,
    tolerance=1e-6,
    why=_WHY,
    promises=(own_rows("x"),),
    faults=(
        formula("the mean counts the padding", lambda v: _plain(v, v["x"].shape[1], _EPS)),
        formula("eps 1e-6", lambda v: _plain(v, v["count"], 1e-6)),
        beside(_run, "x", "y"),
    ),
    kernel=Kernel(
        cases=(
            Case("odd width", {"R": 5, "D": 41, "COUNT": 41}),
            Case("padded", {"R": 7, "D": 64, "COUNT": 40}),
            Case("rows of three programs", {"R": 9, "D": 1000, "COUNT": 1000}),
            Case("bfloat16", {"R": 9, "D": 96, "COUNT": 96, "BYTES": 2}, HALF),
        ),
        full=(
            Case("hidden, a window", {"R": 32, "D": 4096, "COUNT": 4096, "BYTES": 2}, HALF),
            Case("hidden, a prompt", {"R": 2048, "D": 4096, "COUNT": 4096, "BYTES": 2}, HALF),
            Case("query latent", {"R": 8, "D": 1536, "COUNT": 1536, "BYTES": 2}, HALF),
            Case("latent", {"R": 2048, "D": 512, "COUNT": 512, "BYTES": 2}, HALF),
        ),
        tolerance=1e-6,
        why=_KERNEL_WHY,
        promises=(each_alone("x"), any_chunks("x")),
        ready=_ready,
        work=work,
    ),
)


def _gated_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    shape = (sizes["R"], sizes["H"], sizes["D"])
    itemsize = sizes.get("BYTES", 4)
    return {
        "x": stored(noise.standard_normal(shape, np.float32), itemsize),
        "gate": stored(noise.random(shape, np.float32), itemsize),
        "weight": 1.0 + 0.3 * noise.standard_normal(sizes["D"], np.float32),
        "itemsize": itemsize,
    }


def _gated_ready(values: Values, form: str) -> Call:
    norm = prepare(vector(values["weight"], form), _EPS)
    dtype = STORED[values["itemsize"]]
    x, gate = rows(values["x"], form, dtype), rows(values["gate"], form, dtype)
    return lambda: {"y": gated(x, gate, norm)}


def _gated_run(values: Values, form: str) -> Outputs:
    return arrays(_gated_ready(values, form)())


def _gated_exact(values: Values) -> Outputs:
    y = _plain(values, values["x"].shape[-1], _EPS)["y"]
    return {"y": y * values["gate"]}


def _silu_gate(values: Values) -> Outputs:
    gate = values["gate"].astype(np.float64)
    return _gated_exact({**values, "gate": gate * np.log(gate / (1.0 - gate))})


GATED = Contract(
    name="rms_norm.gated",
    arguments=(
        Argument("x", "R H D"),
        Argument("gate", "R H D", note="in (0, 1): a sigmoid already"),
        Argument("weight", "D"),
    ),
    cases=(
        Case("even", {"R": 4, "H": 8, "D": 32}),
        Case("odd", {"R": 7, "H": 3, "D": 24}),
    ),
    inputs=_gated_inputs,
    run=_gated_run,
    exact=_gated_exact,
    tolerance=1e-6,
    why=_WHY,
    promises=(own_rows("x", "gate"),),
    faults=(
        formula("the gate is a silu", _silu_gate),
        beside(_gated_run, "x", "y"),
    ),
    kernel=Kernel(
        cases=(
            Case("odd", {"R": 5, "H": 3, "D": 24}),
            Case("bfloat16", {"R": 4, "H": 2, "D": 32, "BYTES": 2}, HALF),
        ),
        full=(
            Case("a window", {"R": 32, "H": 64, "D": 128, "BYTES": 2}, HALF),
            Case("a prompt", {"R": 2048, "H": 64, "D": 128, "BYTES": 2}, HALF),
        ),
        tolerance=1e-6,
        why=_KERNEL_WHY,
        promises=(each_alone("x", "gate"), any_chunks("x", "gate")),
        ready=_gated_ready,
        work=work,
    ),
)

CONTRACTS = (RMS_NORM, GATED)
