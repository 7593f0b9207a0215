"""The contracts' arguments as the kernels of Kimi delta attention take them, and their cases."""

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
from streamglm.kernels.kda.reference import constants
from streamglm.kernels.promises import any_chunks, each_alone, replayed, windows_of_one

_BOUND = -5.0
_ROWS = ("qkv", "decay", "beta")
_INNER = 2.0**-7
"""bfloat16 operands of the chunk form's products: two roundings of 2^-9 on each side."""


def _gate_call(values: Values) -> Call:
    from streamglm.kernels.kda import kernel

    numbers = constants(values["heads"], values["dim"], _BOUND)
    apart = (vector(values["factors"], TRITON), vector(values["biases"], TRITON))
    x = rows(values["x"], TRITON, STORED[values["itemsize"]])

    def call() -> dict[str, torch.Tensor]:
        found = kernel.gate(x, numbers, *(apart if values["apart"] else ()))
        return dict(zip(("decay", "gate", "beta"), found, strict=True))

    return call


def gate(values: Values) -> Outputs:
    """Columns that stand in the padding are nobody's: what numpy makes of them."""
    found = arrays(_gate_call(values)())
    width = constants(values["heads"], values["dim"], _BOUND).padded
    s = (1.0 / (1.0 + np.exp(-values["x"].astype(np.float64)))).astype(np.float32)
    outputs = {
        "decay": np.float32(_BOUND) * s[:, :width],
        "gate": s[:, width : 2 * width],
        "beta": s[:, 2 * width :],
    }
    for name, whole in outputs.items():
        whole[:, : found[name].shape[1]] = found[name]
    return outputs


def _window_call(values: Values) -> Call:
    """Lanes in slots of their own, in another order; by default o is given and states are kept."""
    from streamglm.kernels.kda import kernel

    lanes, heads, dim, _ = values["state"].shape
    counts, slots = values["counts"], np.arange(lanes)[::-1]
    firsts = np.cumsum(counts) - counts
    states = vector(values["state"][::-1], TRITON)
    qkv = rows(values["qkv"], TRITON, STORED[values["itemsize"]])
    decay, beta = rows(values["decay"], TRITON), rows(values["beta"], TRITON)
    table = indices(np.stack([firsts, counts, slots], 1))
    numbers = constants(heads, dim, _BOUND)
    flags = {name: values.get(name, True) for name in ("keep", "give")}

    def call() -> dict[str, torch.Tensor]:
        o = kernel.window(qkv, decay, beta, states, table, numbers, **flags)
        return {"o": o, "state": states}

    return call


def window(values: Values) -> Outputs:
    """By the kernel; without o where none is given."""
    found = arrays(_window_call(values)())
    state = {"state": found["state"][::-1]}
    return {"o": found["o"], **state} if values.get("give", True) else state


def _steps(values: Values) -> Values:
    return {**values, "counts": np.ones(len(values["qkv"]), np.int64)}


def step(values: Values) -> Outputs:
    """A window of one row of each lane."""
    return window(_steps(values))


def _prompt_call(values: Values) -> Call:
    """Whole chunks and a last one of what is left."""
    from streamglm.kernels.kda import kernel

    heads, dim, _ = values["state"].shape
    end = values["rows"]
    chunks = [[first, min(kernel.CHUNK, end - first)] for first in range(0, end, kernel.CHUNK)]
    states = vector(values["state"][None], TRITON)
    qkv = rows(values["qkv"], TRITON, STORED[values["itemsize"]])
    decay, beta = rows(values["decay"], TRITON), rows(values["beta"], TRITON)
    pieces, lanes = indices(np.array(chunks)), indices(np.array([[0, len(chunks), 0]]))
    numbers = constants(heads, dim, _BOUND)

    def call() -> dict[str, torch.Tensor]:
        o = kernel.prompt(qkv, decay, beta, states, pieces, lanes, numbers)
        return {"o": o, "state": states}

    return call


def prompt(values: Values) -> Outputs:
    """By the kernel; o of the real rows."""
    found = arrays(_prompt_call(values)())
    return {"o": found["o"][: values["rows"]], "state": found["state"][0]}


def _gate_work(values: Values) -> Work:
    inner = len(values["x"]) * values["heads"] * values["dim"]
    return Work(inner * (3 * values["itemsize"] + 4))


def _rows_work(values: Values) -> Work:
    """States read and written, and rows; a row of a state is an update and two products."""
    heads, dim = values["state"].shape[-3], values["state"].shape[-1]
    count = len(values["qkv"])
    moved = count * heads * (4 * dim * values["itemsize"] + 4 * dim)
    return Work(2 * 4 * values["state"].size + moved, 6 * count * heads * dim * dim)


