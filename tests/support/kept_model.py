"""What kept states must do, written to be believed: lists, and counting from scratch.

`kept_walk.py` drives a book and a store beside this model.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from streamglm.pool.states import Tier

ROWS = 3
PAGES = 36
"""Of all classes, trash pages aside."""
LANES = 5
IDENTITIES = (b"one", b"two")


def state_bytes(at: int) -> int:
    return 7 + 2 * at


def away_bytes(at: int) -> int:
    return 7 + at


@dataclass(frozen=True)
class Places:
    """What there is for kept states: slots, and bytes."""

    slots: int = 0
    budget: int = 0
    host: int = 0


@dataclass
class Kept:
    """A state as the model sees it."""

    id: int
    identity: bytes
    tokens: tuple[int, ...]
    tier: Tier
    pages: frozenset[int]
    lane: int | None
    home: int = 0
    borrows: int = 0
    used: int = 0

    @property
    def loose(self) -> bool:
        return self.lane is None and not self.borrows

    def size(self, rank: int) -> int:
        at = len(self.tokens)
        return state_bytes(at) if rank == self.home else away_bytes(at)


@dataclass
class Live:
    """A lane: its prompt, its pages, and the state it resumed from until its first step."""

    prompt: tuple[int, ...]
    identity: bytes
    pages: frozenset[int]
    borrowed: int | None = None


@dataclass
class Model:
    """The store and the book, as one."""

    slots: int
    budget: int
    host: int
    classes: int = 1
    states: dict[int, Kept] = field(default_factory=dict)
    lanes: dict[int, Live] = field(default_factory=dict)
    clock: int = 0

    def held(self, without: Collection[int] = ()) -> set[int]:
        """Pages of lanes and of sharing states, but not those that only `without` hold."""
        pages = {page for lane in self.lanes.values() for page in lane.pages}
        for state in self.states.values():
            if state.tier is Tier.SHARED and state.id not in without:
                pages |= state.pages
        return pages

    def free(self, home: int) -> int:
        return self.each - sum(page % self.classes == home for page in self.held())

    @property
    def each(self) -> int:
        """Pages of a class."""
        return PAGES // self.classes

    @property
    def ranks(self) -> range:
        return range(self.classes)

    def roomiest(self) -> int:
        """Ties to the lowest."""
        return sorted(self.ranks, key=lambda home: -self.free(home))[0]

    def loose(self, tier: Tier) -> list[Kept]:
        """Those that may go, the least recently used first."""
        found = [one for one in self.states.values() if one.tier is tier and one.loose]
        return sorted(found, key=lambda one: one.used)

    def touch(self, state: int) -> None:
        self.clock += 1
        self.states[state].used = self.clock

    def best(self, prompt: tuple[int, ...], identity: bytes) -> tuple[int | None, int]:
        """The longest published strict prefix, and the longest pending one beyond it."""
        fits = [
            one
            for one in self.states.values()
            if one.identity == identity
            and len(one.tokens) < len(prompt)
            and prompt[: len(one.tokens)] == one.tokens
        ]
        kept = max(
            (one for one in fits if one.lane is None), key=lambda o: len(o.tokens), default=None
        )
        length = 0 if kept is None else len(kept.tokens)
        waits = max((len(one.tokens) for one in fits if one.lane is not None), default=0)
        return (None if kept is None else kept.id), (waits if waits > length else 0)

    def evict(self, one: Kept) -> None:
        if one.tier is not Tier.HOST and self.fits(one, Tier.HOST, one.used):
            one.tier = Tier.HOST
        else:
            del self.states[one.id]

    def fits(self, new: Kept, tier: Tier, before: int) -> bool:
        """Whether `new` fits `tier` once states last used before `before` went, oldest first."""
        total = self.budget if tier is Tier.COPIED else self.host
        go: list[Kept] = []

        def roomy() -> bool:
            stay = [one for one in self.states.values() if one.tier is tier and one not in go]
            used = [sum(one.size(rank) for one in stay) for rank in self.ranks]
            return all(total - used[rank] >= new.size(rank) for rank in self.ranks)

        for one in self.loose(tier):
            if roomy() or one.used >= before:
                break
            go.append(one)
        if not roomy():
            return False
        for one in go:
            self.evict(one)
        return True

    def reserve(self, new: Kept) -> bool:
        for one in self.states.values():
            if (one.identity, one.tokens) == (new.identity, new.tokens):
                if one.lane is None:
                    self.touch(one.id)
                return False
        if self.slots:
            if sum(one.tier is Tier.SHARED for one in self.states.values()) == self.slots:
                loose = self.loose(Tier.SHARED)
                if loose:
                    self.evict(loose[0])
            if sum(one.tier is Tier.SHARED for one in self.states.values()) < self.slots:
                self.states[new.id] = new
                return True
        for tier in (Tier.COPIED, Tier.HOST):
            if self.fits(new, tier, self.clock + 1):
                new.tier = tier
                self.states[new.id] = new
                return True
        return False

    def make_room(self, count: int, near: int | None) -> bool:
        """In one class, `near` or the one that could have the most."""
        homes = list(self.ranks) if near is None else [near]
        if max(self.free(home) for home in homes) >= count:
            return True
        loose = self.loose(Tier.SHARED)
        spare = self.held() - self.held({one.id for one in loose})
        could = {h: self.free(h) + sum(p % self.classes == h for p in spare) for h in homes}
        home = sorted(homes, key=lambda one: -could[one])[0]
        if could[home] < count:
            return False
        for one in loose:
            if self.free(home) >= count:
                break
            if any(page % self.classes == home for page in one.pages & spare):
                self.evict(one)
        return True

    def place(self, need: int, state: int | None) -> tuple[int, frozenset[int]] | None:
        """The class of a lease of `need` pages, and what it shares with `state`."""
        one = None if state is None else self.states[state]
        shared = one.pages if one is not None and one.tier is Tier.SHARED else frozenset()
        if one is not None and self.free(one.home) >= need - len(shared):
            return one.home, shared
        if self.free(self.roomiest()) >= need:
            return self.roomiest(), frozenset()
        if one is not None and self.make_room(need - len(shared), one.home):
            return one.home, shared
        if (one is None or self.classes > 1) and self.make_room(need, None):
            return self.roomiest(), frozenset()
        return None
