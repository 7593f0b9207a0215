"""Contracts of the short convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from streamglm.kernels.contract import (
    TORCH,
    TRITON,
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
    stored,
)
from streamglm.kernels.promises import own_prefix, own_rows, same_bits
from streamglm.kernels.short_conv import kernel_cases, prepare, prompt, window

_WHY = "K float32 products and one exp"


def _silu(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    y: npt.NDArray[Any] = x / (1.0 + np.exp(-x))
    return y


def _prompt_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    n, c, k, itemsize = sizes["N"], sizes["C"], sizes["K"], sizes.get("BYTES", 4)
    return {
        "itemsize": itemsize,
        "x": stored(noise.standard_normal((n, c), np.float32), itemsize),
        "carried": stored(noise.standard_normal((k - 1, c), np.float32), itemsize),
        "weight": noise.standard_normal((c, k), np.float32),
        "rows": sizes["ROWS"],
    }


def _prompt(values: Values, form: str) -> Outputs:
    if form == TRITON:
        return kernel_cases.prompt(values)
    carried = rows(values["carried"], form)
    weight = prepare(torch.from_numpy(values["weight"]))
    y = prompt(rows(values["x"], form), carried, weight, values["rows"])
    return {"y": array(y), "carried": array(carried)}


def _prompt_exact(values: Values, flip: bool = False) -> Outputs:
    weight = values["weight"].astype(np.float64)
    weight = weight[:, ::-1] if flip else weight
    inputs = np.concatenate([values["carried"], values["x"]]).astype(np.float64)
    taps, n, end = weight.shape[1], len(values["x"]), values["rows"]
    y = np.stack([(inputs[i : i + taps] * weight.T).sum(0) for i in range(n)])
    return {"y": _silu(y), "carried": inputs[end : end + taps - 1]}


def _any_chunking() -> Promise:
    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        end = values["rows"]
        for cut in range(64, end, 64):
            first = run({**values, "x": values["x"][:cut], "rows": cut})
            rest = {"x": values["x"][cut:], "carried": first["carried"], "rows": end - cut}
            second = run({**values, **rest})
            joined = {"y": np.concatenate([first["y"], second["y"]]), "carried": second["carried"]}
            same_bits(f"when cut at {cut}", outputs, joined)

    return Promise("any chunking", check)


def _forgets_carried(values: Values, form: str) -> Outputs:
    return _prompt({**values, "carried": np.zeros_like(values["carried"])}, form)


def _carries_padding(values: Values, form: str) -> Outputs:
    return _prompt({**values, "rows": len(values["x"])}, form)


PROMPT = Contract(
    name="short_conv.prompt",
    arguments=(
        Argument("x", "N C", note="the rows of one lane"),
        Argument("carried", "K-1 C", note="the inputs before; moves on in place"),
        Argument("weight", "C K"),
        Argument("rows", "", "int", "what follows them is padding"),
    ),
    cases=(
        Case("whole", {"N": 192, "C": 96, "K": 4, "ROWS": 192}),
        Case("padded, odd channels", {"N": 128, "C": 27, "K": 4, "ROWS": 67}),
        Case("fewer rows than taps", {"N": 64, "C": 16, "K": 4, "ROWS": 2}),
        Case("two taps", {"N": 64, "C": 40, "K": 2, "ROWS": 64}),
    ),
    inputs=_prompt_inputs,
    run=_prompt,
    exact=_prompt_exact,
    tolerance=1e-6,
    why=_WHY,
    promises=(_any_chunking(), own_prefix("x", outputs=("y",))),
    faults=(
        formula("the taps run backwards", lambda v: _prompt_exact(v, flip=True)),
        Fault("the carried rows are forgotten", _forgets_carried),
        Fault("padding is carried on", _carries_padding),
        beside(_prompt, "x", "y"),
    ),
    forms=(TORCH,),
    kernel=kernel_cases.PROMPT,
)


def _window_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    n, c, k, itemsize = sizes["N"], sizes["C"], sizes["K"], sizes.get("BYTES", 4)
    return {
        "itemsize": itemsize,
        "x": stored(noise.standard_normal((n, c), np.float32), itemsize),
        "carried": stored(noise.standard_normal((n, k - 1, c), np.float32), itemsize),
        "weight": noise.standard_normal((c, k), np.float32),
    }


def _window(values: Values, form: str) -> Outputs:
    if form == TRITON:
        return kernel_cases.step(values)
    carried = rows(values["carried"], form)
    weight = prepare(torch.from_numpy(values["weight"]))
    y = window(rows(values["x"], form), carried, weight)
    return {"y": array(y), "carried": array(carried)}


def _window_exact(values: Values) -> Outputs:
    inputs = np.concatenate([values["carried"], values["x"][:, None]], 1).astype(np.float64)
    return {"y": _silu((inputs * values["weight"].T).sum(1)), "carried": inputs[:, 1:]}


def _stands_still(values: Values, form: str) -> Outputs:
    return {**_window(values, form), "carried": values["carried"]}


WINDOW = Contract(
    name="short_conv.window",
    arguments=(
        Argument("x", "N C", note="one row a lane"),
        Argument("carried", "N K-1 C", note="moves on in place"),
        Argument("weight", "C K"),
    ),
    cases=(
        Case("eight lanes", {"N": 8, "C": 96, "K": 4}),
        Case("odd", {"N": 3, "C": 27, "K": 3}),
        Case("one lane", {"N": 1, "C": 48, "K": 2}),
    ),
    inputs=_window_inputs,
    run=_window,
    exact=_window_exact,
    tolerance=1e-6,
    why=_WHY,
    promises=(own_rows("x", "carried"),),
    faults=(
        Fault("the carried rows stand still", _stands_still),
        formula(
            "the newest input is taken for the oldest",
            lambda v: _window_exact({**v, "weight": v["weight"][:, ::-1]}),
        ),
        beside(_window, "x", "y"),
    ),
    kernel=kernel_cases.WINDOW,
)


def _lanes_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    """Lanes of 1 to R rows each, one behind the other."""
    counts = noise.integers(1, sizes["R"] + 1, sizes["L"])
    counts[0] = sizes["R"]
    inputs = _window_inputs({**sizes, "N": int(counts.sum())}, noise)
    return {**inputs, "carried": inputs["carried"][: sizes["L"]], "counts": counts}


def _lanes(values: Values, form: str) -> Outputs:
    return kernel_cases.lanes(values)


def _lanes_exact(values: Values, flip: bool = False) -> Outputs:
    found, ends = [], np.cumsum(values["counts"])
    for lane, end in enumerate(ends):
        x = values["x"][end - values["counts"][lane] : end]
        one = {**values, "x": x, "carried": values["carried"][lane], "rows": len(x)}
        found.append(_prompt_exact(one, flip))
    return {
        "y": np.concatenate([one["y"] for one in found]),
        "carried": np.stack([one["carried"] for one in found]),
    }


def _moves_on(values: Values, form: str) -> Outputs:
    return kernel_cases.lanes({**values, "keep": True})


def _lanes_run_on(values: Values, form: str) -> Outputs:
    """As if the rows of all lanes were one lane's."""
    first = {**values, "carried": values["carried"][0], "rows": len(values["x"])}
    return {**_lanes(values, form), "y": kernel_cases.prompt(first)["y"]}


LANES = Contract(
    name="short_conv.lanes",
    arguments=(
        Argument("x", "N C"),
        Argument("carried", "L K-1 C", note="of L lanes; moves on only to be kept"),
        Argument("weight", "C K"),
        Argument("counts", "L", "int64", "rows of each lane, one behind the other"),
    ),
    cases=(),
    inputs=_lanes_inputs,
    run=_lanes,
    exact=_lanes_exact,
    tolerance=1e-6,
    why=_WHY,
    promises=(),
    faults=(
        formula("the taps run backwards", lambda v: _lanes_exact(v, flip=True)),
        Fault("a lane begins with the rows of the one before", _lanes_run_on),
        Fault("what is carried moves on before rows are accepted", _moves_on),
    ),
    forms=(),
    kernel=kernel_cases.LANES,
)
"""Several rows of a lane in one launch, which the CPU takes one by one."""

CONTRACTS = (PROMPT, WINDOW, LANES)
