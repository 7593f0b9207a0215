"""Contracts of the linear layers over weights of any format, for windows and for prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

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
)
from streamglm.kernels.linear import prompt, window
from streamglm.kernels.matrix import Format
from streamglm.kernels.promises import any_chunks, each_alone, own_rows
from streamglm.kernels.stored import random

Sizes = Mapping[str, int]
_WHY = (
    "exact products, and sums of K of them in float32; a tensor core aligns its terms before it "
    "adds them"
)
_MODEL = {
    "in": (24576, 4096),
    "KDA out": (4096, 8192),
    "queries": (16384, 1536),
    "latent out": (4096, 16384),
    "square": (4096, 4096),
    "narrow": (512, 4096),
}
"""(N, K) of the model's linear layers."""


def _inputs(format: Format, sizes: Sizes, noise: Noise) -> Values:
    itemsize = sizes.get("BYTES", 4)
    x = noise.standard_normal((sizes["R"], sizes["K"]), np.float32)
    weight = random(noise, format, (1, sizes["N"], sizes["K"]), itemsize=itemsize)
    out = sizes.get("OUT", itemsize)
    return {
        "x": stored(x, itemsize),
        "weight": weight,
        "itemsize": itemsize,
        "out": out,
        "apart": "APART" in sizes,
    }


def _ready(windows: bool, values: Values, form: str) -> Call:
    matrix, out = values["weight"].matrix(form), STORED[values["out"]]
    x = rows(values["x"], form, STORED[values["itemsize"]])
    if values["apart"]:
        x = torch.nn.functional.pad(x, (1, 2))[:, 1:-2]
    multiply = window if windows else prompt
    return lambda: {"y": multiply(x, matrix, out)}


def _run(windows: bool, values: Values, form: str) -> Outputs:
    return arrays(_ready(windows, values, form)())


def _work(values: Values) -> Work:
    (r, k), weight = values["x"].shape, values["weight"]
    n = weight.numbers.shape[1]
    rows_bytes = r * (k * values["itemsize"] + n * values["out"])
    return Work(weight.bytes + rows_bytes, 2 * r * n * k)


def _exact(values: Values, **wrong: int) -> Outputs:
    return {"y": values["x"].astype(np.float64) @ values["weight"].values(**wrong)[0].T}


def _last_lost(values: Values) -> Outputs:
    """The last column of x is lost, which a step over K may forget."""
    x = values["x"].copy()
    x[:, -1] = 0.0
    return _exact({**values, "x": x})


def _faults(format: Format) -> tuple[Fault, ...]:
    if format is Format.PLAIN:
        return ()
    moved = formula("scales of the block beside", lambda v: _exact(v, scales_moved=1))
    if format is Format.FP8:
        return (moved,)
    swapped = formula("the halves of bytes are swapped", lambda v: _exact(v, halves_swapped=True))
    return moved, swapped


def _small(format: Format, windows: bool) -> tuple[Case, ...]:
    """Odd sizes; K of NVFP4 must be whole scales. Two tiles of rows, of weights, of columns, and
    such whose rows lie as descriptors want them."""
    n, k = {Format.PLAIN: (24, 71), Format.FP8: (136, 200), Format.NVFP4: (24, 304)}[format]
    parts = Case("five parts of a row", {"R": 18, "N": 24, "K": 640, "BYTES": 2, "OUT": 4})
    apart = Case("rows apart", {"R": 3, "N": 17, "K": 32, "BYTES": 2, "APART": 1}, HALF)
    described = {"R": 260, "N": 72, "K": 72}
    by_descriptors = () if windows or format is not Format.PLAIN else (Case("tiles", described),)
    return (
        *by_descriptors,
        Case("odd sizes", {"R": 5 if windows else 260, "N": n, "K": k}),
        Case("bfloat16", {"R": 3, "N": 17, "K": 32, "BYTES": 2}, HALF),
        Case("bfloat16 to float32", {"R": 1, "N": 5, "K": 272, "BYTES": 2, "OUT": 4}),
        *((parts, apart) if windows and format is Format.PLAIN else ()),
    )


def _full(windows: bool) -> tuple[Case, ...]:
    counts = (1, 7, 32) if windows else (2048,)
    return tuple(
        Case(f"{name}, {r} rows", {"R": r, "N": n, "K": k, "BYTES": 2}, HALF)
        for name, (n, k) in _MODEL.items()
        for r in counts
    )


def _contract(windows: bool, format: Format) -> Contract:
    run: Callable[[Values, str], Outputs] = partial(_run, windows)
    name = f"linear.{'window' if windows else 'prompt'}.{format.name.lower()}"
    small = _small(format, windows)
    return Contract(
        name=name,
        arguments=(
            Argument("x", "R K", note="R up to 32" if windows else "any R"),
            Argument("weight", "N K", "Matrix", f"in the format {format.name}"),
        ),
        cases=small,
        inputs=partial(_inputs, format),
        run=run,
        exact=_exact,
        tolerance=1e-5,
        why="float32 products of K terms, row by row",
        promises=(own_rows("x"),),
        faults=(
            formula("the last column of x is lost", _last_lost),
            beside(run, "x", "y"),
            *_faults(format),
        ),
        forms=(TORCH,),
        kernel=Kernel(
            cases=small,
            full=_full(windows),
            tolerance=1e-5,
            why=_WHY,
            promises=(each_alone("x") if windows else any_chunks("x"),),
            ready=partial(_ready, windows),
            work=_work,
        ),
    )


CONTRACTS = tuple(_contract(windows, format) for windows in (True, False) for format in Format)
