"""Filter and draw one token from one row of logits, in numpy and float64."""

from __future__ import annotations

import numpy as np

from streamglm.kernels.arguments import Array, Wide

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from (seed, position): the finaliser of SplitMix64 over the seed, then
    over the counter, of which the upper 53 bits are kept."""
    mixed = _finalise((seed + _STEP) & _MASK)
    mixed = _finalise((mixed + (position + 1) * _STEP) & _MASK)
    return float((mixed >> 11) * 2.0**-53)


def _finalise(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def draw(
    logits: Array | Wide,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    noise: float,
) -> int:
    """logits [V], noise in [0, 1) -> id."""
    order = np.argsort(-logits, kind="stable")
    if top_k:
        order = order[:top_k]
    values = logits[order].astype(np.float64)
    with np.errstate(over="ignore"):  # at a temperature near 0 all but the highest go to -inf
        shares = np.exp((values - values[0]) / temperature)
    shares /= shares.sum()
    ends = shares.cumsum()
    kept = shares >= min_p * shares[0]
    if top_p < 1.0:
        kept &= ends - shares < top_p
    ends = ends[: int(kept.sum())]
    return int(order[np.searchsorted(ends, noise * ends[-1], side="right")])
