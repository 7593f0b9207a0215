"""A fact: what is told, what is asked about it later, and what is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamglm.nano.training import prose
from streamglm.nano.training.dice import Dice

Draw = Callable[[Dice], str]
"""A source of values."""


@dataclass(frozen=True, slots=True)
class Fact:
    """`key` tells facts apart: what about it, and whose. `slots` are what wordings are filled
    with, empty where a fact has wordings of its own; the other fields are wordings."""

    key: tuple[str, str]
    value: str
    slots: Mapping[str, str]
    told: tuple[str, ...]
    asked: tuple[str, ...]
    answer: str
    missing: str


def word(options: tuple[str, ...]) -> Draw:
    """One of `options`, or a word that does not exist."""
    return lambda dice: prose.invented(dice) if dice.chance(0.15) else dice.pick(options)
