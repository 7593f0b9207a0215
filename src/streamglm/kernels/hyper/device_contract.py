"""Contracts of the hyper-connections on a GPU: the first site, from site to site, the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from streamglm.kernels.contract import (
    HALF,
    STORED,
    TORCH,
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
    stored,
    vector,
)
from streamglm.kernels.hyper import Mix, Site, begin, last, proceed
from streamglm.kernels.hyper.contract import coefficients_formula
from streamglm.kernels.promises import any_chunks, each_alone, own_rows

_EPS = 1e-5
_WHY = "a float32 product of S * D terms, 39 divisions, and a norm"
_STORED = 3e-3
"""Streams in bfloat16: a value of the last row may round to either side."""


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    r, s, d = sizes["R"], sizes["S"], sizes["D"]
    itemsize, outputs = sizes.get("BYTES", 4), 2 * s + s * s
    fn = noise.standard_normal((outputs, s * d), np.float32) * np.float32((s * d) ** -0.5)
    size = np.float32(1.0 / sizes.get("OVER", 1))
    return {
        "streams": stored(size * noise.standard_normal((r, s, d), np.float32), itemsize),
        "y": stored(size * noise.standard_normal((r, d), np.float32), itemsize),
        "post": 2.0 * noise.random((r, s), np.float32),
        "comb": noise.random((r, s, s), np.float32) / s,
        "fn": stored(fn, itemsize),
        "base": 3.0 * noise.standard_normal(outputs, np.float32),  # far from a fixed point
        "scale": noise.standard_normal(3, np.float32),
        "norm": 1.0 + 0.3 * noise.standard_normal(d, np.float32),
        "itemsize": itemsize,
    }


def _site(values: Values, form: str) -> Site:
    return Site(
        fn=vector(values["fn"], form, STORED[values["itemsize"]]),
        base=vector(values["base"], form),
        scale=vector(values["scale"], form),
        norm=vector(values["norm"], form),
        streams=values["streams"].shape[1],
        fn_eps=_EPS,
        norm_eps=_EPS,
        eps=1e-6,
        iterations=20,
    )


def _given(values: Values, form: str) -> tuple[torch.Tensor, torch.Tensor, Mix]:
    dtype = STORED[values["itemsize"]]
    streams, y = (vector(values[name], form, dtype) for name in ("streams", "y"))
    return streams, y, Mix(vector(values["post"], form), vector(values["comb"], form))


def _begin_ready(values: Values, form: str) -> Call:
    streams, site = _given(values, form)[0], _site(values, form)

    def call() -> dict[str, torch.Tensor]:
        x, mix = begin(streams, site)
        return {"x": x, "post": mix.post, "comb": mix.comb}

    return call


def _proceed_ready(values: Values, form: str) -> Call:
    given, site = _given(values, form), _site(values, form)

    def call() -> dict[str, torch.Tensor]:
        streams, x, mix = proceed(*given, site)
        return {"streams": streams, "x": x, "post": mix.post, "comb": mix.comb}

    return call


def _last_ready(values: Values, form: str) -> Call:
    given, norm = _given(values, form), vector(values["norm"], form)
    return lambda: {"x": last(*given, norm, _EPS)}


def _begin(values: Values, form: str) -> Outputs:
    return arrays(_begin_ready(values, form)())


def _proceed(values: Values, form: str) -> Outputs:
    return arrays(_proceed_ready(values, form)())


def _last(values: Values, form: str) -> Outputs:
    return arrays(_last_ready(values, form)())


def _work(rows_moved: Callable[[int], int], fn: bool, values: Values) -> Work:
    """`rows_moved` tells how many rows of D values are read and written for S streams."""
    r, s, d = values["streams"].shape
    outputs = values["fn"].size if fn else 0
    moved = rows_moved(s) * r * d + outputs
    return Work(moved * values["itemsize"], 2 * r * (outputs + s * s * d))


def _expanded(values: Values, transposed: bool = False) -> np.ndarray:
    comb = values["comb"].astype(np.float64)
    comb = comb.transpose(0, 2, 1) if transposed else comb
    mixed: np.ndarray = np.einsum("rkj,rjd->rkd", comb, values["streams"])
    mixed = mixed + values["post"].astype(np.float64)[:, :, None] * values["y"][:, None]
    return mixed


def _normed(values: Values, x: np.ndarray) -> np.ndarray:
    found: np.ndarray = x / np.sqrt((x * x).mean(1, keepdims=True) + _EPS) * values["norm"]
    return found


def _begin_exact(values: Values, *, normed: bool = True, **wrong: Any) -> Outputs:
    found = coefficients_formula(values, **wrong)
    u = (found["pre"].transpose(0, 2, 1) * values["streams"].astype(np.float64)).sum(1)
    x = _normed(values, u) if normed else u
    return {"x": x, "post": found["post"][:, :, 0], "comb": found["comb"]}


def _proceed_exact(values: Values, *, transposed: bool = False, **wrong: Any) -> Outputs:
    streams = _expanded(values, transposed)
    kept = stored(streams.astype(np.float32), values["itemsize"])
    streams_now = kept if values["itemsize"] < 4 else streams
    return {"streams": streams, **_begin_exact({**values, "streams": streams_now}, **wrong)}


def _last_exact(values: Values, transposed: bool = False) -> Outputs:
    return {"x": _normed(values, _expanded(values, transposed).mean(1))}


def _first_stream(values: Values) -> Outputs:
    return {"x": _normed(values, _expanded(values)[:, 0])}


def _sum(values: Values) -> Outputs:
    """Once they are normed, only eps tells them apart: rows must be small."""
    return {"x": _normed(values, _expanded(values).sum(1))}


def _kernel(
    ready: Callable[[Values, str], Call], work: Callable[[Values], Work], *names: str
) -> Kernel:
    small = {"R": 2, "S": 4, "D": 72}
    counts = (1, 32, 2048)
    real = {"S": 4, "D": 4096, "BYTES": 2}
    return Kernel(
        cases=(
            Case("two chunks", small),
            Case("three small streams", {"R": 2, "S": 3, "D": 21, "OVER": 400}),
            Case("bfloat16", {"R": 2, "S": 4, "D": 48, "BYTES": 2}, 2 * HALF, _STORED),
        ),
        full=tuple(
            Case(f"{count} rows", {"R": count, **real}, 2 * HALF, _STORED) for count in counts
        ),
        tolerance=1e-5,
        why=_WHY,
        promises=(each_alone(*names), any_chunks(*names)),
        ready=ready,
        work=work,
    )


_CASES = (
    Case("four streams", {"R": 5, "S": 4, "D": 40}),
    Case("three small streams", {"R": 2, "S": 3, "D": 21, "OVER": 400}),
)
_STREAMS = Argument("streams", "R S D")
_MIX = (
    Argument("y", "R D"),
    Argument("post", "R S"),
    Argument("comb", "R S S", note="stream out before stream in"),
)
_SITE = (
    Argument("fn", "C S*D", note="C = 2 S + S^2: pre, post, comb row by row"),
    Argument("base", "C"),
    Argument("scale", "3"),
    Argument("norm", "D"),
)
_ALL = ("streams", "y", "post", "comb")

BEGIN = Contract(
    name="hyper.begin",
    arguments=(_STREAMS, *_SITE),
    cases=_CASES,
    inputs=_inputs,
    run=_begin,
    exact=_begin_exact,
    tolerance=1e-5,
    why=_WHY,
    promises=(own_rows("streams"),),
    faults=(
        formula("Sinkhorn ends on the streams out", lambda v: _begin_exact(v, rows_first=True)),
        formula("one iteration of Sinkhorn", lambda v: _begin_exact(v, iterations=1)),
        formula("post without its factor 2", lambda v: _begin_exact(v, gain=1.0)),
        formula("nothing is normed", lambda v: _begin_exact(v, normed=False)),
        beside(_begin, "streams", "x"),
    ),
    forms=(TORCH,),
    kernel=_kernel(_begin_ready, partial(_work, lambda s: s + 1, True), "streams"),
)
PROCEED = Contract(
    name="hyper.proceed",
    arguments=(_STREAMS, *_MIX, *_SITE),
    cases=_CASES,
    inputs=_inputs,
    run=_proceed,
    exact=_proceed_exact,
    tolerance=1e-5,
    why=_WHY,
    promises=(own_rows(*_ALL),),
    faults=(
        formula("comb is used transposed", lambda v: _proceed_exact(v, transposed=True)),
        formula("one iteration of Sinkhorn", lambda v: _proceed_exact(v, iterations=1)),
        formula("the output is lost", lambda v: _proceed_exact({**v, "y": 0 * v["y"]})),
        beside(_proceed, "y", "streams"),
    ),
    forms=(TORCH,),
    kernel=_kernel(_proceed_ready, partial(_work, lambda s: 2 * s + 2, True), *_ALL),
)
LAST = Contract(
    name="hyper.last",
    arguments=(_STREAMS, *_MIX, Argument("norm", "D")),
    cases=_CASES,
    inputs=_inputs,
    run=_last,
    exact=_last_exact,
    tolerance=1e-5,
    why="S + 1 products, a mean and a norm in float32",
    promises=(own_rows(*_ALL),),
    faults=(
        formula("comb is used transposed", lambda v: _last_exact(v, transposed=True)),
        formula("one stream instead of their mean", _first_stream),
        formula("a sum instead of their mean", _sum),
        beside(_last, "y", "x"),
    ),
    forms=(TORCH,),
    kernel=_kernel(_last_ready, partial(_work, lambda s: s + 2, False), *_ALL),
)
CONTRACTS = (BEGIN, PROCEED, LAST)
