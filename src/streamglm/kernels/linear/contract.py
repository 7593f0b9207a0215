"""Contracts of the linear layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from streamglm.kernels.contract import (
    TILINGS,
    Argument,
    Case,
    Contract,
    Noise,
    Outputs,
    Values,
    array,
    beside,
    formula,
    rows,
)
from streamglm.kernels.linear import heads, linear, prepare, prepare_heads
from streamglm.kernels.promises import own_rows

_UNIT = {"torch": 16, "numpy": 4}
_WHY = "float32 products of K terms, added up in an order that the machine's BLAS chooses"


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    weight = noise.standard_normal((sizes["K"], sizes["N"]), np.float32)
    return {
        "x": noise.standard_normal((sizes["M"], sizes["K"]), np.float32),
        "weight": weight * np.float32(sizes["K"] ** -0.5),
    }


def _run(values: Values, form: str) -> Outputs:
    weight = prepare(torch.from_numpy(values["weight"]))
    y = linear(rows(values["x"], form), weight, TILINGS[form])
    return {"y": array(y)}


def _padded(product: np.ndarray, columns: int) -> Outputs:
    width = -(-columns // 64) * 64 if columns > 32 else -(-columns // 16) * 16
    return {"y": np.pad(product, ((0, 0), (0, width - columns)))}


def _exact(values: Values) -> Outputs:
    weight = values["weight"].astype(np.float64)
    return _padded(values["x"].astype(np.float64) @ weight, weight.shape[1])


def _last_column_lost(values: Values) -> Outputs:
    y = _exact(values)["y"]
    y[:, values["weight"].shape[1] - 1] = 0.0
    return {"y": y}


LINEAR = Contract(
    name="linear",
    arguments=(
        Argument("x", "M K", note="M whole tiles; rows may have a stride"),
        Argument("weight", "K N", note="prepared in panels; the result has N padded"),
    ),
    cases=(
        Case("one panel", {"M": 64, "K": 64, "N": 64}),
        Case("odd depth, narrow", {"M": 48, "K": 27, "N": 5}),
        Case("a column over a panel", {"M": 80, "K": 40, "N": 65}),
        Case("deep", {"M": 64, "K": 1100, "N": 30}),
        Case("wide", {"M": 16, "K": 96, "N": 700}),
    ),
    inputs=_inputs,
    run=_run,
    exact=_exact,
    tolerance=4e-6,
    why=_WHY,
    promises=(own_rows("x", unit=_UNIT),),
    faults=(
        formula("the last column is lost", _last_column_lost),
        beside(_run, "x", "y"),
    ),
)


def _head_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    m, h, a, b = (sizes[name] for name in "MHAB")
    return {
        "x": noise.standard_normal((m, h, a), np.float32),
        "weight": noise.standard_normal((h, a, b), np.float32) * np.float32(a**-0.5),
    }


def _head_run(values: Values, form: str) -> Outputs:
    weight = prepare_heads(torch.from_numpy(values["weight"]))
    return {"y": array(heads(rows(values["x"], form), weight, TILINGS[form]))}


def _head_exact(values: Values) -> Outputs:
    x, weight = values["x"].astype(np.float64), values["weight"].astype(np.float64)
    return {"y": np.einsum("mha,hab->mhb", x, weight)}


def _heads_swapped(values: Values) -> Outputs:
    return _head_exact({**values, "weight": values["weight"][::-1]})


HEADS = Contract(
    name="linear.heads",
    arguments=(Argument("x", "M H A", note="M whole tiles"), Argument("weight", "H A B")),
    cases=(
        Case("even", {"M": 64, "H": 4, "A": 32, "B": 64}),
        Case("odd", {"M": 80, "H": 3, "A": 24, "B": 40}),
        Case("one head", {"M": 16, "H": 1, "A": 5, "B": 3}),
    ),
    inputs=_head_inputs,
    run=_head_run,
    exact=_head_exact,
    tolerance=2e-6,
    why=_WHY,
    promises=(own_rows("x", unit=_UNIT),),
    faults=(
        formula("the heads are in another order", _heads_swapped),
        beside(_head_run, "x", "y"),
    ),
)

CONTRACTS = (LINEAR, HEADS)
