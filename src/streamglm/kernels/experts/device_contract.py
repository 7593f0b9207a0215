"""Contracts of the router's choice and of the grouped experts, on weights of any format."""

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
    Fault,
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
from streamglm.kernels.experts import ExpertStacks, choose, prompt, window
from streamglm.kernels.matrix import Format
from streamglm.kernels.mlp.contract import swiglu
from streamglm.kernels.mlp.device_contract import INNER, LIMIT
from streamglm.kernels.promises import any_chunks, each_alone, own_rows
from streamglm.kernels.stored import random

_FACTOR = 2.5
Sizes = Mapping[str, int]


def _choice_inputs(sizes: Sizes, noise: Noise) -> Values:
    """Logits of few values, so that they tie, or else differ by more than a rounding does; a bias
    lifts an expert above all that have none."""
    e = sizes["E"]
    logits = noise.integers(-4, 5, (sizes["R"], e)).astype(np.float32) / 2
    bias = np.float32(1.25) * (noise.random(e) < 4 / e).astype(np.float32)
    normalise = bool(sizes["NORM"])
    return {"logits": logits, "bias": bias, "count": sizes["C"], "normalise": normalise}


def _choice_ready(values: Values, form: str) -> Call:
    logits, bias = rows(values["logits"], form), vector(values["bias"], form)

    def call() -> dict[str, torch.Tensor]:
        chosen, shares = choose(
            logits,
            bias,
            count=values["count"],
            normalise=values["normalise"],
            factor=_FACTOR,
        )
        return {"chosen": chosen, "shares": shares}

    return call


def _choice_run(values: Values, form: str) -> Outputs:
    return arrays(_choice_ready(values, form)())


def _choice_exact(
    values: Values, *, ties: int = 1, biased: bool = False, ascending: bool = True
) -> Outputs:
    scores = 1.0 / (1.0 + np.exp(-values["logits"].astype(np.float64)))
    keys = scores + values["bias"]
    by_key = np.lexsort((ties * np.arange(keys.shape[1]) + 0 * keys, -keys), axis=1)
    chosen = by_key[:, : values["count"]]
    chosen = np.sort(chosen, 1) if ascending else chosen
    shares = np.take_along_axis(keys if biased else scores, chosen, 1)
    if values["normalise"]:
        shares = shares / (shares.sum(1, keepdims=True) + 1e-20)
    return {"chosen": chosen, "shares": shares * _FACTOR}


CHOOSE = Contract(
    name="experts.choose",
    arguments=(
        Argument("logits", "R E"),
        Argument("bias", "E", note="moves the choice only"),
        Argument("count", "", "int", "C"),
        Argument("normalise", "", "bool"),
    ),
    cases=(
        Case("two of six", {"R": 9, "E": 6, "C": 2, "NORM": 1}),
        Case("not normalised", {"R": 5, "E": 40, "C": 5, "NORM": 0}),
        Case("all", {"R": 3, "E": 4, "C": 4, "NORM": 1}),
    ),
    inputs=_choice_inputs,
    run=_choice_run,
    exact=_choice_exact,
    tolerance=1e-6,
    why="one exp, a sum of C scores, one division",
    promises=(own_rows("logits"),),
    faults=(
        formula("ties go to the higher expert", lambda v: _choice_exact(v, ties=-1)),
        formula("the bias is in the shares", lambda v: _choice_exact(v, biased=True)),
        formula("experts by size, not ascending", lambda v: _choice_exact(v, ascending=False)),
        beside(_choice_run, "logits", "shares"),
    ),
    forms=(TORCH,),
    kernel=Kernel(
        cases=(
            Case("two of six", {"R": 5, "E": 6, "C": 2, "NORM": 1}),
            Case("not normalised", {"R": 4, "E": 40, "C": 5, "NORM": 0}),
        ),
        full=(
            Case("a window", {"R": 32, "E": 288, "C": 8, "NORM": 1}),
            Case("a prompt", {"R": 2048, "E": 288, "C": 8, "NORM": 1}),
        ),
        tolerance=1e-6,
        why="one exp, a sum of C scores, one division",
        promises=(each_alone("logits"), any_chunks("logits")),
        ready=_choice_ready,
        work=lambda values: Work(4 * values["logits"].size + 8 * len(values["logits"])),
    ),
)


def _inputs(format: Format, sizes: Sizes, noise: Noise) -> Values:
    """Expert 0 has rows of every kind and the last one has none, if experts are enough."""
    r, e, c, k, i = (sizes[name] for name in "RECKI")
    itemsize = sizes.get("BYTES", 4)
    others = np.argsort(noise.random((r, e - 1)), 1)[:, :c] + 1
    others[others == e - 1] = 0 if c < e - 1 else e - 1
    return {
        "x": stored(1.5 * noise.standard_normal((r, k), np.float32), itemsize),
        "chosen": np.sort(others, 1).astype(np.int32),
        "shares": noise.random((r, c), np.float32),
        "shared": stored(noise.standard_normal((r, k), np.float32), itemsize),
        "gate_up": random(noise, format, (e, 2 * i, k), itemsize=itemsize, halves=2),
        "down": random(noise, format, (e, k, i), itemsize=itemsize),
        "itemsize": itemsize,
    }


