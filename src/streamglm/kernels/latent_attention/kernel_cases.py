"""The contracts' arguments as the kernels of latent attention take them, and their cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from streamglm.kernels.arguments import Flags
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
    paged,
    rows,
    timed,
)
from streamglm.kernels.pages import Pages
from streamglm.kernels.promises import any_chunks, each_alone, own_parts

_WHY = "float32 products of D terms, exps, and a sum over the keys; case by case what bfloat16 adds"
_INNER = 2.0**-8
"""Shares are rounded to bfloat16 before they weigh the latents, and so are queries of it."""


def _list(values: Values) -> torch.Tensor:
    return indices(np.where(values["seen"], values["slots"], -1))


def _queries(values: Values) -> torch.Tensor:
    found: torch.Tensor = rows(values["queries"], TRITON, STORED[values["query_itemsize"]])
    return found


def _window_call(values: Values, pages: Pages) -> Call:
    from streamglm.kernels.latent_attention import kernel

    queries, slots = (
        rows(values["queries"], TRITON, STORED[values["query_itemsize"]]),
        _list(values),
    )
    return lambda: {"o": kernel.selected_window(queries, pages, slots)}


def _prompt_call(values: Values, pages: Pages) -> Call:
    from streamglm.kernels.latent_attention import prompt_kernel

    queries, slots = (
        rows(values["queries"], TRITON, STORED[values["query_itemsize"]]),
        _list(values),
    )
    return lambda: {"o": prompt_kernel.selected_prompt(queries, pages, slots)}


def _dense_call(values: Values, pages: Pages) -> Call:
    """By tables of pages instead of slots; keys that nobody wrote stand on the page of zeros."""
    from streamglm.kernels.latent_attention import kernel

    slots, places = values["slots"], values["latents"].shape[1]
    written = _written(values).sum(1)
    queries = _queries(values)
    tables = indices(slots[:, ::places] // places)
    start, counts = indices(values["start"]), indices(written - values["start"])
    return lambda: {"o": kernel.dense(queries, pages, tables, start, counts)}


def _written(values: Values) -> Flags:
    """Which slots hold a key: those that are not of the page of zeros."""
    zeros = int(np.flatnonzero(~values["latents"].any((1, 2)))[0])
    found: Flags = values["slots"] // values["latents"].shape[1] != zeros
    return found


def selected_window(values: Values, pages: Pages) -> Outputs:
    """By the form that cuts a row's list into pieces."""
    return arrays(_window_call(values, pages)())


def selected_prompt(values: Values, pages: Pages) -> Outputs:
    """By the form that takes a row's list as a whole."""
    return arrays(_prompt_call(values, pages)())


def dense(values: Values, pages: Pages) -> Outputs:
    """By the form for prefixes."""
    return arrays(_dense_call(values, pages)())


def _paged(call: Callable[[Values, Pages], Call]) -> Callable[[Values], Call]:
    return lambda values: call(values, paged(values["latents"], values["itemsize"], TRITON))


def _work(values: Values, real: Flags, pairs: int) -> Work:
    """Every key once, queries and o; two products of each pair of a row and its key."""
    heads, width = values["queries"].shape[-2:]
    keys = len(np.unique(values["slots"][real]))
    row = width * values["itemsize"] + (4 if values["itemsize"] == 1 else 0)
    ends = 2 * values["queries"].size * values["query_itemsize"]
    return Work(keys * row + ends, 4 * pairs * heads * width)


def _selected_work(values: Values) -> Work:
    return _work(values, values["seen"], int(values["seen"].sum()))


def _dense_work(values: Values) -> Work:
    _, count = values["queries"].shape[:2]
    return _work(values, _written(values), int((values["start"] + (count + 1) / 2).sum() * count))


def _selected_case(name: str, rows: int, heads: int, length: int, itemsize: int) -> Case:
    sizes = {"M": rows, "H": heads, "D": 512, "S": 64, "L": length, "CHUNK": length}
    return Case(name, {**sizes, "BYTES": itemsize, "QUERY": 2}, HALF, _INNER)


