"""Drawing a token from a row of logits, with noise that comes from (seed, position) alone."""

from __future__ import annotations

from streamglm.kernels.arguments import ArgumentError, Array, Wide
from streamglm.kernels.draw import reference

__all__ = ["draw", "uniform"]


def uniform(seed: int, position: int) -> float:
    """The noise of a draw, in [0, 1): a function of (seed, position) and of nothing else."""
    return reference.uniform(seed, position)


def draw(
    logits: Array | Wide,
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    noise: float,
) -> int:
    """An id from logits [V] (-inf is never drawn) with `noise` in [0, 1).

    Temperature; then the `top_k` highest (0: all); then the fewest whose mass reaches `top_p`; then
    those of at least `min_p` times the highest share. Equal logits stand in the order of their ids,
    and the id is the one whose part of the remaining mass holds `noise`. Raises `ArgumentError` for
    a temperature that is not above 0 or logits that are not one row.
    """
    if temperature <= 0.0 or logits.ndim != 1:
        raise ArgumentError(f"draw: logits {logits.shape}, temperature {temperature}")
    return reference.draw(logits, temperature, top_k, top_p, min_p, noise)
