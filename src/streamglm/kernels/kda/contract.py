"""Contracts of Kimi delta attention."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamglm.kernels.contract import (
    TILINGS,
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
from streamglm.kernels.kda import chunk, constants, gate, kernel_cases, step
from streamglm.kernels.promises import own_prefix, own_rows, same_bits

_BOUND = -5.0


def _sigmoid(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return 1.0 / (1.0 + np.exp(-x.astype(np.float64)))


def _gate_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    heads, dim, itemsize = sizes["H"], sizes["D"], sizes.get("BYTES", 4)
    width = -(-heads * dim // 32) * 32
    x = 4.0 * noise.standard_normal((sizes["R"], 2 * width + -(-heads // 32) * 32), np.float32)
    factors, biases = np.ones(heads, np.float32), np.zeros(heads * dim, np.float32)
    if sizes.get("APART"):
        factors = np.exp(noise.standard_normal(heads, np.float32))
        biases = noise.standard_normal(heads * dim, np.float32)
    return {
        "x": stored(x, itemsize),
        "factors": factors,
        "biases": biases,
        "apart": bool(sizes.get("APART")),
        "heads": heads,
        "dim": dim,
        "itemsize": itemsize,
    }


def _gate(values: Values, form: str) -> Outputs:
    if form == TRITON:
        return kernel_cases.gate(values)
    numbers = constants(values["heads"], values["dim"], _BOUND)
    decay, out, beta = gate(rows(values["x"], form), numbers)
    return {"decay": array(decay), "gate": array(out), "beta": array(beta)}


def _gate_exact(values: Values) -> Outputs:
    width = -(-values["heads"] * values["dim"] // 32) * 32
    x, inner = values["x"].astype(np.float64), values["heads"] * values["dim"]
    factors = np.repeat(values["factors"], values["dim"])
    x[:, :inner] = factors * (x[:, :inner] + values["biases"])
    s = _sigmoid(x)
    return {
        "decay": _BOUND * s[:, :width],
        "gate": s[:, width : 2 * width],
        "beta": s[:, 2 * width :],
    }


def _softplus_decay(values: Values) -> Outputs:
    outputs = _gate_exact(values)
    x = values["x"][:, : outputs["decay"].shape[1]].astype(np.float64)
    return {**outputs, "decay": -np.log1p(np.exp(x))}


GATE = Contract(
    name="kda.gate",
    arguments=(
        Argument("x", "R 2F+B", note="F = H * D padded to 32; may be overwritten"),
        Argument("bound", "", "float", "below 0"),
    ),
    cases=(
        Case("even", {"R": 8, "H": 4, "D": 32}),
        Case("odd", {"R": 5, "H": 3, "D": 24}),
    ),
    inputs=_gate_inputs,
    run=_gate,
    exact=_gate_exact,
    tolerance=1e-6,
    why="one exp and one division",
    promises=(own_rows("x"),),
    faults=(formula("a softplus decay", _softplus_decay), beside(_gate, "x", "gate")),
    kernel=kernel_cases.GATE,
)


def _rule(
    values: Values,
    state: npt.NDArray[Any],
    qkv: npt.NDArray[Any],
    *,
    eps: float = 1e-6,
    decay_last: bool = False,
    read_first: bool = False,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """README.md's recurrence over rows [n, ...] of one lane, row by row in float64."""
    h, d = state.shape[0], state.shape[1]
    state = state.astype(np.float64)
    o = np.empty((len(qkv), h, d))
    for i, row in enumerate(qkv.astype(np.float64)):
        q, k, v = row.reshape(3, h, d)
        q = q / np.sqrt((q * q).sum(1, keepdims=True) + eps) * d**-0.5
        k = k / np.sqrt((k * k).sum(1, keepdims=True) + eps)
        shrink = np.exp(values["decay"][i].astype(np.float64).reshape(h, d, 1))
        beta = values["beta"][i].astype(np.float64)[:, None]
        before = state
        state = state if decay_last else state * shrink
        delta = beta * (v - np.einsum("hkv,hk->hv", state, k))
        state = state + k[:, :, None] * delta[:, None]
        state = state * shrink if decay_last else state
        o[i] = np.einsum("hkv,hk->hv", before if read_first else state, q)
    return o, state


def _step_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    n, h, d = sizes["N"], sizes["H"], sizes["D"]
    itemsize = sizes.get("BYTES", 4)
    return {
        "itemsize": itemsize,
        "qkv": stored(noise.standard_normal((n, 3 * h * d), np.float32), itemsize),
        "decay": -5.0 * noise.random((n, h * d), np.float32),
        "beta": noise.random((n, h), np.float32),
        "state": noise.standard_normal((n, h, d, d), np.float32),
    }


