"""Seeded choice, and phrases with alternatives.

Owns the random stream of one conversation and the little language in which wordings are written:
`(a|b|c)` chooses, brackets nest, `{name}` is filled in. Knows no topic. Invariant: a seed decides
every choice, on any machine.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

T = TypeVar("T")

Node = str | tuple["Node", ...] | list["Node"]
"""A literal or `{slot}`, a choice (tuple), or a sequence (list)."""


class Dice:
    """A seeded stream of choices."""

    def __init__(self, seed: int, *, sensible: bool = False) -> None:
        """`sensible` leaves out the wordings that mean nothing, from which a model learns what may
        be ignored; an exam does not ask such things."""
        self.sensible = sensible
        self._random = random.Random(seed)
        self.unit = self._random.random
        """The next number in [0, 1)."""

    def chance(self, probability: float) -> bool:
        return self.unit() < probability

    def below(self, count: int) -> int:
        """A whole number in [0, count)."""
        return int(self.unit() * count)

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        return low + int(self.unit() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.unit() * len(items))]

    def several(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items in random order."""
        return self._random.sample(items, count)

    def weighted(self, items: Sequence[T], cumulative: Sequence[float]) -> T:
        """An item by cumulative weights; the last weight is the total."""
        mark = self.unit() * cumulative[-1]
        return next(item for item, edge in zip(items, cumulative, strict=True) if mark < edge)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self.several(items, len(items))

    def say(self, pattern: str, slots: Mapping[str, str] | None = None) -> str:
        """One wording of `pattern`, its slots filled in."""
        parts: list[str] = []
        self._expand(parse(pattern), slots or {}, parts)
        return "".join(parts)

    def _expand(self, node: Node, slots: Mapping[str, str], parts: list[str]) -> None:
        if isinstance(node, str):
            parts.append(slots[node[1:-1]] if node.startswith("{") else node)
        elif isinstance(node, tuple):
            self._expand(node[int(self.unit() * len(node))], slots, parts)
        else:
            for child in node:
                self._expand(child, slots, parts)


@cache
def parse(pattern: str) -> Node:
    """The tree of a pattern. A literal never starts with a brace, so a slot is told by its own."""
    node, end = _sequence(pattern, 0)
    assert end == len(pattern), f"unbalanced bracket in {pattern!r}"
    return node


def _sequence(pattern: str, at: int) -> tuple[Node, int]:
    children: list[Node] = []
    while at < len(pattern) and pattern[at] not in "|)":
        if pattern[at] == "(":
            child, at = _choice(pattern, at + 1)
        elif pattern[at] == "{":
            end = pattern.index("}", at) + 1
            child, at = pattern[at:end], end
        else:
            end = at
            while end < len(pattern) and pattern[end] not in "(){|":
                end += 1
            child, at = pattern[at:end], end
        children.append(child)
    return (children[0] if len(children) == 1 else children), at


def _choice(pattern: str, at: int) -> tuple[Node, int]:
    options: list[Node] = []
    while True:
        option, at = _sequence(pattern, at)
        options.append(option)
        if pattern[at] == ")":
            return tuple(options), at + 1
        at += 1


def capital(text: str) -> str:
    """`text` with its first letter in upper case."""
    return text[:1].upper() + text[1:]
