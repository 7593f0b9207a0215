"""Contracts of the hyper-connections."""

from __future__ import annotations

from collections.abc import Mapping

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
from streamglm.kernels.hyper import coefficients, collapse, expand, mean, prepare
from streamglm.kernels.promises import own_rows

_NORM_EPS, _EPS, _ITERATIONS = 1e-5, 1e-6, 20
_UNIT = {"torch": 16, "numpy": 4}
_CASES = (
    Case("four streams", {"R": 64, "S": 4, "D": 48}),
    Case("two streams, odd width", {"R": 32, "S": 2, "D": 21}),
    Case("three streams", {"R": 16, "S": 3, "D": 33}),
)
_STREAMS = Argument("streams", "R S D", note="R whole tiles")
Double = npt.NDArray[np.float64]


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    s, d = sizes["S"], sizes["D"]
    outputs = 2 * s + s * s
    return {
        "streams": noise.standard_normal((sizes["R"], s, d), np.float32),
        "fn": noise.standard_normal((outputs, s * d), np.float32) * np.float32((s * d) ** -0.5),
        "base": noise.standard_normal(outputs, np.float32),
        "scale": noise.standard_normal(3, np.float32),
    }


def _run(values: Values, form: str) -> Outputs:
    fn, base, scale = (torch.from_numpy(values[name]) for name in ("fn", "base", "scale"))
    weights = prepare(
        fn,
        base,
        scale,
        streams=values["streams"].shape[1],
        count=fn.shape[1],
        norm_eps=_NORM_EPS,
        eps=_EPS,
        iterations=_ITERATIONS,
    )
    pre, post, comb = coefficients(rows(values["streams"], form), weights, TILINGS[form])
    return {"pre": array(pre), "post": array(post), "comb": array(comb)}


def _sigmoid(x: Double) -> Double:
    return 1.0 / (1.0 + np.exp(-x))


def coefficients_formula(
    values: Values, *, rows_first: bool = False, iterations: int = _ITERATIONS, gain: float = 2.0
) -> Outputs:
    """The formulas of README.md, one row at a time."""
    count, s, _ = values["streams"].shape
    fn, base, scale = (values[name].astype(np.float64) for name in ("fn", "base", "scale"))
    pre, post, comb = np.empty((count, 1, s)), np.empty((count, s, 1)), np.empty((count, s, s))
    for row in range(count):
        z = values["streams"][row].astype(np.float64).ravel()
        m = fn @ (z / np.sqrt((z * z).mean() + _NORM_EPS))
        pre[row, 0] = _sigmoid(scale[0] * m[:s] + base[:s]) + _EPS
        post[row, :, 0] = gain * _sigmoid(scale[1] * m[s : 2 * s] + base[s : 2 * s])
        c = np.exp((scale[2] * m[2 * s :] + base[2 * s :]).reshape(s, s))
        c = c / c.sum(1, keepdims=True) + _EPS
        first = 1 if rows_first else 0
        c = c / (c.sum(first, keepdims=True) + _EPS)
        for _ in range(iterations - 1):
            c = c / (c.sum(1 - first, keepdims=True) + _EPS)
            c = c / (c.sum(first, keepdims=True) + _EPS)
        comb[row] = c.T
    return {"pre": pre, "post": post, "comb": comb}


def _untransposed(values: Values) -> Outputs:
    outputs = coefficients_formula(values)
    return {**outputs, "comb": outputs["comb"].transpose(0, 2, 1)}


