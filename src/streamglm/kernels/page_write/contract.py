"""Contracts of the writes into pages, format by format."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import torch

from streamglm.kernels.contract import (
    STORED,
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
    paged,
    rows,
)
from streamglm.kernels.page_write import kernel_cases, page_write
from streamglm.kernels.pages import FLOAT8, LARGEST, LEAST_SCALE, Pages, read_host, read_pages
from streamglm.kernels.promises import own_rows

Rows = npt.NDArray[np.float32]


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    """Rows of sizes that differ by 10^12, a row of zeros among them."""
    pages, places, width = sizes["P"], sizes["S"], sizes["D"]
    values = noise.standard_normal((sizes["N"], width), np.float32)
    values *= np.float32(10.0) ** noise.integers(-6, 7, (sizes["N"], 1)).astype(np.float32)
    values[-1] = 0.0
    return {
        "pages": noise.standard_normal((pages, places, width), np.float32),
        "slots": noise.permutation(pages * places)[: sizes["N"]],
        "values": values,
        "itemsize": sizes["BYTES"],
    }


def _written(values: Values, form: str) -> Pages:
    if form == TRITON:
        return kernel_cases.written(values)
    pages, slots = paged(values["pages"], values["itemsize"]), values["slots"]
    chosen = torch.from_numpy(slots) if form == TORCH else slots
    page_write(pages, chosen, rows(values["values"], form))
    return pages


def _run(values: Values, form: str) -> Outputs:
    """All pages, and the rows at the slots: read whole, and one by one."""
    pages = _written(values, form)
    return {"rows": read_host(pages, values["slots"]), "pages": _all(pages)}


def _all(pages: Pages) -> Rows:
    found: Rows = array(read_pages(pages, torch.arange(len(pages.values))))
    return found


def _alone() -> Promise:
    """Of the rows at the slots; pages as a whole hold them all."""
    own = own_rows("slots", "values")

    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        def only(given: Values) -> Outputs:
            return {"rows": run(given)["rows"]}

        own.check(only, values, {"rows": outputs["rows"]}, form, noise)

    return Promise(own.name, check)


_Stored = Mapping[int, Callable[[Rows], Rows]]


def _exact(values: Values, stored: _Stored | None = None) -> Outputs:
    as_stored = (stored or _STORED)[values["itemsize"]]
    pages = as_stored(values["pages"].reshape(-1, values["pages"].shape[2]))
    found = as_stored(values["values"])
    pages[values["slots"]] = found
    return {"rows": found, "pages": pages.reshape(values["pages"].shape)}


def _bfloat16(x: Rows) -> Rows:
    """The nearest value of 8 significant bits, ties to even."""
    exponent = np.frexp(x)[1] - 8
    significand = np.rint(np.ldexp(x.astype(np.float64), -exponent))
    rounded: Rows = np.ldexp(significand, exponent).astype(np.float32)
    return rounded


def _float8(x: Rows, scale: Rows | None = None, nearest: bool = True) -> Rows:
    """The nearest of the 253 finite values times the row's scale, ties to the even bits."""
    if scale is None:
        scale = np.maximum(np.abs(x).max(1, keepdims=True) / np.float32(LARGEST), LEAST_SCALE)
    scale = scale.astype(np.float32)
    magnitudes = torch.arange(127, dtype=torch.uint8).view(FLOAT8).double().numpy()
    share = np.minimum(np.abs(x / scale).astype(np.float64), LARGEST)
    above = np.searchsorted(magnitudes, share)
    below = np.maximum(above - 1, 0)
    down, up = share - magnitudes[below], magnitudes[above] - share
    lower = (down < up) | ((down == up) & (below % 2 == 0)) if nearest else up > 0
    values = magnitudes[np.where(lower, below, above)].astype(np.float32)
    scaled: Rows = np.copysign(values, x) * scale
    return scaled


_STORED: _Stored = {4: lambda x: x.copy(), 2: _bfloat16, 1: _float8}


def _one_place_on(values: Values, form: str) -> Outputs:
    size = values["pages"].shape[0] * values["pages"].shape[1]
    moved = _written({**values, "slots": (values["slots"] + 1) % size}, form)
    return {"rows": read_host(moved, values["slots"]), "pages": _all(moved)}


def _last_row_lost(values: Values, form: str) -> Outputs:
    less = _written(
        {**values, "slots": values["slots"][:-1], "values": values["values"][:-1]}, form
    )
    return {"rows": read_host(less, values["slots"]), "pages": _all(less)}


def _scales_one_place_on(values: Values, form: str) -> Outputs:
    pages = _written(values, form)
    assert pages.scales is not None
    pages.scales.copy_(pages.scales.roll(1, 1))
    return {"rows": read_host(pages, values["slots"]), "pages": _all(pages)}


def _with_float8(name: str, stored: Callable[[Rows], Rows]) -> Fault:
    def faulty(values: Values, form: str) -> Outputs:
        return _exact(values, {1: stored})

    return Fault(name, faulty)


def _contract(itemsize: int, why: str, *faults: Fault) -> Contract:
    name = {4: "page_write", 2: "page_write.bf16", 1: "page_write.fp8"}[itemsize]
    sizes = (
        ("rows", {"P": 5, "S": 64, "D": 24, "N": 70}),
        ("one row", {"P": 3, "S": 16, "D": 32, "N": 1}),
        ("every slot", {"P": 2, "S": 4, "D": 5, "N": 8}),
    )
    return Contract(
        name=name,
        arguments=(
            Argument("pages", "P S D", "Pages", "written in place"),
            Argument("slots", "N", "int64", "page * S + place, each once"),
            Argument("values", "N D"),
            Argument("itemsize", "", "int", f"bytes of a stored value: {STORED[itemsize]}"),
        ),
        cases=tuple(Case(name, {**one, "BYTES": itemsize}) for name, one in sizes),
        inputs=_inputs,
        run=_run,
        exact=_exact,
        tolerance=0.0,
        why=why,
        promises=(_alone(),),
        faults=(
            Fault("rows land one place on", _one_place_on),
            Fault("the last row is lost", _last_row_lost),
            *faults,
        ),
        kernel=kernel_cases.writes(itemsize),
    )


CONTRACTS = (
    _contract(4, "copies"),
    _contract(2, "one rounding, to the nearest"),
    _contract(
        1,
        "one rounding, to the nearest; the exact values are scaled in float32 too",
        Fault("scales land one place on", _scales_one_place_on),
        _with_float8("values are cut, not rounded", lambda x: _float8(x, nearest=False)),
        _with_float8(
            "all rows have one scale",
            lambda x: _float8(x, np.full((len(x), 1), np.abs(x).max() / np.float32(LARGEST))),
        ),
    ),
)
