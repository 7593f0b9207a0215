"""Contracts of attention in latent space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from streamglm.kernels.arguments import Flags
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
    paged,
    representable,
    rows,
    stored,
)
from streamglm.kernels.latent_attention import dense, kernel_cases, selected
from streamglm.kernels.pages import Pages
from streamglm.kernels.promises import own_rows, same_bits

_WHY = "float32 products of D terms, exps, and a sum over the keys"
_LATENTS = (
    Argument("latents", "P S D", "Pages", "in any format; what is not seen is finite"),
    Argument("itemsize", "", "int", "bytes of a latent's value: BYTES"),
)


_Paged = Callable[[Values, str], Pages]


def _attend(query: npt.NDArray[Any], keys: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """query [H, D] over keys [L, D] -> [H, D]"""
    scores = query.astype(np.float64) @ keys.astype(np.float64).T
    shares = np.exp(scores - scores.max(1, keepdims=True))
    o: npt.NDArray[Any] = (shares / shares.sum(1, keepdims=True)) @ keys
    return o


def _selected_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    """Pages whose every row that nobody sees is NaN, but for the last page, which is zeros; with
    a size PAST there are as many rows, and lists without a gap."""
    m, d, places, length = sizes["M"], sizes["D"], sizes["S"], sizes["L"]
    if "PAST" in sizes:
        latents = representable(noise, sizes["BYTES"], sizes["PAST"] // places, places, d)
        lists = [noise.choice(sizes["PAST"], length, replace=False) for _ in range(m)]
        slots = np.sort(np.stack(lists), 1)
        return _selected_values(sizes, noise, latents, slots, np.ones((m, length), bool))
    pages = 2 + 3 * length // places
    latents = np.full((pages, places, d), np.nan, np.float32)
    latents[-1] = 0.0
    null = (pages - 1) * places
    slots, seen = np.full((m, length), null), noise.random((m, length)) < 0.8
    seen[0] = False
    seen[0, length - 1] = True  # nothing in the chunks before the last
    for row in range(m):
        seen[row, noise.integers(length)] = True
        mine = noise.permutation(null)[:length]
        slots[row, seen[row]] = mine[seen[row]]
    flat = latents.reshape(-1, d)
    used = np.unique(slots[seen])
    flat[used] = representable(noise, sizes["BYTES"], len(used), d)
    return _selected_values(sizes, noise, latents, slots, seen)


def _selected_values(
    sizes: Mapping[str, int],
    noise: Noise,
    latents: npt.NDArray[np.float32],
    slots: npt.NDArray[np.int64],
    seen: Flags,
) -> Values:
    queries = noise.standard_normal((sizes["M"], sizes["H"], sizes["D"]), np.float32)
    return {
        "queries": stored(queries, sizes.get("QUERY", 4)),
        "query_itemsize": sizes.get("QUERY", 4),
        "latents": latents,
        "itemsize": sizes["BYTES"],
        "slots": slots,
        "seen": seen,
        "chunk": sizes["CHUNK"],
    }


def _pages(values: Values, form: str) -> Pages:
    return paged(values["latents"], values["itemsize"], form)


def _moved(values: Values, form: str) -> Pages:
    """Pages of float8 whose scales stand one place on."""
    pages = _pages(values, form)
    if pages.scales is not None:
        pages.scales.copy_(pages.scales.roll(1, 1))
    return pages


def _selected(values: Values, form: str, pages: _Paged = _pages) -> Outputs:
    if form == TRITON:
        return kernel_cases.selected_window(values, pages(values, form))
    queries, latents = rows(values["queries"], form), pages(values, form)
    slots, seen = rows(values["slots"], form), rows(values["seen"], form)
    o = selected(queries, latents, slots, seen, values["chunk"], TILINGS[form])
    return {"o": array(o)}


def _selected_exact(values: Values, everything: bool = False, chunks: int = 99) -> Outputs:
    flat = values["latents"].reshape(-1, values["latents"].shape[2])
    end = chunks * values["chunk"]
    o = np.zeros(values["queries"].shape)
    for row, query in enumerate(values["queries"]):
        seen = values["seen"][row, :end]
        slots = values["slots"][row, :end]
        if everything or seen.any():
            o[row] = _attend(query, flat[slots if everything else slots[seen]])
    return {"o": o}


def _any_pages() -> Promise:
    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        places = values["latents"].shape[1]
        names = noise.permutation(len(values["latents"]))
        latents = np.empty_like(values["latents"])
        latents[names] = values["latents"]
        slots = names[values["slots"] // places] * places + values["slots"] % places
        found = run({**values, "latents": latents, "slots": slots})
        same_bits("on other pages", outputs, found)

    return Promise("any page order", check)


def _page_by_page(values: Values, form: str) -> Outputs:
    """Keys in the order of their pages, as if a list need not ascend in the token."""
    order = np.argsort(values["slots"], 1)
    sorted_values = {n: np.take_along_axis(values[n], order, 1) for n in ("slots", "seen")}
    return _selected({**values, **sorted_values}, form)


SELECTED = Contract(
    name="latent_attention.selected",
    arguments=(
        Argument("queries", "M H D", note="absorbed and scaled"),
        *_LATENTS,
        Argument("slots", "M L", "int64"),
        Argument("seen", "M L", "bool", "at least one a row"),
        Argument("chunk", "", "int", "keys merged at a time"),
    ),
    cases=(
        Case("one chunk", {"M": 16, "H": 4, "D": 32, "S": 64, "L": 144, "CHUNK": 144, "BYTES": 4}),
        Case("three chunks", {"M": 5, "H": 3, "D": 24, "S": 16, "L": 80, "CHUNK": 32, "BYTES": 1}),
        Case("one row", {"M": 1, "H": 8, "D": 64, "S": 64, "L": 48, "CHUNK": 16, "BYTES": 2}),
    ),
    inputs=_selected_inputs,
    run=_selected,
    exact=_selected_exact,
    tolerance=5e-6,
    why=_WHY,
    promises=(own_rows("queries", "slots", "seen"), _any_pages()),
    faults=(
        formula("what is not seen counts", lambda v: _selected_exact(v, everything=True)),
        formula("only the first chunk counts", lambda v: _selected_exact(v, chunks=1)),
        Fault("keys are merged in the order of their pages", _page_by_page),
        Fault("scales are read one place on", lambda v, form: _selected(v, form, _moved)),
        beside(_selected, "queries", "o"),
    ),
    kernel=kernel_cases.SELECTED_WINDOW,
)


def _whole(values: Values, form: str) -> Outputs:
    return kernel_cases.selected_prompt(values, _pages(values, form))


SELECTED_PROMPT = replace(
    SELECTED,
    name="latent_attention.selected_prompt",
    run=_whole,
    faults=(*SELECTED.faults[:2], beside(_whole, "queries", "o")),
    forms=(),
    kernel=kernel_cases.SELECTED_PROMPT,
)
"""`selected` for the many rows of a prompt, of which the kernel has a form of its own."""


def _dense_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    """T tiles of lanes of their own, each at its start, on shuffled poisoned pages."""
    t, m, d, page, length = (sizes[name] for name in ("T", "M", "D", "S", "L"))
    start = noise.integers(0, (length - m) // 8 + 1, t) * 8
    each = -(-length // page)
    latents = np.full((t * each + 1, page, d), np.nan, np.float32)
    latents[-1] = 0.0
    pages = noise.permutation(t * each).reshape(t, each)
    slots = np.full((t, length), t * each * page)
    for tile in range(t):
        token = np.arange(start[tile] + m - noise.integers(0, m))
        slots[tile, token] = pages[tile, token // page] * page + token % page
        latents.reshape(-1, d)[slots[tile, token]] = representable(
            noise, sizes["BYTES"], len(token), d
        )
    queries = noise.standard_normal((t, m, sizes["H"], d), np.float32)
    return {
        "queries": stored(queries, sizes.get("QUERY", 4)),
        "query_itemsize": sizes.get("QUERY", 4),
        "latents": latents,
        "itemsize": sizes["BYTES"],
        "slots": slots,
        "start": start,
        "chunk": sizes["CHUNK"],
    }


def _dense(values: Values, form: str, pages: _Paged = _pages) -> Outputs:
    if form == TRITON:
        return kernel_cases.dense(values, pages(values, form))
    queries, latents = rows(values["queries"], form), pages(values, form)
    slots, start = torch.from_numpy(values["slots"]), torch.from_numpy(values["start"])
    return {"o": array(dense(queries, latents, slots, start, values["chunk"], TILINGS[form]))}


def _dense_exact(values: Values, shift: int = 1) -> Outputs:
    """Keys that are the null page's zeros count: rows of padding stand behind the last key."""
    flat = values["latents"].reshape(-1, values["latents"].shape[2])
    o = np.empty(values["queries"].shape)
    for tile, queries in enumerate(values["queries"]):
        for row, query in enumerate(queries):
            end = max(values["start"][tile] + row + shift, 1)
            o[tile, row] = _attend(query, flat[values["slots"][tile, :end]])
    return {"o": o}