COEFFICIENTS = Contract(
    name="hyper.coefficients",
    arguments=(
        _STREAMS,
        Argument("fn", "C S*D", note="C = 2 S + S^2: pre, post, comb row by row"),
        Argument("base", "C"),
        Argument("scale", "3"),
    ),
    cases=_CASES,
    inputs=_inputs,
    run=_run,
    exact=coefficients_formula,
    tolerance=1e-5,
    why="39 divisions in float32, and a product of S * D terms before a softmax",
    promises=(own_rows("streams", unit=_UNIT),),
    faults=(
        formula("comb is not transposed", _untransposed),
        formula(
            "Sinkhorn ends on the streams out", lambda v: coefficients_formula(v, rows_first=True)
        ),
        formula("one iteration of Sinkhorn", lambda v: coefficients_formula(v, iterations=1)),
        formula("post without its factor 2", lambda v: coefficients_formula(v, gain=1.0)),
        beside(_run, "streams", "comb"),
    ),
)


def _mix_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    r, s, d = sizes["R"], sizes["S"], sizes["D"]
    return {
        "streams": noise.standard_normal((r, s, d), np.float32),
        "y": noise.standard_normal((r, d), np.float32),
        "pre": noise.random((r, 1, s), np.float32),
        "post": noise.random((r, s, 1), np.float32),
        "comb": noise.random((r, s, s), np.float32),
    }


def _collapse(values: Values, form: str) -> Outputs:
    streams, pre = rows(values["streams"], form), rows(values["pre"], form)
    return {"x": array(collapse(streams, pre, TILINGS[form]))}


def _collapse_exact(values: Values) -> Outputs:
    x = (values["pre"].astype(np.float64).transpose(0, 2, 1) * values["streams"]).sum(1)
    return {"x": x}


COLLAPSE = Contract(
    name="hyper.collapse",
    arguments=(_STREAMS, Argument("pre", "R 1 S")),
    cases=_CASES,
    inputs=_mix_inputs,
    run=_collapse,
    exact=_collapse_exact,
    tolerance=1e-6,
    why="S float32 products",
    promises=(own_rows("streams", "pre"),),
    faults=(
        formula(
            "the streams are in another order",
            lambda v: _collapse_exact({**v, "streams": v["streams"][:, ::-1]}),
        ),
        beside(_collapse, "streams", "x"),
    ),
)


def _expand(values: Values, form: str) -> Outputs:
    streams, y, post, comb = (rows(values[n], form) for n in ("streams", "y", "post", "comb"))
    return {"streams": array(expand(streams, y, post, comb, TILINGS[form]))}


def _expand_exact(values: Values) -> Outputs:
    mixed = np.einsum("rkj,rjd->rkd", values["comb"].astype(np.float64), values["streams"])
    return {"streams": mixed + values["post"].astype(np.float64) * values["y"][:, None]}


EXPAND = Contract(
    name="hyper.expand",
    arguments=(
        _STREAMS,
        Argument("y", "R D"),
        Argument("post", "R S 1"),
        Argument("comb", "R S S", note="stream out before stream in"),
    ),
    cases=_CASES,
    inputs=_mix_inputs,
    run=_expand,
    exact=_expand_exact,
    tolerance=1e-6,
    why="S + 1 float32 products",
    promises=(own_rows("streams", "y", "post", "comb"),),
    faults=(
        formula(
            "comb is used transposed",
            lambda v: _expand_exact({**v, "comb": v["comb"].transpose(0, 2, 1)}),
        ),
        beside(_expand, "y", "streams"),
    ),
)


def _mean(values: Values, form: str) -> Outputs:
    return {"x": array(mean(rows(values["streams"], form)))}


MEAN = Contract(
    name="hyper.mean",
    arguments=(_STREAMS,),
    cases=_CASES,
    inputs=_mix_inputs,
    run=_mean,
    exact=lambda values: {"x": values["streams"].astype(np.float64).mean(1)},
    tolerance=1e-6,
    why="S float32 additions",
    promises=(own_rows("streams"),),
    faults=(
        formula("a sum", lambda values: {"x": values["streams"].astype(np.float64).sum(1)}),
        beside(_mean, "streams", "x"),
    ),
)

CONTRACTS = (COEFFICIENTS, COLLAPSE, EXPAND, MEAN)
