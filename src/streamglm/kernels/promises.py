"""Promises about bits, which many contracts share.

Owns what is moved and what must stay. Knows no operator. Invariant: an operator that breaks its
promise in one bit of one row is red.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from streamglm.kernels.contract import ContractBroken, Noise, Outputs, Promise, Run, Values


def same_bits(what: str, want: Outputs, found: Outputs) -> None:
    """Raise `ContractBroken` unless all outputs are equal bit by bit."""
    for name, value in want.items():
        if not np.array_equal(value, found[name]):
            raise ContractBroken(f"{name} has other bits {what}")


def own_rows(*names: str, unit: Mapping[str, int] | None = None) -> Promise:
    """Row i of every output depends on row i of the arguments `names` and on nothing beside it.

    Shown in another order, beside other rows, and with fewer rows: one, or `unit` of them by form.
    """

    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        count = len(values[names[0]])
        order = noise.permutation(count)
        moved = run({**values, **{name: values[name][order] for name in names}})
        same_bits("in another order", {k: v[order] for k, v in outputs.items()}, moved)
        other = noise.random(count) < 0.5
        changed = {name: _replaced(values[name], other, noise) for name in names}
        found = run({**values, **changed})
        kept = {name: value[~other] for name, value in outputs.items()}
        same_bits("beside other rows", kept, {k: v[~other] for k, v in found.items()})
        few = (unit or {}).get(form, 1)
        if count > few:
            found = run({**values, **{name: values[name][:few] for name in names}})
            same_bits(f"in {few} rows", {k: v[:few] for k, v in outputs.items()}, found)

    return Promise("rows alone equal rows together", check)


def _replaced(x: npt.NDArray[Any], other: npt.NDArray[np.bool_], noise: Noise) -> Any:
    """x with its `other` rows made smaller, each by a factor of its own; signs stay."""
    x = x.copy()
    if x.dtype == np.float32:
        factors = 0.1 + 0.8 * noise.random(len(x), np.float32)
        x[other] *= factors[other].reshape(-1, *(1,) * (x.ndim - 1))
    return x


def own_prefix(*names: str, outputs: tuple[str, ...]) -> Promise:
    """Row i of `outputs` depends on rows up to i of the arguments `names`, not on later ones."""

    def check(run: Run, values: Values, found: Outputs, form: str, noise: Noise) -> None:
        count = len(values[names[0]])
        for cut in {1, count // 3, count // 2 + 1, count - 1}:
            other = np.arange(count) >= cut
            changed = {name: _replaced(values[name], other, noise) for name in names}
            again = run({**values, **changed})
            head = {name: found[name][:cut] for name in outputs}
            same_bits(f"when rows from {cut} on change", head, {k: again[k][:cut] for k in outputs})

    return Promise("later rows do not matter", check)


def each_alone(*names: str) -> Promise:
    """Every row of every output is what the row gives alone: R rows are R windows of one."""

    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        for row in range(len(values[names[0]])):
            one = slice(row, row + 1)
            found = run({**values, **{name: values[name][one] for name in names}})
            same_bits(f"in row {row} alone", {k: v[one] for k, v in outputs.items()}, found)

    return Promise("R rows together equal R windows of one", check)


def any_chunks(*names: str) -> Promise:
    """However rows are cut into chunks, the chunks' outputs in a row are the outputs."""

    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        count = len(values[names[0]])
        for cuts in (1, 3):
            inner = np.sort(noise.integers(0, count + 1, cuts))
            edges = np.unique(np.concatenate([[0], inner, [count]]))
            parts = [
                run({**values, **{name: values[name][start:stop] for name in names}})
                for start, stop in pairwise(edges)
            ]
            joined = {k: np.concatenate([part[k] for part in parts]) for k in outputs}
            same_bits(f"cut at {edges[1:-1].tolist()}", outputs, joined)

    return Promise("any chunks equal the whole", check)


def own_parts(axis: int, *names: str) -> Promise:
    """Heads do not meet: a share of them along `axis` of the arguments `names` gives its outputs,
    whatever their number, so that ranks may share them unevenly."""

    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        count = values[names[0]].shape[axis]
        cut = count // 2 + 1
        for start, stop in {(0, cut), (cut, count), (0, 1), (count - 1, count)}:
            if start == stop:
                continue
            share = (*(slice(None),) * axis, slice(start, stop))
            found = run({**values, **{name: values[name][share] for name in names}})
            same_bits(
                f"of parts {start} to {stop}", {k: v[share] for k, v in outputs.items()}, found
            )

    return Promise("any share of heads", check)


def windows_of_one(*names: str, carried: str, output: str) -> Promise:
    """Lanes of `counts` rows each, one behind the other in the arguments `names`, are as many
    windows of one row: what is `carried` [lanes, ...] from row to row, and the `output` of each."""

    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        counts, state = values["counts"], values[carried]
        firsts = np.cumsum(counts) - counts
        rows = np.full_like(outputs[output], np.nan)
        for place in range(counts.max()):
            going = counts > place
            mine = firsts[going] + place
            one = {name: values[name][mine] for name in names}
            given = {**one, carried: state[going], "counts": np.ones_like(counts[going])}
            found = run({**values, **given})
            state = state.copy()
            state[going], rows[mine] = found[carried], found[output]
        same_bits("in windows of one row", outputs, {output: rows, carried: state})

    return Promise("a window of R rows equals R windows of one", check)


def replayed(*names: str, carried: str) -> Promise:
    """A window that is only looked at (`keep` False) leaves what is `carried`; a replay of the rows
    that were accepted then (`give` False) moves it as those rows do, and gives nothing."""

    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        looked = run({**values, "keep": False})
        same_bits("when nothing is kept", {**outputs, carried: values[carried]}, looked)
        counts = values["counts"]
        accepted = noise.integers(0, counts + 1)
        accepted[0] = counts[0]
        firsts = np.cumsum(counts) - counts
        real = np.concatenate([f + np.arange(a) for f, a in zip(firsts, accepted, strict=True)])
        some = {name: values[name][real] for name in names}
        want = run({**values, **some, "counts": accepted})[carried]
        found = run({**values, **some, "counts": accepted, "give": False})
        same_bits("in a replay", {carried: want}, found)
        same_bits("where all is accepted", {carried: outputs[carried][:1]}, {carried: want[:1]})

    return Promise("a replay of accepted rows moves what is carried as they do", check)


def any_page_order(
    pages: tuple[str, ...], ids: tuple[str, ...] = (), slots: Mapping[str, int] | None = None
) -> Promise:
    """Outputs do not depend on where pages lie: the arguments `pages` [P, ...] in another order,
    the page ids in `ids` and the slots in `slots` (by rows of a page) following them."""

    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        count = len(values[pages[0]])
        place = noise.permutation(count)  # of the page that was i
        moved: dict[str, Any] = {name: values[name][np.argsort(place)] for name in pages}
        for name in ids:
            moved[name] = np.append(place, values[name].max(initial=count))[values[name]]
        for name, size in (slots or {}).items():
            page, row = np.divmod(values[name], size)
            moved[name] = np.append(place, page.max(initial=count))[page] * size + row
        same_bits("with pages in another order", outputs, run({**values, **moved}))

    return Promise("any page order", check)
