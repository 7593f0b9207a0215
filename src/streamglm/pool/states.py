"""The nouns of kept states: a state, where it lies, what was found, and what was counted.

Owns the values. Knows no store. A state's numbers are changed by `kept.py` alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from streamglm.pool.prefix import Node


class Tier(StrEnum):
    """Where a state lies."""

    SHARED = "shared"
    COPIED = "copied"
    HOST = "host"
    DISK = "disk"


class Miss(StrEnum):
    """Why nothing of a prompt was found."""

    OFF = "off"
    SHORT = "short"
    EMPTY = "empty"
    DIFFERS = "differs"
    IDENTITY = "identity"
    EVICTED = "evicted"


class State:
    """One kept state. `used` orders states by their last use, `born` and `used_at` are seconds of
    the server's clock."""

    __slots__ = (
        "at",
        "born",
        "borrows",
        "digest",
        "home",
        "id",
        "lane",
        "node",
        "published",
        "size",
        "slot",
        "tier",
        "used",
        "used_at",
    )

    def __init__(self, number: int, node: Node[State], at: int, lane: int) -> None:
        self.id = number
        self.node = node
        self.at = at
        """Tokens."""
        self.lane = lane
        """The lane that computes it, while it is pending."""
        self.tier = Tier.SHARED
        self.slot = -1
        self.size = 0
        """Bytes in its tier's budget; a sharing state has a slot instead."""
        self.home = 0
        """The class of its pages."""
        self.borrows = 0
        self.published = False
        self.used = 0
        self.born = 0.0
        self.used_at = 0.0
        self.digest = 0
        """What the ranks know of it, as it counts in the store's digest; 0 for nothing."""

    @property
    def evictable(self) -> bool:
        return self.published and not self.borrows


@dataclass(frozen=True, slots=True)
class Look:
    """What the store knows of a prompt. `at` tokens of it are kept as `state`; a longer prefix,
    of `pending_at` tokens, is being computed by `pending_lane`."""

    state: int | None
    at: int
    pending_at: int = 0
    pending_lane: int | None = None
    miss: Miss | None = None
    line: str = ""
    """Why no more of it was found, for the log."""


@dataclass(slots=True)
class Counts:
    """Totals since the start."""

    hits: Counter[str] = field(default_factory=Counter)
    """By tier."""
    hit_tokens: int = 0
    misses: Counter[str] = field(default_factory=Counter)
    """By reason."""
    kept: int = 0
    known: int = 0
    """Keeps of what was kept already."""
    refused: int = 0
    """Keeps that found no place: everything was in use, or too small for the state."""
    abandoned: int = 0
    evicted: Counter[str] = field(default_factory=Counter)
    """By the tier they left for nothing."""
    demoted: int = 0
    carried: int = 0
    """Hits whose rows went to another rank."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One kept state, for whoever looks at the pool. `bytes` are a slot's, or those of a copy."""

    tokens: int
    bytes: int
    tier: Tier
    borrowed: bool
    age_seconds: float
    idle_seconds: float
    """Since it was last used."""
    home: int
    """The class of the lane that it was kept from."""


@dataclass(frozen=True, slots=True)
class KeptStats:
    """Kept states at this moment, by tier."""

    states: dict[str, int]
    bytes: dict[str, int]
    """A sharing state's slot, and the pages that kept states alone hold."""
    pending: int
    borrowed: int
    """Borrows that were not given back."""
    slots: int
    slots_free: int
