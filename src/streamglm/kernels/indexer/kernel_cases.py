"""The contracts' arguments as the indexer's kernels take them, and their cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from streamglm.kernels import launch
from streamglm.kernels.arguments import Ids
from streamglm.kernels.contract import (
    HALF,
    STORED,
    TRITON,
    Call,
    Case,
    ContractBroken,
    Fault,
    Kernel,
    Noise,
    Outputs,
    Promise,
    Run,
    Values,
    Work,
    arrays,
    indices,
    on_cpu,
    paged,
    rows,
    timed,
    vector,
)
from streamglm.kernels.pages import Pages, read_host
from streamglm.kernels.promises import any_chunks, each_alone, same_bits

PER_PAGE = 8
"""Pools of a page."""


def _spread(x: np.ndarray[Any, Any], itemsize: int) -> tuple[Pages, np.ndarray[Any, Any]]:
    """Rows x [N, D] in shuffled pages among pages of NaN -> those, and the pages in order."""
    count = -(-len(x) // PER_PAGE)
    order = np.random.default_rng(count).permutation(2 * count + 1)[:count]
    memory = np.full((2 * count + 1, PER_PAGE, x.shape[1]), np.nan, np.float32)
    whole = np.full((count * PER_PAGE, x.shape[1]), np.nan, np.float32)
    whole[: len(x)] = x
    memory[order] = whole.reshape(count, PER_PAGE, -1)
    return paged(memory, itemsize, TRITON), order


def _pool_call(values: Values) -> tuple[Call, Pages, Ids]:
    """Tokens of a pool stand apart, and so do the slots that pools go to; one pool is none."""
    from streamglm.kernels.indexer import kernel

    p, s, d = values["keys"].shape
    dtype, noise = STORED[values["itemsize"]], np.random.default_rng(p)
    order = noise.permutation(p * s)
    keys, gates = (
        rows(values[name].reshape(p * s, d)[order], TRITON, dtype) for name in ("keys", "gates")
    )
    members = np.argsort(order).reshape(p, s)
    pages = paged(np.full((p, PER_PAGE, d), np.nan, np.float32), values["itemsize"], TRITON)
    slots = noise.permutation(p * PER_PAGE)[:p]
    ape = vector(np.broadcast_to(values["ape"], (s, d)).astype(np.float32), TRITON)
    where = indices(np.concatenate([members, np.full((1, s), p * s + 99)]))
    target = indices(np.append(slots, -1))

    def call() -> dict[str, torch.Tensor]:
        kernel.pool_write(keys, gates, ape, where, pages, target)
        return {"pages": pages.values}

    return call, pages, slots


def pool_keys(values: Values) -> Outputs:
    """Into pages, and read back."""
    call, pages, slots = _pool_call(values)
    call()
    return {"pooled": read_host(on_cpu(pages), slots)}


def _scores_call(values: Values) -> Call:
    """Of rows in groups that share a table, each over the pools that it sees: by default all."""
    from streamglm.kernels.indexer import kernel

    m, _, d = values["queries"].shape
    dtype = STORED[values["itemsize"]]
    flat = values["keys"].reshape(-1, d)
    pages, order = _spread(flat, values["itemsize"])
    visible = indices(values.get("visible", np.full(m, len(flat))))
    out = torch.full((m, len(flat)), np.nan, device=launch.device())
    group = 64 if m >= 64 else 3 if 4 <= m < 8 else 1  # tiles, a rest, and windows
    tables = indices(np.tile(order, (-(-m // group), 1)))
    queries = rows(values["queries"], TRITON, dtype)
    weights = rows(values["weights"], TRITON, dtype)

    def call() -> dict[str, torch.Tensor]:
        kernel.scores(queries, weights, pages, tables, visible, out)
        return {"scores": out}

    return call


def scores(values: Values) -> Outputs:
    """By the kernel."""
    return arrays(_scores_call(values)())


def _select_call(values: Values) -> Call:
    """In blocks of the size of the case."""
    from streamglm.kernels.indexer import kernel

    found, visible = rows(values["scores"], TRITON), indices(values["visible"])
    count, block = values["count"], values["block"]
    return lambda: {"pools": kernel.select(found, visible, count, block)}


def select(values: Values) -> Outputs:
    """By the kernel."""
    return arrays(_select_call(values)())


def _lists_call(values: Values) -> Call:
    from streamglm.kernels.indexer import kernel

    pools, length, tables = (indices(values[name]) for name in ("pools", "length", "tables"))
    page, pool, blank = values["page"], values["pool"], values["blank"]
    return lambda: {
        "slots": kernel.token_lists(pools, length, tables, page=page, pool=pool, blank=blank)
    }


def token_lists(values: Values) -> Outputs:
    """A slot below 0 is none."""
    found = arrays(_lists_call(values)())["slots"]
    return {"slots": np.where(found < 0, 40 * values["page"], found), "seen": found >= 0}


def _pool_work(values: Values) -> Work:
    both, pools = 2 * values["keys"].size, len(values["keys"]) * values["keys"].shape[2]
    return Work((both + pools) * values["itemsize"])


def _scores_work(values: Values) -> Work:
    """Every key once, for rows that see them all; a score is written in float32."""
    m, heads, width = values["queries"].shape
    pools = values["keys"].size // width
    moved = (values["keys"].size + values["queries"].size) * values["itemsize"]
    return Work(moved + 4 * m * pools, 2 * m * heads * pools * width)


def _select_work(values: Values) -> Work:
    return Work(4 * int(values["visible"].sum()) + 4 * len(values["scores"]) * values["count"])


def _lists_work(values: Values) -> Work:
    return Work(4 * values["pools"].size * (1 + values["pool"]))


def _unseen_stay() -> Promise:
    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        m, pools = outputs["scores"].shape
        visible = noise.integers(0, pools * 3 // 4 + 1, m)
        keys = values["keys"].copy()
        keys.reshape(pools, -1)[visible.max() :] = np.nan
        found = run({**values, "keys": keys, "visible": visible})["scores"]
        seen = np.arange(pools) < visible[:, None]
        if not np.array_equal(found[seen], outputs["scores"][seen]):
            raise ContractBroken("scores have other bits where fewer pools are seen")
        if not np.isnan(found[~seen]).all():
            raise ContractBroken("scores of pools that a row does not see are written")

    return Promise("what a row does not see is neither read nor written", check)


def _nan_takes_a_place() -> Promise:
    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        found, none = values["scores"].copy(), values["scores"].shape[1]
        found[noise.random(found.shape) < 0.1] = np.nan
        want = np.full_like(outputs["pools"], none)
        for row, visible in enumerate(values["visible"]):
            mine = found[row, :visible]
            order = np.argsort(-np.where(np.isnan(mine), np.inf, mine), kind="stable")
            best = np.sort([i for i in order[: values["count"]] if not np.isnan(mine[i])])
            want[row, : len(best)] = best
        same_bits("where scores are NaN", {"pools": want}, run({**values, "scores": found}))

    return Promise("a score that is NaN takes a place and is not chosen", check)


def _writes_all(values: Values, form: str) -> Outputs:
    """As if the mask of the store were left out."""
    outputs = scores(values)
    return {"scores": np.nan_to_num(outputs["scores"], nan=0.0)}


def _first_block(values: Values, form: str) -> Outputs:
    """The selection as it would be if the levels met only the first block."""
    shown = np.minimum(values["visible"], values["block"])
    return select({**values, "visible": shown})


POOL_KEYS = Kernel(
    cases=(
        Case("odd", {"P": 3, "S": 4, "D": 21}),
        Case("bfloat16", {"P": 5, "S": 4, "D": 32, "BYTES": 2}, HALF),
    ),
    full=(
        Case("a window", {"P": 8, "S": 4, "D": 128, "BYTES": 2}, HALF),
        Case("a prompt", {"P": 512, "S": 4, "D": 128, "BYTES": 2}, HALF),
    ),
    tolerance=1e-6,
    why="S float32 exps and products; bfloat16 rounds once, into the page",
    promises=(each_alone("keys", "gates"),),
    ready=timed("indexer.pool_keys", lambda values: _pool_call(values)[0]),
    work=_pool_work,
)

SCORES = Kernel(
    cases=(
        Case("three rows", {"M": 3, "H": 3, "D": 24, "C": 1, "P": 21}),
        Case("two blocks", {"M": 5, "H": 4, "D": 16, "C": 2, "P": 66}),
        Case("bfloat16", {"M": 4, "H": 5, "D": 32, "C": 1, "P": 40, "BYTES": 2}),
    ),
    full=(
        Case("a window", {"M": 8, "H": 32, "D": 128, "C": 1, "P": 32768, "BYTES": 2}),
        Case("a tile", {"M": 64, "H": 32, "D": 128, "C": 1, "P": 8192, "BYTES": 2}),
    ),
    tolerance=2e-6,
    why="float32 products of D and of H terms; what is rounded to bfloat16 is so in the arguments",
    promises=(each_alone("queries", "weights"), any_chunks("queries", "weights"), _unseen_stay()),
    faults=(Fault("pools that a row does not see are written", _writes_all),),
    ready=timed("indexer.scores", _scores_call),
    work=_scores_work,
)

_SELECT_SIZES = {"K": 512, "LOW": 0}
SELECT = Kernel(
    cases=(
        Case("ties", {"M": 4, "P": 50, "K": 20, "LOW": 0, "TIES": 1}),
        Case("fewer than asked for", {"M": 2, "P": 8, "K": 12, "LOW": 0, "TIES": 1}),
        Case("three levels", {"M": 2, "P": 40, "K": 3, "LOW": 30, "TIES": 1, "BLOCK": 8}),
    ),
    full=(
        Case("a window at 128k", {**_SELECT_SIZES, "M": 8, "P": 32768, "TIES": 1}),
        Case("a window at 1M", {**_SELECT_SIZES, "M": 2, "P": 262144, "TIES": 0}),
        Case("a tile", {**_SELECT_SIZES, "M": 64, "P": 8192, "TIES": 1}),
    ),
    tolerance=0.0,
    why="comparisons",
    promises=(each_alone("scores", "visible"), _nan_takes_a_place()),
    faults=(Fault("only the first block is met", _first_block),),
    ready=timed("indexer.select", _select_call),
    work=_select_work,
)

TOKEN_LISTS = Kernel(
    cases=(
        Case("pages of 64", {"M": 5, "K": 32, "PAGE": 64, "S": 4}),
        Case("without token 0", {"M": 6, "K": 12, "PAGE": 16, "S": 8, "BLANK": 1}),
    ),
    full=(Case("the model's", {"M": 64, "K": 512, "PAGE": 64, "S": 4}),),
    tolerance=0.0,
    why="integers",
    promises=(each_alone("pools", "length", "tables"),),
    ready=timed("indexer.token_lists", _lists_call),
    work=_lists_work,
)
