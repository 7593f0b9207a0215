"""Contract of the routed experts with the shared one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from streamglm.kernels.contract import (
    TILINGS,
    Argument,
    Case,
    Contract,
    Fault,
    Noise,
    Outputs,
    Promise,
    Run,
    Values,
    array,
    beside,
    formula,
    rows,
)
from streamglm.kernels.experts import Choice, ExpertWeights, mix
from streamglm.kernels.linear import prepare
from streamglm.kernels.mlp.contract import swiglu
from streamglm.kernels.promises import own_rows, same_bits


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    """Experts 0 and 1 have one router and one bias, so that they always tie."""
    d, e, i, j = sizes["D"], sizes["E"], sizes["I"], sizes["J"]
    scale = np.float32(d**-0.5)
    router = noise.standard_normal((d, e), np.float32) * scale
    router[:, 1] = router[:, 0]
    bias = 0.3 * noise.standard_normal(e, np.float32)
    bias[1] = bias[0]
    return {
        "x": noise.standard_normal((sizes["R"], d), np.float32),
        "router": router,
        "bias": bias,
        "gate_up": 2.0 * noise.standard_normal((e, d, 2 * i), np.float32) * scale,
        "down": noise.standard_normal((e, i, d), np.float32) * np.float32(i**-0.5),
        "shared": 2.0 * noise.standard_normal((d, 2 * j), np.float32) * scale,
        "shared_down": noise.standard_normal((j, d), np.float32) * np.float32(j**-0.5),
        "count": sizes["K"],
        "normalise": bool(sizes["NORM"]),
        "rows": sizes["ROWS"],
    }


_FACTOR, _LIMIT = 2.5, 0.5


def _weights(values: Values) -> ExpertWeights:
    router, bias = values["router"], values["bias"]
    width = -(-len(bias) // 32) * 32
    enter = np.concatenate([np.pad(router, ((0, 0), (0, width - len(bias)))), values["shared"]], 1)
    return ExpertWeights(
        enter=prepare(torch.from_numpy(enter)),
        choice=Choice(
            bias=np.pad(bias, (0, width - len(bias)), constant_values=-np.inf),
            count=values["count"],
            normalise=values["normalise"],
            factor=_FACTOR,
        ),
        gate_up=[prepare(torch.from_numpy(w)) for w in values["gate_up"]],
        down=[prepare(torch.from_numpy(w)) for w in values["down"]],
        shared_down=prepare(torch.from_numpy(values["shared_down"])),
        limit=_LIMIT,
    )


def _run(values: Values, form: str) -> Outputs:
    y = mix(rows(values["x"], form), values["rows"], _weights(values), TILINGS[form])
    return {"y": array(y)[:, : values["x"].shape[1]]}


def _exact(
    values: Values,
    *,
    ties: int = 1,
    biased: bool = False,
    limit: float = _LIMIT,
    shared_factor: float = 1.0,
) -> Outputs:
    x = values["x"].astype(np.float64)
    y = shared_factor * (swiglu(x @ values["shared"], limit) @ values["shared_down"])
    for row in range(values["rows"]):
        scores = 1.0 / (1.0 + np.exp(-(x[row] @ values["router"])))
        choice = scores + values["bias"]
        ranked = sorted(range(len(scores)), key=lambda e: (-choice[e], ties * e))
        chosen = ranked[: values["count"]]
        shares = (choice if biased else scores)[chosen]
        if values["normalise"]:
            shares = shares / (shares.sum() + 1e-20)
        for expert, share in zip(chosen, shares, strict=True):
            inner = swiglu(x[row : row + 1] @ values["gate_up"][expert], limit)
            y[row] += _FACTOR * share * (inner @ values["down"][expert])[0]
    return {"y": y}


def _own_rows() -> Promise:
    """`own_rows` with no row of padding, for a row of padding is another thing in another place."""
    promise = own_rows("x", unit={"torch": 16, "numpy": 4})

    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        def whole(given: Values) -> Outputs:
            return run({**given, "rows": len(given["x"])})

        promise.check(whole, values, whole(values), form, noise)

    return Promise(promise.name, check)


def _any_rows() -> Promise:
    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        count = max(values["rows"] // 2, 1)
        found = run({**values, "rows": count})
        head = {"y": outputs["y"][:count]}
        same_bits(f"when {count} rows are real", head, {"y": found["y"][:count]})

    return Promise("rows of padding do not matter", check)


def _expert_lost(values: Values, form: str) -> Outputs:
    gate_up = values["gate_up"].copy()
    gate_up[-1] = 0.0
    return _run({**values, "gate_up": gate_up}, form)


def _wrong(name: str, **wrong: Any) -> Fault:
    return formula(name, lambda values: _exact(values, **wrong))


EXPERTS = Contract(
    name="experts.mix",
    arguments=(
        Argument("x", "R D", note="R whole tiles"),
        Argument("rows", "", "int", "rows that are not padding"),
        Argument("router", "D E"),
        Argument("bias", "E", note="moves the choice only"),
        Argument("gate_up", "E D 2*I"),
        Argument("down", "E I D"),
        Argument("shared", "D 2*J"),
        Argument("shared_down", "J D"),
    ),
    cases=(
        Case(
            "two of six",
            {"R": 64, "ROWS": 64, "D": 48, "E": 6, "I": 32, "J": 64, "K": 2, "NORM": 1},
        ),
        Case(
            "one of three, padded",
            {"R": 16, "ROWS": 5, "D": 33, "E": 3, "I": 32, "J": 32, "K": 1, "NORM": 1},
        ),
        Case(
            "not normalised",
            {"R": 32, "ROWS": 30, "D": 40, "E": 40, "I": 32, "J": 32, "K": 5, "NORM": 0},
        ),
    ),
    inputs=_inputs,
    run=_run,
    exact=_exact,
    tolerance=5e-6,
    why="float32 products of D and of I terms, summed over the experts of a row",
    promises=(_own_rows(), _any_rows()),
    faults=(
        _wrong("ties go to the higher expert", ties=-1),
        _wrong("the bias is in the weights", biased=True),
        _wrong("nothing is bounded", limit=float("inf")),
        _wrong("the shared expert is scaled", shared_factor=_FACTOR),
        Fault("the last expert gives nothing", _expert_lost),
        beside(_run, "x", "y"),
    ),
)

CONTRACTS = (EXPERTS,)
