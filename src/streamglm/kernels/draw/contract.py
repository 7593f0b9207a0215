"""Contract of the draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamglm.kernels.contract import (
    NUMPY,
    Argument,
    Case,
    Contract,
    Fault,
    Noise,
    Outputs,
    Promise,
    Run,
    Values,
    formula,
)
from streamglm.kernels.draw import draw, kernel_cases, uniform
from streamglm.kernels.promises import same_bits

_COUNT = 40
"""Draws from one row, with noise from end to end."""


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    logits = 2.0 * noise.standard_normal(sizes["V"], np.float32)
    if sizes["TIES"]:
        logits = np.round(logits)
    logits[noise.integers(sizes["V"])] = -np.inf
    return {
        "logits": logits,
        "temperature": sizes["T"] / 10.0,
        "top_k": sizes["K"],
        "top_p": sizes["P"] / 100.0,
        "min_p": sizes["MIN"] / 100.0,
        "noise": np.append(noise.random(_COUNT - 2), [0.0, 1.0 - 2.0**-53]),
    }


def _run(values: Values, form: str) -> Outputs:
    numbers = {name: values[name] for name in ("temperature", "top_k", "top_p", "min_p")}
    ids = [draw(values["logits"], **numbers, noise=float(n)) for n in values["noise"]]
    return {"ids": np.array(ids)}


def _exact(values: Values, *, ties: int = 1, filters: bool = True, shift: int = 0) -> Outputs:
    """Token by token: rank, filter, then walk along the mass."""
    logits = values["logits"].astype(np.float64)
    ranked = sorted(range(len(logits)), key=lambda i: (-logits[i], ties * i))
    if filters and values["top_k"]:
        ranked = ranked[: values["top_k"]]
    shares = [float(np.exp((logits[i] - logits.max()) / values["temperature"])) for i in ranked]
    total = sum(shares)
    kept, before = [], 0.0
    for i, share in zip(ranked, shares, strict=True):
        enough = before >= values["top_p"] * total + 1e-12 and values["top_p"] < 1.0
        if filters and (enough or share < values["min_p"] * shares[0]):
            break
        kept.append((i, share))
        before += share
    return {"ids": np.array([_walk(kept, noise) + shift for noise in values["noise"]])}


def _walk(kept: list[tuple[int, float]], noise: float) -> int:
    mass, total = 0.0, sum(share for _, share in kept)
    for i, share in kept:
        mass += share
        if mass > noise * total:
            return i
    return kept[-1][0]


def _scale_free() -> Promise:
    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        whole = {**values, "logits": np.round(values["logits"])}  # so that adding 64 is exact
        moved = {**whole, "logits": whole["logits"] + np.float32(64.0)}
        same_bits("when all logits move by 64", run(whole), run(moved))

    return Promise("only differences of logits matter", check)


def _wrong(name: str, **wrong: Any) -> Fault:
    return formula(name, lambda values: _exact(values, **wrong))


DRAW = Contract(
    name="draw",
    arguments=(
        Argument("logits", "V", note="-inf is never drawn"),
        Argument("temperature", "", "float", "above 0"),
        Argument("top_k", "", "int", "0: all"),
        Argument("top_p", "", "float", "1: all"),
        Argument("min_p", "", "float", "0: all"),
        Argument("noise", "", "float", "in [0, 1)"),
    ),
    cases=(
        Case("plain", {"V": 101, "T": 10, "K": 0, "P": 100, "MIN": 0, "TIES": 0}),
        Case("ties under every filter", {"V": 64, "T": 8, "K": 20, "P": 90, "MIN": 5, "TIES": 1}),
        Case("nucleus", {"V": 333, "T": 13, "K": 0, "P": 50, "MIN": 0, "TIES": 0}),
        Case("one is left", {"V": 17, "T": 10, "K": 1, "P": 100, "MIN": 0, "TIES": 1}),
        Case("min_p", {"V": 77, "T": 20, "K": 0, "P": 100, "MIN": 30, "TIES": 1}),
    ),
    inputs=_inputs,
    run=_run,
    exact=_exact,
    tolerance=0.0,
    why="an id",
    promises=(_scale_free(),),
    faults=(
        _wrong("ties go to the higher id", ties=-1),
        _wrong("nothing is filtered", filters=False),
        _wrong("the next id", shift=1),
    ),
    forms=(NUMPY,),
)


def _wrong_keyed(name: str, **wrong: Any) -> Fault:
    return formula(name, lambda values: _keyed_exact(values, **wrong))


def _keyed_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    """Rows whose numbers differ, greedy ones among them; one row holds NaN, one infinity."""
    m, v = sizes["M"], sizes["V"]
    logits = np.round(2.0 * noise.standard_normal((m, v), np.float32), sizes["DIGITS"])
    logits[np.arange(m), noise.integers(v, size=m)] = -np.inf
    logits[-2, v // 2], logits[-1, v // 3] = np.nan, np.inf
    logits[0, -1] = 99.0  # not spelled, and the highest
    numbers = np.stack(
        [
            noise.choice([0.0, 0.4, 1.0, 1.7], m),
            noise.choice([1.0, 0.9, 0.5], m),
            noise.choice([0.0, 0.05, 0.3], m),
        ],
        1,
    )
    numbers[:3, 0] = 1.0, 0.0, 1.0
    seeds = noise.integers(-(2**63), 2**63, m)
    counts = np.stack([seeds, noise.integers(0, 2**20, m), noise.choice([0, 1, 7, v], m)], 1)
    return {"logits": logits, "numbers": numbers, "counts": counts, "spelled": v - 3}


def _keyed(values: Values, form: str) -> Outputs:
    return kernel_cases.keyed(values)


def _keyed_exact(values: Values, *, ties: int = 1, later: int = 0, unspelled: int = 0) -> Outputs:
    tokens = []
    for row, (heat, top_p, min_p), (seed, position, top_k) in zip(
        values["logits"], values["numbers"], values["counts"], strict=True
    ):
        ranked = sorted(range(len(row)), key=lambda i: (-row[i], ties * i))
        if not np.isfinite(row).any() or np.isnan(row).any() or np.isposinf(row).any():
            tokens.append(-1)
        elif heat == 0.0:
            tokens.append(ranked[0])
        else:
            one = {
                "logits": row[: values["spelled"] + unspelled],
                "temperature": heat,
                "top_k": int(top_k),
                "top_p": top_p,
                "min_p": min_p,
                "noise": [uniform(int(seed) % 2**64, int(position) + later)],
            }
            tokens.append(int(_exact(one, ties=ties)["ids"][0]))
    return {"tokens": np.array(tokens)}


KEYED = Contract(
    name="draw.keyed",
    arguments=(
        Argument("logits", "M V"),
        Argument("numbers", "M 3", "float64", "temperature (0: the highest), top_p, min_p"),
        Argument("counts", "M 3", "int64", "seed, position, top_k"),
        Argument("spelled", "", "int", "ids from here on are not drawn, but as the highest"),
    ),
    cases=(),
    inputs=_keyed_inputs,
    run=_keyed,
    exact=_keyed_exact,
    tolerance=0.0,
    why="an id",
    promises=(),
    faults=(
        _wrong_keyed("ties go to the higher id", ties=-1),
        _wrong_keyed("the noise of the next position", later=1),
        _wrong_keyed("ids without a text may be drawn", unspelled=3),
    ),
    forms=(),
    kernel=kernel_cases.KEYED,
)
"""`uniform` and `draw` of many rows at once, and the highest where the temperature is 0."""


def _greedy_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    """The same rows, cut so that many of their values are the highest."""
    logits = _keyed_inputs(sizes, noise)["logits"]
    return {"logits": np.where((logits > 3.0) & (logits < 99.0), np.float32(3.0), logits)}


def _greedy(values: Values, form: str) -> Outputs:
    return kernel_cases.greedy(values)


def _greedy_exact(values: Values, *, last: bool = False, finite: bool = True) -> Outputs:
    tokens = []
    for row in values["logits"]:
        highest = len(row) - 1 - row[::-1].argmax() if last else row.argmax()
        tokens.append(int(highest) if not finite or np.isfinite(row[highest]) else -1)
    return {"tokens": np.array(tokens)}


GREEDY = Contract(
    name="draw.greedy",
    arguments=(Argument("logits", "M V"),),
    cases=(),
    inputs=_greedy_inputs,
    run=_greedy,
    exact=_greedy_exact,
    tolerance=0.0,
    why="an id",
    promises=(),
    faults=(
        formula("ties go to the higher id", lambda values: _greedy_exact(values, last=True)),
        formula("what is not finite is drawn", lambda v: _greedy_exact(v, finite=False)),
    ),
    forms=(),
    kernel=kernel_cases.GREEDY,
)
"""The highest of many rows at once."""

CONTRACTS = (DRAW, KEYED, GREEDY)