def _dense_case(name: str, sizes: Mapping[str, int], itemsize: int) -> Case:
    return Case(name, {**sizes, "CHUNK": 512, "BYTES": itemsize, "QUERY": 2}, HALF, _INNER)


def _share_case(name: str, heads: int) -> Case:
    sizes = {"M": 2, "H": heads, "D": 24, "S": 16, "L": 144, "CHUNK": 144}
    return Case(name, {**sizes, "BYTES": 2, "QUERY": 2}, HALF, _INNER)


_MODEL = {"D": 512, "S": 64, "L": 2048}
_SMALL = (
    Case("float8", {"M": 2, "H": 3, "D": 24, "S": 16, "L": 80, "CHUNK": 16, "BYTES": 1}),
    Case(
        "bfloat16",
        {"M": 2, "H": 8, "D": 64, "S": 64, "L": 48, "CHUNK": 16, "BYTES": 2, "QUERY": 2},
        HALF,
        _INNER,
    ),
    Case(
        "two pieces, two tiles of heads",
        {"M": 2, "H": 66, "D": 24, "S": 16, "L": 528, "CHUNK": 528, "BYTES": 4},
    ),
)

SELECTED_WINDOW = Kernel(
    cases=(
        *_SMALL,
        Case(
            "more pieces than are asked for at once",
            {"M": 1, "H": 2, "D": 16, "S": 64, "L": 4368, "CHUNK": 4368, "BYTES": 4},
        ),
    ),
    full=(
        _selected_case("a row", 1, 64, 2064, 2),
        _selected_case("a window", 8, 64, 2064, 2),
        _selected_case("a wide window, float8", 32, 64, 2064, 1),
        _selected_case("a rank's odd share", 8, 22, 2064, 2),
    ),
    tolerance=5e-6,
    why=_WHY,
    promises=(each_alone("queries", "slots", "seen"), own_parts(1, "queries")),
    ready=timed("latent_attention.selected", _paged(_window_call)),
    work=_selected_work,
)

SELECTED_PROMPT = Kernel(
    cases=(
        *_SMALL,
        _share_case("bfloat16, shares of many heads and of few", 62),
        _share_case("bfloat16, shares of few heads and of fewer", 31),
    ),
    full=(
        _selected_case("a tile", 128, 64, 2064, 2),
        _selected_case("float8", 64, 64, 2064, 1),
        _selected_case("a rank's odd share", 64, 22, 2064, 2),
        _selected_case("a share of four ranks", 64, 16, 2064, 2),
    ),
    tolerance=5e-6,
    why=_WHY,
    promises=(any_chunks("queries", "slots", "seen"), own_parts(1, "queries")),
    ready=timed("latent_attention.selected_prompt", _paged(_prompt_call)),
    work=_selected_work,
)

DENSE = Kernel(
    cases=(
        Case(
            "float8, odd rows",
            {"T": 2, "M": 3, "H": 3, "D": 24, "S": 16, "L": 24, "CHUNK": 16, "BYTES": 1},
        ),
        Case(
            "two blocks, two tiles of heads",
            {"T": 1, "M": 2, "H": 66, "D": 32, "S": 64, "L": 96, "CHUNK": 128, "BYTES": 4},
        ),
        _dense_case("bfloat16", {"T": 1, "M": 4, "H": 4, "D": 32, "S": 16, "L": 80}, 2),
    ),
    full=(
        _dense_case("a tile", {"T": 2, "M": 64, "H": 64, **_MODEL}, 2),
        _dense_case("float8, a rank's odd share", {"T": 1, "M": 64, "H": 22, **_MODEL}, 1),
    ),
    tolerance=5e-6,
    why=_WHY,
    promises=(own_parts(2, "queries"),),
    ready=timed("latent_attention.dense", _paged(_dense_call)),
    work=_dense_work,
)