def _ready(windows: bool, values: Values, form: str) -> Call:
    dtype = STORED[values["itemsize"]]
    stacks = ExpertStacks(values["gate_up"].matrix(form), values["down"].matrix(form), LIMIT)
    x, shared = (rows(values[name], form, dtype) for name in ("x", "shared"))
    chosen = vector(values["chosen"], form, torch.int32)
    shares = vector(values["shares"], form)
    apply = window if windows else prompt
    return lambda: {"y": apply(x, chosen, shares, stacks, shared)}


def _run(windows: bool, values: Values, form: str) -> Outputs:
    return arrays(_ready(windows, values, form)())


def _work(values: Values) -> Work:
    """The weights of every expert that a row has, once."""
    (r, k), c = values["x"].shape, values["chosen"].shape[1]
    weights, count = (values["gate_up"], values["down"]), len(values["gate_up"].numbers)
    used = len(np.unique(values["chosen"]))
    flops = sum(2 * r * c * weight.elements // count for weight in weights)
    read = sum(weight.bytes * used // count for weight in weights)
    return Work(read + 3 * r * k * values["itemsize"], flops)


def _exact(
    values: Values, *, shift: int = 0, shared: float = 1.0, limit: float = LIMIT, **wrong: Any
) -> Outputs:
    """Row by row; the options are faults."""
    first, second = values["gate_up"].values(**wrong), values["down"].values(**wrong)
    x = values["x"].astype(np.float64)
    y = shared * values["shared"].astype(np.float64)
    for expert in np.unique(values["chosen"]):
        row, place = np.nonzero(values["chosen"] == expert)
        used = (expert + shift) % len(first)
        hidden = swiglu(x[row] @ first[used].T, limit)
        y[row] += values["shares"][row, place][:, None] * (hidden @ second[used].T)
    return {"y": y}


def _faults(format: Format) -> tuple[Fault, ...]:
    if format is Format.PLAIN:
        return ()
    return (formula("scales of the block beside", lambda v: _exact(v, scales_moved=1)),)


def _contract(windows: bool, format: Format) -> Contract:
    run: Callable[[Values, str], Outputs] = partial(_run, windows)
    plain = format is Format.PLAIN
    tiny = {"R": 3, "E": 3, "C": 1, "K": 32, "I": 128 if format is Format.FP8 else 16}
    narrow = Case("three experts, bfloat16", {**tiny, "BYTES": 2}, HALF, INNER)
    small: tuple[Case, ...]
    if not plain:
        small = (narrow,) if windows else (Case("three experts", tiny),)
    elif windows:
        small = (Case("five experts", {"R": 5, "E": 5, "C": 2, "K": 24, "I": 20}), narrow)
    else:
        several = {"R": 140, "E": 3, "C": 1, "K": 24, "I": 12}
        small = (
            Case("several blocks of an expert", several),
            Case("pairs in two turns", {"R": 516, "E": 3, "C": 2, "K": 8, "I": 4}),
            Case("rows no descriptor takes", {**several, "K": 20, "I": 10}),
            narrow,
        )
    real = {"E": 16, "C": 8, "K": 4096, "I": 2048, "BYTES": 2}
    full = tuple(
        Case(f"{count} rows", {"R": count, **real}, HALF, INNER)
        for count in ((1, 8, 32) if windows else (300, 2048))
    )
    why = "float32 products of K and of I terms, summed over the experts of a row"
    return Contract(
        name=f"experts.{'window' if windows else 'prompt'}.{format.name.lower()}",
        arguments=(
            Argument("x", "R K", note="R up to 32" if windows else "any R"),
            Argument("chosen", "R C", "int32", "ascending in a row"),
            Argument("shares", "R C"),
            Argument("shared", "R K", note="added once"),
            Argument("gate_up", "E 2*I K", "Matrix"),
            Argument("down", "E K I", "Matrix"),
        ),
        cases=small,
        inputs=partial(_inputs, format),
        run=run,
        exact=_exact,
        tolerance=1e-5,
        why=why,
        promises=(own_rows("x", "chosen", "shares", "shared"),),
        faults=(
            formula("the expert beside", lambda v: _exact(v, shift=1)),
            formula("the shared expert is lost", lambda v: _exact(v, shared=0.0)),
            formula("nothing is bounded", lambda v: _exact(v, limit=np.inf)),
            beside(run, "x", "y"),
            *_faults(format),
        ),
        forms=(TORCH,),
        kernel=Kernel(
            cases=small,
            full=full,
            tolerance=2e-5,
            why=f"{why}; in bfloat16 hidden values are rounded",
            promises=((each_alone if windows else any_chunks)("x", "chosen", "shares", "shared"),),
            ready=partial(_ready, windows),
            work=_work,
        ),
    )


CONTRACTS = (
    CHOOSE,
    *(_contract(windows, format) for windows in (True, False) for format in Format),
)