def _step(values: Values, form: str) -> Outputs:
    if form == TRITON:
        return kernel_cases.step(values)
    _, heads, dim, _ = values["state"].shape
    numbers = constants(heads, dim, _BOUND)
    qkv, decay, beta, state = (rows(values[n], form) for n in ("qkv", "decay", "beta", "state"))
    o = step(qkv, decay, beta, state, numbers, TILINGS[form])
    return {"o": array(o), "state": array(state)}


def _step_formula(values: Values, **wrong: Any) -> Outputs:
    found = []
    for lane in range(len(values["qkv"])):
        one = {name: values[name][lane : lane + 1] for name in ("decay", "beta")}
        qkv = values["qkv"][lane : lane + 1]
        found.append(_rule(one, values["state"][lane], qkv, **wrong))
    return {"o": np.concatenate([o for o, _ in found]), "state": np.stack([s for _, s in found])}


_WRONG: tuple[tuple[str, dict[str, Any]], ...] = (
    ("the decay comes after the delta", {"decay_last": True}),
    ("the state is read before the row is in it", {"read_first": True}),
    ("eps 1e-2 under the root", {"eps": 1e-2}),
)

STEP = Contract(
    name="kda.step",
    arguments=(
        Argument("qkv", "N 3*H*D", note="q, k, v as they leave the convolution"),
        Argument("decay", "N H*D", note="logarithms, in [bound, 0]"),
        Argument("beta", "N H"),
        Argument("state", "N H D D", note="key before value; contiguous, in place"),
    ),
    cases=(
        Case("eight lanes", {"N": 8, "H": 4, "D": 32}),
        Case("odd", {"N": 3, "H": 3, "D": 24}),
        Case("one lane", {"N": 1, "H": 1, "D": 16}),
    ),
    inputs=_step_inputs,
    run=_step,
    exact=_step_formula,
    tolerance=3e-6,
    why="sums of D float32 products",
    promises=(own_rows("qkv", "decay", "beta", "state"),),
    faults=(
        *(formula(name, partial(_step_formula, **wrong)) for name, wrong in _WRONG),
        beside(_step, "qkv", "o"),
    ),
    kernel=kernel_cases.STEP,
)


def _window_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    """Lanes of 1 to R rows each, one behind the other."""
    counts = noise.integers(1, sizes["R"] + 1, sizes["N"])
    counts[0] = sizes["R"]
    inputs = _step_inputs({**sizes, "N": int(counts.sum())}, noise)
    shape = (sizes["N"], sizes["H"], sizes["D"], sizes["D"])
    return {**inputs, "state": noise.standard_normal(shape, np.float32), "counts": counts}


def _window(values: Values, form: str) -> Outputs:
    return kernel_cases.window(values)


def _window_formula(values: Values, **wrong: Any) -> Outputs:
    found, ends = [], np.cumsum(values["counts"])
    for lane, end in enumerate(ends):
        rows_of = slice(end - values["counts"][lane], end)
        one = {name: values[name][rows_of] for name in ("decay", "beta")}
        found.append(_rule(one, values["state"][lane], values["qkv"][rows_of], **wrong))
    return {"o": np.concatenate([o for o, _ in found]), "state": np.stack([s for _, s in found])}


def _moves_on(values: Values, form: str) -> Outputs:
    """A window that is only looked at moves its states."""
    return kernel_cases.window({**values, "keep": True})


WINDOW = Contract(
    name="kda.window",
    arguments=(
        *STEP.arguments[:3],
        Argument("state", "L H D D", note="of L lanes; moves on only to be kept"),
        Argument("counts", "L", "int64", "rows of each lane, one behind the other"),
    ),
    cases=(),
    inputs=_window_inputs,
    run=_window,
    exact=_window_formula,
    tolerance=STEP.tolerance,
    why=STEP.why,
    promises=(),
    faults=(
        *(formula(name, partial(_window_formula, **wrong)) for name, wrong in _WRONG),
        Fault("states move on before rows are accepted", _moves_on),
    ),
    forms=(),
    kernel=kernel_cases.WINDOW,
)
"""Several rows of a lane in one launch, which the CPU takes one by one."""


