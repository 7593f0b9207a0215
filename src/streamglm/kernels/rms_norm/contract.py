"""Contracts of the RMS norms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from streamglm.kernels.contract import (
    Argument,
    Case,
    Contract,
    Noise,
    Outputs,
    Values,
    array,
    beside,
    formula,
    own_rows,
    rows,
)
from streamglm.kernels.rms_norm import gated, prepare, rms_norm

_EPS = 1e-5
_WHY = "a float32 sum of D squares, one root, two products"


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    width, count = sizes["D"], sizes["COUNT"]
    weight = 1.0 + 0.3 * noise.standard_normal(width, np.float32)
    x = noise.standard_normal((sizes["R"], width), np.float32)
    x *= np.float32(10.0) ** noise.integers(-3, 3, (len(x), 1)).astype(np.float32)
    x[:, count:] = 0.0
    return {"x": x, "weight": weight, "count": count}


def _run(values: Values, form: str) -> Outputs:
    norm = prepare(torch.from_numpy(values["weight"]), _EPS, values["count"])
    return {"y": array(rms_norm(rows(values["x"], form), norm))}


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
)


def _gated_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    shape = (sizes["R"], sizes["H"], sizes["D"])
    return {
        "x": noise.standard_normal(shape, np.float32),
        "gate": noise.random(shape, np.float32),
        "weight": 1.0 + 0.3 * noise.standard_normal(sizes["D"], np.float32),
    }


def _gated_run(values: Values, form: str) -> Outputs:
    norm = prepare(torch.from_numpy(values["weight"]), _EPS)
    x, gate = rows(values["x"], form), rows(values["gate"], form)
    return {"y": array(gated(x, gate, norm))}


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
)

CONTRACTS = (RMS_NORM, GATED)
