"""Sizes that are timed beside those of the contracts, and the noise that fills them.

Owns the sizes that the goals speak of, where a formula in float64 would take minutes: their
operator's contract is verified at its own sizes. Knows no operator but by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamglm.kernels.contract import Case, Kernel

Sizes = Mapping[str, int]

_SHAPES = (
    ("in", 24576, 4096),
    ("KDA out", 4096, 8192),
    ("queries", 16384, 1536),
    ("latent out", 4096, 16384),
    ("square", 4096, 4096),
    ("narrow", 512, 4096),
)
"""(what of the model, rows of the weight, columns)"""
_LIST = {"D": 512, "S": 64, "L": 2048, "CHUNK": 2048, "BYTES": 2, "QUERY": 2}
_PAST, _BEHIND = 131072, 16384
"""Rows of latents that the lists of a prompt are of, and for each row of a window: a round's calls
have rows of their own, of which a cache holds few."""
_EXPERTS = {"E": 48, "C": 8, "K": 4096, "I": 2048, "BYTES": 2}
"""A sixth of the model's: what a row reads are its own experts, and they pass the cache."""


def _linear() -> Iterator[Case]:
    for rows in (1, 8, 32):
        for name, n, k in _SHAPES:
            yield Case(f"{name}, {rows} rows", {"R": rows, "N": n, "K": k, "BYTES": 2})


def _chunk(rows: int, heads: int) -> Case:
    sizes = {"N": rows, "H": heads, "D": 128, "ROWS": rows, "DECAY": 2, "SAME": 0, "BYTES": 2}
    return Case(f"{rows} rows, {heads} heads", sizes)


def _lists(rows: Sequence[int], heads: Sequence[int]) -> Iterator[Case]:
    """Lists with gaps, over so few rows of latents that a cache holds them."""
    for h in heads:
        for m in rows:
            yield Case(f"{m} rows, {h} heads, few latents", {"M": m, "H": h, **_LIST})


def _far_lists(rows: Sequence[int], heads: Sequence[int]) -> Iterator[Case]:
    """Whole lists, over what lies behind long prompts."""
    for h in heads:
        for m in rows:
            past = min(_PAST, m * _BEHIND)
            sizes = {"M": m, "H": h, **_LIST, "PAST": past}
            yield Case(f"{m} rows, {h} heads, {past} latents", sizes)


def _experts(*rows: int) -> tuple[Case, ...]:
    return tuple(Case(f"{r} rows, 48 experts", {"R": r, **_EXPERTS}) for r in rows)


GOALS: Mapping[str, tuple[Case, ...]] = {
    "linear.window.plain": tuple(_linear()),
    "kda.chunk": (_chunk(2048, 64), _chunk(8192, 64), _chunk(8192, 32)),
    "kda.step": tuple(
        Case(f"{n} lanes", {"N": n, "H": 64, "D": 128, "BYTES": 2}) for n in (1, 8, 32)
    ),
    "latent_attention.selected": (
        *_far_lists((1, 4, 8), (64, 32)),
        *_lists((1, 8), (64,)),
    ),
    "latent_attention.selected_prompt": (
        *_far_lists((2048,), (64, 32)),
        *_lists((2048,), (64, 32)),
    ),
    "experts.window.nvfp4": _experts(1, 8, 32),
    "experts.window.fp8": _experts(1, 8, 32),
    "experts.window.plain": _experts(1, 8, 32),
}
"""By operator."""


def sizes_of(op: str, kernel: Kernel, goals: bool) -> tuple[Case, ...]:
    """What is timed of an operator: the goals' sizes, and without `goals` the contract's first."""
    named = GOALS.get(op, ())
    own = () if goals and named else kernel.full
    known = [case.sizes for case in own]
    return (*own, *(case for case in named if case.sizes not in known))


class Repeated(np.random.Generator):
    """Noise whose large arrays repeat a block of an odd length: a stopwatch needs no more, and so
    much of it would take longer than what is timed."""

    BLOCK = 5_000_011

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        draw = super().standard_normal
        return self._repeated(lambda count: draw(count, dtype), size)

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        draw = super().random
        return self._repeated(lambda count: draw(count, dtype), size)

    def _repeated(self, draw: Any, size: Any) -> Any:
        if size is None or np.prod(size) <= self.BLOCK:
            return draw(size)
        return np.resize(draw(self.BLOCK), size)
