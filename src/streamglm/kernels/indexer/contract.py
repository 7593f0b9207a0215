"""Contracts of the indexer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

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
from streamglm.kernels.indexer import (
    kernel_cases,
    pool_keys,
    prepare,
    row_scores,
    row_select,
    row_token_lists,
    scores,
    select,
    token_lists,
)
from streamglm.kernels.promises import own_rows, same_bits


def _pool_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    p, s, d = sizes["P"], sizes["S"], sizes["D"]
    itemsize = sizes.get("BYTES", 4)
    return {
        "keys": stored(noise.standard_normal((p, s, d), np.float32), itemsize),
        "gates": stored(2.0 * noise.standard_normal((p, s, d), np.float32), itemsize),
        "ape": noise.standard_normal((s, d), np.float32),
        "itemsize": itemsize,
    }


def _pool(values: Values, form: str) -> Outputs:
    if form == TRITON:
        return kernel_cases.pool_keys(values)
    keys, gates = rows(values["keys"], form), rows(values["gates"], form)
    return {"pooled": array(pool_keys(keys, gates, prepare(torch.from_numpy(values["ape"]))))}


def _pool_exact(values: Values, axis: int = 1) -> Outputs:
    shares = np.exp((values["gates"] + values["ape"]).astype(np.float64))
    shares /= shares.sum(axis, keepdims=True)
    return {"pooled": (shares * values["keys"]).sum(1)}


POOL_KEYS = Contract(
    name="indexer.pool_keys",
    arguments=(Argument("keys", "P S D"), Argument("gates", "P S D"), Argument("ape", "S D")),
    cases=(
        Case("fours", {"P": 16, "S": 4, "D": 32}),
        Case("odd", {"P": 3, "S": 4, "D": 21}),
        Case("eights, one pool", {"P": 1, "S": 8, "D": 16}),
    ),
    inputs=_pool_inputs,
    run=_pool,
    exact=_pool_exact,
    tolerance=1e-6,
    why="S float32 exps and products",
    promises=(own_rows("keys", "gates"),),
    faults=(
        formula("the softmax runs over channels", lambda v: _pool_exact(v, axis=2)),
        formula("ape is left out", lambda v: _pool_exact({**v, "ape": 0.0})),
        beside(_pool, "keys", "pooled"),
    ),
    kernel=kernel_cases.POOL_KEYS,
)


def _score_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    m, h, d = sizes["M"], sizes["H"], sizes["D"]
    itemsize = sizes.get("BYTES", 4)
    weights = noise.standard_normal((m, h), np.float32) * np.float32((h * d) ** -0.5)
    return {
        "queries": stored(noise.standard_normal((m, h, d), np.float32), itemsize),
        "weights": stored(weights, itemsize),
        "keys": stored(noise.standard_normal((sizes["C"], sizes["P"], d), np.float32), itemsize),
        "itemsize": itemsize,
    }


def _scores(values: Values, form: str) -> Outputs:
    if form == TRITON:
        return kernel_cases.scores(values)
    queries, weights, keys = (rows(values[n], form) for n in ("queries", "weights", "keys"))
    if form == TORCH:
        return {"scores": array(scores(queries, weights, keys, TILINGS[form]))}
    each = [row_scores(q, w, keys) for q, w in zip(queries, weights, strict=True)]
    return {"scores": np.stack(each)}


def _scores_exact(values: Values, relu_last: bool = False) -> Outputs:
    keys = values["keys"].reshape(-1, values["keys"].shape[2]).astype(np.float64)
    products = np.einsum("mhd,pd->mhp", values["queries"].astype(np.float64), keys)
    weights = values["weights"].astype(np.float64)[:, :, None]
    if relu_last:
        return {"scores": np.maximum(products * weights, 0.0).sum(1)}
    return {"scores": (np.maximum(products, 0.0) * weights).sum(1)}


SCORES = Contract(
    name="indexer.scores",
    arguments=(
        Argument("queries", "M H D"),
        Argument("weights", "M H", note="the two scales are in them"),
        Argument("keys", "C P D", note="C groups of P pools"),
    ),
    cases=(
        Case("two groups", {"M": 64, "H": 4, "D": 32, "C": 2, "P": 32}),
        Case("odd", {"M": 5, "H": 3, "D": 24, "C": 3, "P": 7}),
    ),
    inputs=_score_inputs,
    run=_scores,
    exact=_scores_exact,
    tolerance=2e-6,
    why="float32 products of D and of H terms",
    promises=(own_rows("queries", "weights"),),
    faults=(
        formula(
            "the relu comes after the head's weight", lambda v: _scores_exact(v, relu_last=True)
        ),
        beside(_scores, "weights", "scores"),
    ),
    kernel=kernel_cases.SCORES,
)


def _select_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    m, p = sizes["M"], sizes["P"]
    found = noise.standard_normal((m, p), np.float32)
    if sizes["TIES"]:
        found = np.round(np.maximum(found, 0.0) * 2.0)
    visible = noise.integers(sizes["LOW"], p + 1, m)
    found[np.arange(p) >= visible[:, None]] = np.nan
    block = sizes.get("BLOCK", 4096)
    return {"scores": found, "visible": visible, "count": sizes["K"], "block": block}


def _select(values: Values, form: str) -> Outputs:
    if form == TRITON:
        return kernel_cases.select(values)
    found, visible, count = rows(values["scores"], form), values["visible"], values["count"]
    if form == TORCH:
        return {"pools": array(select(found, torch.from_numpy(visible), count))}
    each = [row_select(s, int(v), count) for s, v in zip(found, visible, strict=True)]
    return {"pools": np.stack(each)}


def _select_exact(values: Values, ties: int = 1, lowest: bool = False) -> Outputs:
    found, count = values["scores"], values["count"]
    pools = np.full((len(found), count), found.shape[1])
    for row, visible in enumerate(values["visible"]):
        sign = 1 if lowest else -1
        ranked = sorted(range(visible), key=lambda i: (sign * found[row, i], ties * i))
        best = sorted(ranked[:count])
        pools[row, : len(best)] = best
    return {"pools": pools}


def _as_ranked(values: Values, form: str) -> Outputs:
    order = np.argsort(-np.nan_to_num(values["scores"], nan=-np.inf), kind="stable")
    pools = _select_exact(values)["pools"]
    width = values["scores"].shape[1]
    return {"pools": np.where(pools == width, pools, order[:, : pools.shape[1]])}


SELECT = Contract(
    name="indexer.select",
    arguments=(
        Argument("scores", "M P", note="anything behind the visible pools"),
        Argument("visible", "M", "int64"),
        Argument("count", "", "int", "K"),
    ),
    cases=(
        Case("ties", {"M": 64, "P": 50, "K": 32, "LOW": 0, "TIES": 1}),
        Case("distinct", {"M": 17, "P": 45, "K": 13, "LOW": 14, "TIES": 0}),
        Case("fewer than asked for", {"M": 6, "P": 8, "K": 12, "LOW": 0, "TIES": 1}),
    ),
    inputs=_select_inputs,
    run=_select,
    exact=_select_exact,
    tolerance=0.0,
    why="comparisons",
    promises=(own_rows("scores", "visible"),),
    faults=(
        formula("ties go to the higher pool", lambda v: _select_exact(v, ties=-1)),
        formula("the lowest scores win", lambda v: _select_exact(v, lowest=True)),
        formula(
            "what is not visible may be chosen",
            lambda v: _select_exact(
                {
                    **v,
                    "scores": np.nan_to_num(v["scores"], nan=9.0),
                    "visible": np.full_like(v["visible"], v["scores"].shape[1]),
                }
            ),
        ),
        Fault("the list follows the scores", _as_ranked),
    ),
    kernel=kernel_cases.SELECT,
)


def _list_inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    m, k, page, pool = sizes["M"], sizes["K"], sizes["PAGE"], sizes["S"]
    pages = 6
    length = noise.integers(1, pages * page + 1, m)
    pools = np.full((m, k), pages * page)
    for row in range(m):
        whole = length[row] // pool
        best = np.sort(noise.permutation(whole)[:k])
        pools[row, : len(best)] = best
    tables = np.stack([noise.permutation(40)[:pages] for _ in range(m)])
    return {
        "pools": pools,
        "length": length,
        "tables": tables,
        "page": page,
        "pool": pool,
        "blank": bool(sizes.get("BLANK")),
    }


def _lists(values: Values, form: str) -> Outputs:
    if form == TRITON:
        return kernel_cases.token_lists(values)
    numbers = {"null": 40, "page": values["page"], "pool": values["pool"]}
    given = [values[name] for name in ("pools", "length", "tables")]
    if form == TORCH:
        slots, seen = token_lists(*(torch.from_numpy(x) for x in given), **numbers)
        return {"slots": array(slots), "seen": array(seen)}
    found = row_token_lists(*given, **numbers)
    return {"slots": found[0], "seen": found[1]}


def _lists_exact(values: Values, tail: bool = True) -> Outputs:
    pools, page, pool = values["pools"], values["page"], values["pool"]
    m, k = pools.shape
    width = -(-(k * pool + pool - 1) // 16) * 16
    slots, seen = np.full((m, width), 40 * page), np.zeros((m, width), bool)
    for row in range(m):
        length, table = values["length"][row], values["tables"][row]
        tokens: dict[int, int] = {}
        for place, p in enumerate(pools[row]):
            if p < length // pool:
                tokens.update({place * pool + j: p * pool + j for j in range(pool)})
        if tail:
            start = length // pool * pool
            tokens.update({k * pool + j: start + j for j in range(length - start)})
        for place, token in tokens.items():
            if values["blank"] and token == 0:
                continue
            slots[row, place] = table[token // page] * page + token % page
            seen[row, place] = True
    return {"slots": slots, "seen": seen}


def _any_pages() -> Promise:
    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        names, page = np.append(noise.permutation(40), 40), values["page"]
        found = run({**values, "tables": names[values["tables"]]})
        slots = names[outputs["slots"] // page] * page + outputs["slots"] % page
        same_bits("on other pages", {**outputs, "slots": slots}, found)

    return Promise("any page order", check)


def _on_page_order(values: Values, form: str) -> Outputs:
    return _lists({**values, "tables": np.sort(values["tables"], 1)}, form)


def _without_itself(values: Values) -> Outputs:
    return _lists_exact({**values, "length": values["length"] - 1})


TOKEN_LISTS = Contract(
    name="indexer.token_lists",
    arguments=(
        Argument("pools", "M K", "int64", "ascending; a pool that is not whole is none"),
        Argument("length", "M", "int64", "visible tokens"),
        Argument("tables", "M T", "int64", "pages of each row"),
    ),
    cases=(
        Case("pages of 64", {"M": 64, "K": 32, "PAGE": 64, "S": 4}),
        Case("small", {"M": 9, "K": 3, "PAGE": 16, "S": 8}),
        Case("pools of one", {"M": 4, "K": 20, "PAGE": 16, "S": 1}),
    ),
    inputs=_list_inputs,
    run=_lists,
    exact=_lists_exact,
    tolerance=0.0,
    why="integers",
    promises=(own_rows("pools", "length", "tables"), _any_pages()),
    faults=(
        formula("the incomplete pool is left out", lambda v: _lists_exact(v, tail=False)),
        formula("the row itself is not visible", _without_itself),
        Fault("pages are read in the order of their ids", _on_page_order),
    ),
    kernel=kernel_cases.TOKEN_LISTS,
)

CONTRACTS = (POOL_KEYS, SCORES, SELECT, TOKEN_LISTS)
