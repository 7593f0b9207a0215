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
from streamglm.kernels.draw import draw
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

CONTRACTS = (DRAW,)
