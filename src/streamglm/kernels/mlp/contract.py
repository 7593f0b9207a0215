"""Contract of the dense MLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
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
from streamglm.kernels.linear import prepare
from streamglm.kernels.mlp import mlp
from streamglm.kernels.promises import own_rows

_INFINITE = float("inf")


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    d, i = sizes["D"], sizes["I"]
    return {
        "x": noise.standard_normal((sizes["M"], d), np.float32),
        "gate_up": noise.standard_normal((d, 2 * i), np.float32) * np.float32(2.0 * d**-0.5),
        "down": noise.standard_normal((i, d), np.float32) * np.float32(i**-0.5),
        "limit": sizes["LIMIT"] / 2.0,
    }


def _run(values: Values, form: str) -> Outputs:
    gate_up, down = (prepare(torch.from_numpy(values[name])) for name in ("gate_up", "down"))
    y = mlp(rows(values["x"], form), gate_up, down, values["limit"], TILINGS[form])
    return {"y": array(y)[:, : values["x"].shape[1]]}


def swiglu(
    x: npt.NDArray[Any], limit: float, *, floor: float = -_INFINITE, up_limit: float | None = None
) -> npt.NDArray[Any]:
    """The formula in float64; the two options are faults."""
    gate, up = np.split(x.astype(np.float64), 2, 1)
    bound = limit if up_limit is None else up_limit
    gate = np.clip(gate, floor, limit)
    return gate / (1.0 + np.exp(-gate)) * np.clip(up, -bound, bound)


def _exact(values: Values, **wrong: Any) -> Outputs:
    inner = values["x"].astype(np.float64) @ values["gate_up"]
    return {"y": swiglu(inner, values["limit"], **wrong) @ values["down"]}


def _swapped(values: Values) -> Outputs:
    gate, up = np.split(values["gate_up"], 2, 1)
    return _exact({**values, "gate_up": np.concatenate([up, gate], 1)})


MLP = Contract(
    name="mlp",
    arguments=(
        Argument("x", "M D", note="M whole tiles"),
        Argument("gate_up", "D 2*I", note="gate, then up; I a multiple of 32"),
        Argument("down", "I D"),
        Argument("limit", "", "float"),
    ),
    cases=(
        Case("clipping", {"M": 64, "D": 48, "I": 96, "LIMIT": 1}),
        Case("odd width", {"M": 16, "D": 27, "I": 32, "LIMIT": 20}),
    ),
    inputs=_inputs,
    run=_run,
    exact=_exact,
    tolerance=3e-6,
    why="float32 products of D and of I terms, and one exp",
    promises=(own_rows("x", unit={"torch": 16, "numpy": 4}),),
    faults=(
        formula("up is not bounded", lambda v: _exact(v, up_limit=_INFINITE)),
        formula("the gate is bounded below", lambda v: _exact(v, floor=-v["limit"])),
        formula("nothing is bounded", lambda v: _exact({**v, "limit": _INFINITE})),
        formula("gate and up are swapped", _swapped),
        beside(_run, "x", "y"),
    ),
)

CONTRACTS = (MLP,)
