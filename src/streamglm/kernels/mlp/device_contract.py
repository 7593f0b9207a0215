"""Contracts of the dense MLP over weights of any format, for windows and for prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

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
    rows,
    stored,
)
from streamglm.kernels.matrix import Format
from streamglm.kernels.mlp import prompt, window
from streamglm.kernels.mlp.contract import swiglu
from streamglm.kernels.promises import any_chunks, each_alone, own_rows
from streamglm.kernels.stored import random

LIMIT = 1.5
INNER = 4e-3
"""Hidden values are rounded to bfloat16, and may fall on either side."""


def _inputs(format: Format, sizes: Mapping[str, int], noise: Noise) -> Values:
    itemsize, k, i = sizes.get("BYTES", 4), sizes["K"], sizes["I"]
    x = 1.5 * noise.standard_normal((sizes["R"], k), np.float32)
    return {
        "x": stored(x, itemsize),
        "gate_up": random(noise, format, (1, 2 * i, k), itemsize=itemsize, halves=2),
        "down": random(noise, format, (1, k, i), itemsize=itemsize),
        "itemsize": itemsize,
    }


def _ready(windows: bool, values: Values, form: str) -> Call:
    x = rows(values["x"], form, STORED[values["itemsize"]])
    gate_up, down = (values[name].matrix(form) for name in ("gate_up", "down"))
    apply = window if windows else prompt
    return lambda: {"y": apply(x, gate_up, down, LIMIT)}


def _run(windows: bool, values: Values, form: str) -> Outputs:
    return arrays(_ready(windows, values, form)())


def _work(values: Values) -> Work:
    """Hidden values need not leave the chip."""
    r, k = values["x"].shape
    weights = values["gate_up"], values["down"]
    flops = sum(2 * r * weight.elements for weight in weights)
    return Work(sum(w.bytes for w in weights) + 2 * r * k * values["itemsize"], flops)


def _exact(values: Values, limit: float = LIMIT, **wrong: Any) -> Outputs:
    both = values["x"].astype(np.float64) @ values["gate_up"].values()[0].T
    hidden = swiglu(both, limit, **wrong)
    return {"y": hidden @ values["down"].values()[0].T}


def _swapped(values: Values) -> Outputs:
    both = values["x"].astype(np.float64) @ values["gate_up"].values()[0].T
    hidden = swiglu(np.roll(both, both.shape[1] // 2, 1), LIMIT)
    return {"y": hidden @ values["down"].values()[0].T}


def _contract(windows: bool, format: Format) -> Contract:
    run: Callable[[Values, str], Outputs] = partial(_run, windows)
    i = {Format.PLAIN: 20, Format.FP8: 128, Format.NVFP4: 32}[format]
    odd = Case("odd sizes", {"R": 3, "K": 48, "I": i})
    narrow = Case("bfloat16", {"R": 2, "K": 16, "I": i, "BYTES": 2}, HALF, INNER)
    tiles = Case("tiles", {"R": 130, "K": 72, "I": 136})
    small: tuple[Case, ...] = (odd, narrow) if windows else (odd,)
    if not windows and format is Format.PLAIN:
        small = (*small, narrow, tiles)
    count = 32 if windows else 2048
    full = (
        Case("dense", {"R": count, "K": 4096, "I": 12288, "BYTES": 2}, HALF, INNER),
        Case("shared expert", {"R": count, "K": 4096, "I": 2048, "BYTES": 2}, HALF, INNER),
    )
    why = "float32 products of K and of I terms, and one exp"
    return Contract(
        name=f"mlp.{'window' if windows else 'prompt'}.{format.name.lower()}",
        arguments=(
            Argument("x", "R K", note="R up to 32" if windows else "any R"),
            Argument("gate_up", "2*I K", "Matrix", "gate, then up"),
            Argument("down", "K I", "Matrix"),
        ),
        cases=small,
        inputs=partial(_inputs, format),
        run=run,
        exact=_exact,
        tolerance=1e-5,
        why=why,
        promises=(own_rows("x"),),
        faults=(
            formula("up is not bounded", lambda v: _exact(v, up_limit=np.inf)),
            formula("the gate is bounded below", lambda v: _exact(v, floor=-LIMIT)),
            formula("gate and up are swapped", _swapped),
            beside(run, "x", "y"),
        ),
        forms=(TORCH,),
        kernel=Kernel(
            cases=small,
            full=full,
            tolerance=2e-5,
            why=f"{why}; in bfloat16 hidden values are rounded",
            promises=(each_alone("x"),) if windows else (any_chunks("x"),),
            ready=partial(_ready, windows),
            work=_work,
        ),
    )


CONTRACTS = tuple(_contract(windows, format) for windows in (True, False) for format in Format)
