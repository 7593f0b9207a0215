"""The contracts' arguments as the kernel of the short convolution takes them, and its cases."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels.contract import (
    HALF,
    STORED,
    TRITON,
    Call,
    Case,
    Kernel,
    Outputs,
    Values,
    Work,
    arrays,
    indices,
    rows,
    timed,
    vector,
)
from streamglm.kernels.promises import each_alone, replayed, windows_of_one
from streamglm.kernels.short_conv.reference import prepare


def prompt(values: Values) -> Outputs:
    """One lane; rows of padding have no output, so they are given that of the row before."""
    found = lanes(_one(values))
    return {"y": _padded(found["y"], values), "carried": found["carried"][0]}


def _padded(y: np.ndarray, values: Values) -> np.ndarray:
    """Rows behind the last are nobody's: what the formula makes of them in float32."""
    inputs = np.concatenate([values["carried"], values["x"]])
    taps, end = values["weight"].shape[1], values["rows"]
    behind = [
        (inputs[i : i + taps] * values["weight"].T).sum(0) for i in range(end, len(values["x"]))
    ]
    more = np.array(behind, np.float32).reshape(-1, y.shape[1])
    return np.concatenate([y, more / (1.0 + np.exp(-more))])


def _call(values: Values) -> Call:
    """Lanes in slots of their own, in another order; by default y is given and inputs are kept."""
    from streamglm.kernels.short_conv import kernel

    counts, dtype = values["counts"], STORED[values["itemsize"]]
    carried = vector(values["carried"][::-1], TRITON, dtype)
    table = np.stack([np.cumsum(counts) - counts, counts, np.arange(len(counts))[::-1]], 1)
    lanes, most = indices(table), int(counts.max())
    x, weight = rows(values["x"], TRITON, dtype), prepare(vector(values["weight"], TRITON))
    flags = {name: values.get(name, True) for name in ("keep", "give")}

    def call() -> dict[str, torch.Tensor]:
        y = kernel.conv(x, carried, weight, lanes, most, **flags)
        return {"y": y, "carried": carried}

    return call


def lanes(values: Values) -> Outputs:
    """By the kernel; without y where none is given."""
    found = arrays(_call(values)())
    moved = {"carried": found["carried"][::-1]}
    return {"y": found["y"], **moved} if values.get("give", True) else moved


def step(values: Values) -> Outputs:
    """One row of each lane."""
    return lanes(_steps(values))


def _steps(values: Values) -> Values:
    return {**values, "counts": np.ones(len(values["x"]), np.int64)}


def _one(values: Values) -> Values:
    """A prompt as a lane of its own."""
    end = values["rows"]
    given = {"x": values["x"][:end], "carried": values["carried"][None], "counts": np.array([end])}
    return {**values, **given}


def _work(values: Values) -> Work:
    """Rows in and out."""
    return Work(2 * values["x"].size * values["itemsize"])


PROMPT = Kernel(
    cases=(
        Case("padded, odd channels", {"N": 128, "C": 27, "K": 4, "ROWS": 67}),
        Case("fewer rows than taps", {"N": 64, "C": 16, "K": 4, "ROWS": 2}),
        Case("bfloat16", {"N": 64, "C": 40, "K": 3, "ROWS": 33, "BYTES": 2}, HALF),
    ),
    full=(Case("a prompt", {"N": 2048, "C": 24576, "K": 4, "ROWS": 2048, "BYTES": 2}, HALF),),
    tolerance=1e-6,
    why="K float32 products and one exp; bfloat16 rounds y once",
    ready=timed("short_conv.prompt", lambda values: _call(_one(values))),
    work=_work,
)

WINDOW = Kernel(
    cases=(
        Case("odd", {"N": 3, "C": 27, "K": 3}),
        Case("bfloat16", {"N": 2, "C": 48, "K": 4, "BYTES": 2}, HALF),
    ),
    full=(Case("eight lanes", {"N": 8, "C": 24576, "K": 4, "BYTES": 2}, HALF),),
    tolerance=1e-6,
    why=PROMPT.why,
    promises=(each_alone("x", "carried"),),
    ready=timed("short_conv.window", lambda values: _call(_steps(values))),
    work=_work,
)

LANES = Kernel(
    cases=(
        Case("three lanes", {"L": 3, "R": 5, "C": 27, "K": 4}),
        Case("bfloat16", {"L": 2, "R": 2, "C": 16, "K": 4, "BYTES": 2}, HALF),
    ),
    full=(Case("eight lanes", {"L": 8, "R": 4, "C": 24576, "K": 4, "BYTES": 2}, HALF),),
    tolerance=1e-6,
    why=PROMPT.why,
    promises=(
        windows_of_one("x", carried="carried", output="y"),
        replayed("x", carried="carried"),
    ),
    ready=timed("short_conv.lanes", _call),
    work=_work,
)
