"""Who proposes what may follow a reply: the protocol, and the drafter that the ranks run.

Owns what a proposal is. Knows no policy: whoever asks decides how much of a proposal is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class Source(StrEnum):
    """Where a proposal comes from: what its acceptance is counted under."""

    CHAIN = "chain"
    """The next-token layer, one draft after the other."""
    HINT = "hint"
    """What followed the last few tokens when they occurred before."""
    QUOTE = "quote"
    """The same, behind a long match: the reply is quoting."""

    @property
    def drafter(self) -> str:
        """The drafter's name, as metrics have it."""
        return "chain" if self is Source.CHAIN else "lookup"


class Proposal(NamedTuple):
    """Tokens that may follow, the next one first."""

    tokens: tuple[int, ...]
    source: Source


class Drafter(Protocol):
    """Proposals for one reply."""

    def propose(self, most: int) -> Proposal | None:
        """At most `most` tokens that may follow, at least one; None without an idea. Changes
        nothing."""
        ...

    def follow(self, tokens: Sequence[int], drafts: Sequence[int]) -> None:
        """The reply went on with `tokens`; the ranks drafted `drafts` behind them."""
        ...


class Chain:
    """What the next-token layer drafted behind the last draw."""

    __slots__ = ("_drafts",)

    def __init__(self) -> None:
        self._drafts: tuple[int, ...] = ()

    def propose(self, most: int) -> Proposal | None:
        return Proposal(self._drafts[:most], Source.CHAIN) if self._drafts and most else None

    def follow(self, tokens: Sequence[int], drafts: Sequence[int]) -> None:
        self._drafts = tuple(drafts)