DENSE = Contract(
    name="latent_attention.dense",
    arguments=(
        Argument("queries", "T M H D", note="absorbed and scaled; M rows of one lane"),
        *_LATENTS,
        Argument("slots", "T L", "int64", "of keys 0 to L - 1"),
        Argument("start", "T", "int64", "position of a tile's first row"),
        Argument("chunk", "", "int", "keys merged at a time"),
    ),
    cases=(
        Case(
            "one chunk",
            {"T": 3, "M": 64, "H": 4, "D": 32, "S": 64, "L": 128, "CHUNK": 128, "BYTES": 4},
        ),
        Case(
            "four chunks",
            {"T": 4, "M": 16, "H": 3, "D": 24, "S": 16, "L": 64, "CHUNK": 16, "BYTES": 1},
        ),
    ),
    inputs=_dense_inputs,
    run=_dense,
    exact=_dense_exact,
    tolerance=5e-6,
    why=_WHY,
    promises=(own_rows("queries", "slots", "start"), _any_pages()),
    faults=(
        formula("a row does not see itself", lambda v: _dense_exact(v, shift=0)),
        formula("a row sees its successor", lambda v: _dense_exact(v, shift=2)),
        Fault("scales are read one place on", lambda v, form: _dense(v, form, _moved)),
        beside(_dense, "queries", "o"),
    ),
    forms=(TORCH,),
    kernel=kernel_cases.DENSE,
)

CONTRACTS = (SELECTED, SELECTED_PROMPT, DENSE)