def _chunk_work(values: Values) -> Work:
    """Of each chunk of 64 also the five products of 64 rows with one another."""
    rows_work = _rows_work(values)
    heads, dim = values["state"].shape[0], values["state"].shape[1]
    return Work(rows_work.bytes, rows_work.flops + 10 * 64 * len(values["qkv"]) * heads * dim)


GATE = Kernel(
    cases=(
        Case("odd", {"R": 5, "H": 3, "D": 24}),
        Case("weights apart", {"R": 4, "H": 2, "D": 16, "APART": 1}),
        Case("bfloat16", {"R": 6, "H": 4, "D": 32, "BYTES": 2, "APART": 1}, HALF),
    ),
    full=(
        Case("a window", {"R": 8, "H": 64, "D": 128, "BYTES": 2, "APART": 1}, HALF),
        Case("a prompt", {"R": 2048, "H": 64, "D": 128, "BYTES": 2, "APART": 1}, HALF),
        Case("a rank's odd share", {"R": 8, "H": 22, "D": 128, "BYTES": 2, "APART": 1}, HALF),
    ),
    tolerance=1e-6,
    why="one exp and one division; bfloat16 rounds the output gate once",
    promises=(each_alone("x"), any_chunks("x")),
    ready=timed("kda.gate", _gate_call),
    work=_gate_work,
)

STEP = Kernel(
    cases=(
        Case("odd", {"N": 3, "H": 3, "D": 24}),
        Case("bfloat16", {"N": 2, "H": 2, "D": 32, "BYTES": 2}, HALF),
    ),
    full=(
        Case("eight lanes", {"N": 8, "H": 64, "D": 128, "BYTES": 2}, HALF),
        Case("a rank's odd share", {"N": 3, "H": 22, "D": 128, "BYTES": 2}, HALF),
    ),
    tolerance=3e-6,
    why="sums of D float32 products; bfloat16 rounds o once",
    promises=(each_alone("qkv", "decay", "beta", "state"),),
    ready=timed("kda.step", lambda values: _window_call(_steps(values))),
    work=_rows_work,
)

WINDOW = Kernel(
    cases=(
        Case("three lanes", {"N": 3, "R": 3, "H": 1, "D": 24}),
        Case("bfloat16", {"N": 2, "R": 4, "H": 2, "D": 16, "BYTES": 2}, HALF),
    ),
    full=(
        Case("eight lanes", {"N": 8, "R": 4, "H": 64, "D": 128, "BYTES": 2}, HALF),
        Case("one lane, many rows", {"N": 1, "R": 32, "H": 64, "D": 128, "BYTES": 2}, HALF),
    ),
    tolerance=2e-5,
    why="sums of D float32 products, row after row; bfloat16 rounds o once",
    promises=(
        windows_of_one(*_ROWS, carried="state", output="o"),
        replayed(*_ROWS, carried="state"),
    ),
    ready=timed("kda.window", _window_call),
    work=_rows_work,
)


def _chunk_case(name: str, heads: int, rows: int, decay: int, same: int = 0) -> Case:
    sizes = {"N": -(-rows // 64) * 64, "H": heads, "D": 128, "ROWS": rows}
    return Case(name, {**sizes, "DECAY": decay, "SAME": same, "BYTES": 2}, HALF, _INNER)


CHUNK = Kernel(
    cases=(
        Case("padded, odd", {"N": 128, "H": 2, "D": 24, "ROWS": 77, "DECAY": 1, "SAME": 0}),
        Case("strong decays", {"N": 128, "H": 1, "D": 16, "ROWS": 128, "DECAY": 5, "SAME": 0}),
        Case("the same key", {"N": 64, "H": 2, "D": 16, "ROWS": 64, "DECAY": 0, "SAME": 1}),
        Case(
            "bfloat16",
            {"N": 64, "H": 1, "D": 32, "ROWS": 50, "DECAY": 2, "SAME": 0, "BYTES": 2},
            HALF,
            _INNER,
        ),
    ),
    full=(
        _chunk_case("a prompt", 64, 1024, 2),
        _chunk_case("strong decays, a rank's odd share", 22, 500, 5),
        _chunk_case("the same key", 8, 256, 0, 1),
    ),
    tolerance=2e-5,
    why="exponents of up to 80 within a block of 16; case by case what bfloat16 operands add",
    ready=timed("kda.chunk", _prompt_call),
    work=_chunk_work,
)
