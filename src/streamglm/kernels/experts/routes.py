"""Which rows go to which experts: the choice, its weights, and rows grouped expert by expert.

In numpy for prompts too, for the choice is small. Ties go to the lower expert.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamglm.kernels.arguments import Array, Ids
from streamglm.kernels.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Choice:
    """How experts are chosen."""

    bias: Array
    """[E']; moves the choice only, -inf behind the E experts."""
    count: int
    """Experts of a row."""
    normalise: bool
    factor: float


@dataclass(frozen=True, slots=True)
class Routes:
    """Which experts compute which rows, and where a row finds its results."""

    rows: list[int]
    """Row of x at each place of the grouped rows; row 0 where a group is filled up."""
    groups: list[tuple[int, int, int]]
    """(expert, first place, places), ascending in the expert."""
    places: list[int]
    """Places of a row's experts, ascending in the expert; `count` a row."""


def route(scores: Array, choice: Choice, tiling: Tiling) -> tuple[Routes, Array]:
    """scores [M, E'] (sigmoids already) -> routes, and the chosen experts' weights [M, count]."""
    ranked = np.argsort(-(scores + choice.bias), axis=1, kind="stable")[:, : choice.count]
    ranked = np.sort(ranked, axis=1)
    shares = scores[np.arange(scores.shape[0])[:, None], ranked]
    if choice.normalise:
        shares /= np.add.reduce(shares, axis=1, keepdims=True) + np.float32(1e-20)
    shares *= np.float32(choice.factor)
    return group(ranked, tiling), shares


def group(ranked: Ids, tiling: Tiling) -> Routes:
    """Experts [M, count] of each row, ascending -> rows gathered expert by expert, each group
    padded to whole tiles."""
    count = ranked.shape[1]
    members: dict[int, list[int]] = {}
    for place, expert in enumerate(ranked.ravel().tolist()):
        members.setdefault(expert, []).append(place)
    rows: list[int] = []
    places = [0] * ranked.size
    groups = []
    for expert in sorted(members):
        mine, first = members[expert], len(rows)
        size = tiling.pad(len(mine))
        groups.append((expert, first, size))
        for at, place in enumerate(mine, first):
            places[place] = at
            rows.append(place // count)
        rows.extend([0] * (size - len(mine)))
    return Routes(rows, groups, places)
