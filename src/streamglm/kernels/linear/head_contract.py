"""Contracts of the product of heads with their own matrices, for windows and for prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

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
from streamglm.kernels.linear import by_head
from streamglm.kernels.matrix import Format
from streamglm.kernels.promises import any_chunks, each_alone, own_rows
from streamglm.kernels.stored import random


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    itemsize = sizes.get("BYTES", 4)
    x = noise.standard_normal((sizes["R"], sizes["H"], sizes["K"]), np.float32)
    shape = (sizes["H"], sizes["N"], sizes["K"])
    weight = random(noise, Format.PLAIN, shape, itemsize=itemsize)
    return {"x": stored(x, itemsize), "weight": weight, "itemsize": itemsize}


def _ready(wide: bool, values: Values, form: str) -> Call:
    matrix = values["weight"].matrix(form)
    x = rows(values["x"], form, STORED[values["itemsize"]])
    return lambda: {"y": by_head(x, matrix, wide=wide)}


def _run(wide: bool, values: Values, form: str) -> Outputs:
    return arrays(_ready(wide, values, form)())


def _exact(values: Values, turn: int = 0) -> Outputs:
    weights = np.roll(values["weight"].values(), turn, 0)
    return {"y": np.einsum("rhk,hnk->rhn", values["x"].astype(np.float64), weights)}


def _work(values: Values) -> Work:
    r, h, k = values["x"].shape
    n = values["weight"].numbers.shape[1]
    moved = r * h * (k + n) * values["itemsize"]
    return Work(values["weight"].bytes + moved, 2 * r * h * n * k)


def _contract(wide: bool) -> Contract:
    run: Callable[[Values, str], Outputs] = partial(_run, wide)
    small = (
        Case("odd sizes", {"R": 67 if wide else 5, "H": 3, "N": 24, "K": 20}),
        Case("bfloat16", {"R": 3, "H": 2, "N": 17, "K": 32, "BYTES": 2}, HALF),
        *((Case("whole blocks", {"R": 130, "H": 3, "N": 128, "K": 128}),) if wide else ()),
    )
    counts = (2048,) if wide else (1, 32)
    shapes = {"keys": (512, 256), "values": (256, 512)}
    return Contract(
        name=f"linear.by_head.{'prompt' if wide else 'window'}",
        arguments=(
            Argument("x", "R H K", note="any R" if wide else "R up to 32"),
            Argument("weight", "H N K", "Matrix", "plain"),
        ),
        cases=small,
        inputs=_inputs,
        run=run,
        exact=_exact,
        tolerance=1e-5,
        why="float32 products of K terms, row by row",
        promises=(own_rows("x"),),
        faults=(
            formula("the heads are in another order", lambda values: _exact(values, 1)),
            beside(run, "x", "y"),
        ),
        forms=(TORCH,),
        kernel=Kernel(
            cases=small,
            full=tuple(
                Case(f"{name}, {r} rows", {"R": r, "H": 64, "N": n, "K": k, "BYTES": 2}, HALF)
                for name, (n, k) in shapes.items()
                for r in counts
            ),
            tolerance=1e-5,
            why="exact products, and sums of K of them in float32",
            promises=(any_chunks("x") if wide else each_alone("x"),),
            ready=partial(_ready, wide),
            work=_work,
        ),
    )


CONTRACTS = (_contract(False), _contract(True))