def _chunk_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    n, h, d, itemsize = sizes["N"], sizes["H"], sizes["D"], sizes.get("BYTES", 4)
    qkv = stored(noise.standard_normal((n, 3 * h * d), np.float32), itemsize)
    if sizes["SAME"]:  # the same token over and over: keys that do not differ
        qkv[:] = qkv[0]
    return {
        "qkv": qkv,
        "decay": -np.float32(sizes["DECAY"]) * noise.random((n, h * d), np.float32) ** 2,
        "beta": noise.random((n, h), np.float32),
        "state": noise.standard_normal((h, d, d), np.float32),
        "rows": sizes["ROWS"],
        "itemsize": itemsize,
    }


def _chunk(values: Values, form: str) -> Outputs:
    if form == TRITON:
        return kernel_cases.prompt(values)
    heads, dim, _ = values["state"].shape
    numbers = constants(heads, dim, _BOUND)
    qkv, decay, beta, state = (rows(values[n], form) for n in ("qkv", "decay", "beta", "state"))
    o = chunk(qkv, decay, beta, state, values["rows"], numbers, TILINGS[form])
    return {"o": array(o)[: values["rows"]], "state": array(state)}


def _chunk_formula(values: Values, **wrong: Any) -> Outputs:
    o, state = _rule(values, values["state"], values["qkv"][: values["rows"]], **wrong)
    return {"o": o, "state": state}


def _any_chunking() -> Promise:
    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        names, end = ("qkv", "decay", "beta"), values["rows"]
        for cut in range(64, end, 64):
            first = run({**values, **{n: values[n][:cut] for n in names}, "rows": cut})
            rest = {n: values[n][cut:] for n in names}
            second = run({**values, **rest, "state": first["state"], "rows": end - cut})
            joined = {"o": np.concatenate([first["o"], second["o"]]), "state": second["state"]}
            same_bits(f"when cut at {cut}", outputs, joined)

    return Promise("any chunking", check)


def _any_padding() -> Promise:
    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        poisoned = {}
        for name in ("qkv", "decay", "beta"):
            poisoned[name] = values[name].copy()
            poisoned[name][values["rows"] :] = np.nan
        same_bits("with NaN in the padding", outputs, run({**values, **poisoned}))

    return Promise("padding may hold anything", check)


def _padding_counts(values: Values, form: str) -> Outputs:
    outputs = _chunk({**values, "rows": len(values["qkv"])}, form)
    return {**outputs, "o": outputs["o"][: values["rows"]]}


def _looks_ahead(values: Values, form: str) -> Outputs:
    """Rounding as it is when a block's decays are taken from the middle of the block."""
    outputs = _chunk(values, form)
    later = np.roll(values["decay"], -4, 0)[: values["rows"], :1, None]
    return {**outputs, "o": outputs["o"] * (1.0 + np.float32(1e-7) * later)}


CHUNK = Contract(
    name="kda.chunk",
    arguments=(
        Argument("qkv", "N 3*H*D", note="rows of one lane from a multiple of 16 on"),
        Argument("decay", "N H*D", note="logarithms, in [bound, 0]"),
        Argument("beta", "N H"),
        Argument("state", "H D D", note="key before value; in place"),
        Argument("rows", "", "int", "what follows them is padding and may hold anything"),
    ),
    cases=(
        Case("whole", {"N": 192, "H": 4, "D": 32, "ROWS": 192, "DECAY": 2, "SAME": 0}),
        Case("strong decays", {"N": 128, "H": 2, "D": 16, "ROWS": 128, "DECAY": 5, "SAME": 0}),
        Case("padded, odd", {"N": 128, "H": 3, "D": 24, "ROWS": 77, "DECAY": 1, "SAME": 0}),
        Case("one row", {"N": 64, "H": 2, "D": 8, "ROWS": 1, "DECAY": 3, "SAME": 0}),
        Case("the same key", {"N": 64, "H": 2, "D": 16, "ROWS": 64, "DECAY": 0, "SAME": 1}),
    ),
    inputs=_chunk_inputs,
    run=_chunk,
    exact=_chunk_formula,
    tolerance=2e-5,
    why="exp(80) and exp(-80) meet in a block of strong decays: 80 * 2^-24 in each exponent",
    promises=(
        _any_chunking(),
        _any_padding(),
        own_prefix("qkv", "decay", "beta", outputs=("o",)),
    ),
    faults=(
        *(formula(name, partial(_chunk_formula, **wrong)) for name, wrong in _WRONG),
        Fault("padding is part of the state", _padding_counts),
        Fault("a row's bits depend on later decays", _looks_ahead),
    ),
    forms=(TORCH,),
    kernel=kernel_cases.CHUNK,
)

CONTRACTS = (GATE, STEP, WINDOW, CHUNK)
