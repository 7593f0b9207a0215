"""Contract of the writes into pages."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from streamglm.kernels.contract import (
    TORCH,
    Argument,
    Case,
    Contract,
    Fault,
    Noise,
    Outputs,
    Values,
    array,
    rows,
)
from streamglm.kernels.page_write import page_write


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    pages, places, width = sizes["P"], sizes["S"], sizes["D"]
    return {
        "pages": noise.standard_normal((pages, places, width), np.float32),
        "slots": noise.permutation(pages * places)[: sizes["N"]],
        "values": noise.standard_normal((sizes["N"], width), np.float32),
    }


def _run(values: Values, form: str) -> Outputs:
    pages, slots = rows(values["pages"], form), values["slots"]
    chosen = torch.from_numpy(slots) if form == TORCH else slots
    page_write(pages, chosen, rows(values["values"], form))
    return {"pages": array(pages)}


def _exact(values: Values) -> Outputs:
    pages = values["pages"].copy()
    for slot, value in zip(values["slots"], values["values"], strict=True):
        pages[slot // pages.shape[1], slot % pages.shape[1]] = value
    return {"pages": pages}


def _one_place_on(values: Values, form: str) -> Outputs:
    size = values["pages"].shape[0] * values["pages"].shape[1]
    return _run({**values, "slots": (values["slots"] + 1) % size}, form)


def _last_row_lost(values: Values, form: str) -> Outputs:
    return _run({**values, "slots": values["slots"][:-1], "values": values["values"][:-1]}, form)


PAGE_WRITE = Contract(
    name="page_write",
    arguments=(
        Argument("pages", "P S D", note="contiguous; written in place"),
        Argument("slots", "N", "int64", "page * S + place, each once"),
        Argument("values", "N D"),
    ),
    cases=(
        Case("rows", {"P": 5, "S": 64, "D": 24, "N": 70}),
        Case("one row", {"P": 3, "S": 16, "D": 32, "N": 1}),
        Case("every slot", {"P": 2, "S": 3, "D": 5, "N": 6}),
    ),
    inputs=_inputs,
    run=_run,
    exact=_exact,
    tolerance=0.0,
    why="copies",
    promises=(),
    faults=(
        Fault("rows land one place on", _one_place_on),
        Fault("the last row is lost", _last_row_lost),
    ),
)

CONTRACTS = (PAGE_WRITE,)
