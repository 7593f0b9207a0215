"""What kept states must do, written to be believed: lists, and counting from scratch.

`follow` drives a book and a store through random operations beside this model; whatever differs
is an AssertionError, so that a planted fault must show.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field

from streamglm.pool.kept import KeptStates
from streamglm.pool.pages import PageBook
from streamglm.pool.placing import Placed, place
from streamglm.pool.states import Tier
from streamglm.step import Demote, Drop

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


class Player:
    """Random operations on model, book and store, and what must hold after each."""

    def __init__(self, book: PageBook, store: KeptStates, model: Model, seed: int) -> None:
        self.book, self.store, self.model = book, store, model
        self.draw = random.Random(seed)
        self.prompts: list[tuple[int, ...]] = [()]
        self.away = 0
        """Resumes off their state's home."""
        self.known: dict[int, bool] = {}
        """What the ranks hold: states, and whether each has a buffer."""

    def play(self, operations: int) -> None:
        plays = (self.begin, self.begin, self.keep, self.publish, self.first_step, self.end)
        for _ in range(operations):
            self.draw.choice(plays)()
            self.compare()
        for lane in list(self.model.lanes):
            self.end(lane)
        self.compare()
        self.store.clear()
        self.model.states.clear()
        self.follow_moves()
        assert not self.known
        assert self.store.digest == 0
        assert [one.free for one in self.book.stats().classes] == [
            self.model.each
        ] * self.model.classes
        self.book.check()
        self.store.check()

    def prompt(self) -> tuple[int, ...]:
        """A new prompt that often begins like an old one, and is often one again."""
        old = self.draw.choice(self.prompts)
        if old and self.draw.random() < 0.3:
            return old
        cut = self.draw.randrange(len(old) + 1)
        new = tuple(self.draw.randrange(2) for _ in range(self.draw.randrange(1, 12)))
        prompt = (old[:cut] + new)[:20]
        self.prompts.append(prompt)
        del self.prompts[1:-30]
        return prompt

    def begin(self) -> None:
        idle = [lane for lane in range(LANES) if lane not in self.model.lanes]
        if not idle:
            return
        lane, prompt = idle[0], self.prompt()
        identity = self.draw.choice(IDENTITIES)
        look = self.store.look(prompt, identity)
        best, pending = self.model.best(prompt, identity)
        assert (look.state, look.pending_at) == (best, pending)
        assert (look.miss is None) == (best is not None)
        need = len(prompt) // ROWS + self.draw.randrange(1, 5)
        if look.state is not None:
            assert look.at == len(self.model.states[look.state].tokens)
            self.store.borrow(look.state)
            self.model.states[look.state].borrows += 1
        placed = place(self.book, self.store, need, look.state)
        wanted = self.model.place(need, look.state)
        assert _as_model(placed) == wanted
        if placed is None:
            if look.state is not None:
                self.store.unborrow(look.state)
                self.model.states[look.state].borrows -= 1
            return
        pages = self.book.lease(lane, placed.count, placed.shared, near=placed.home)
        assert len(pages) == need
        assert {page % self.model.classes for page in pages} == {placed.home}
        if look.state is not None:
            self.away += placed.home != self.model.states[look.state].home
        self.model.lanes[lane] = Live(prompt, identity, frozenset(pages), look.state)
        if look.state is None:
            self.store.missed(look)
        else:
            restore = self.store.resume(look.state)
            self.model.touch(look.state)
            assert (restore.state, restore.at) == (look.state, look.at)
            assert self.known[look.state] == (restore.slot < 0)

    def keep(self) -> None:
        if not self.model.lanes:
            return
        lane = self.draw.choice(list(self.model.lanes))
        live = self.model.lanes[lane]
        marks = (len(live.prompt) - 1) // ROWS
        if marks < 1:
            return
        at = self.draw.randrange(1, marks + 1) * ROWS
        number = self.store.reserve(live.prompt, at, live.identity, lane)
        pages = frozenset(self.book.pages(lane)[: at // ROWS])
        new = Kept(
            -1 if number is None else number,
            live.identity,
            live.prompt[:at],
            Tier.SHARED,
            pages,
            lane,
            next(iter(pages)) % self.model.classes,
        )
        assert self.model.reserve(new) == (number is not None)

    def publish(self) -> None:
        filling = [one for one in self.model.states.values() if one.lane is not None]
        if not filling:
            return
        one = self.draw.choice(filling)
        save = self.store.save(one.id)
        assert (save.lane, save.at) == (one.lane, len(one.tokens))
        assert (save.slot < 0) == (one.tier is not Tier.SHARED)
        self.follow_moves()
        self.known[one.id] = save.slot < 0
        self.store.publish(one.id)
        one.lane = None
        self.model.touch(one.id)

    def first_step(self) -> None:
        """The step that restores a lane is done: the state it came from may go."""
        for live in self.model.lanes.values():
            if live.borrowed is not None:
                self.store.unborrow(live.borrowed)
                self.model.states[live.borrowed].borrows -= 1
                live.borrowed = None
                return

    def end(self, lane: int | None = None) -> None:
        if not self.model.lanes:
            return
        lane = self.draw.choice(list(self.model.lanes)) if lane is None else lane
        for state in self.store.pending(lane):
            self.store.abandon(state)
            del self.model.states[state]
        live = self.model.lanes.pop(lane)
        if live.borrowed is not None:
            self.store.unborrow(live.borrowed)
            self.model.states[live.borrowed].borrows -= 1
        self.book.release(lane)

    def follow_moves(self) -> None:
        """States come and go as the ranks would see them."""
        for move in self.store.moves():
            if isinstance(move, Drop):
                del self.known[move.state]
            else:
                assert isinstance(move, Demote)
                assert self.known[move.state] == (move.slot < 0)
                assert move.state in self.known
                self.known[move.state] = True

    def compare(self) -> None:
        self.follow_moves()
        self.book.check()
        self.store.check()
        model, stats = self.model, self.store.stats()
        assert [self.book.free_in(home) for home in model.ranks] == list(
            map(model.free, model.ranks)
        )
        for tier in Tier:
            mine = [one for one in model.states.values() if one.tier is tier]
            assert stats.states[tier] == sum(one.lane is None for one in mine), tier
            if tier is not Tier.SHARED:
                used = max(sum(one.size(rank) for one in mine) for rank in model.ranks)
                assert stats.bytes[tier] == used, tier
        assert set(self.store._states) == set(model.states)
        published = {
            one.id: one.tier is not Tier.SHARED for one in model.states.values() if one.lane is None
        }
        assert self.known == published


def _as_model(placed: Placed | None) -> tuple[int, frozenset[int]] | None:
    return None if placed is None else (placed.home, frozenset(placed.shared))


def follow(
    operations: int,
    seed: int,
    places: Places,
    *,
    classes: int = 1,
    shuffle: int | None = None,
    store: type[KeptStates] = KeptStates,
    book: type[PageBook] = PageBook,
) -> Player:
    """Play `operations` over `classes` of pages; returns the player, whose store has counted."""
    slots, budget, host = places.slots, places.budget, places.host
    trash = classes if classes > 1 else 0
    pages = book(PAGES + trash, classes=classes, shuffle=shuffle)
    kept = store(
        pages,
        ROWS,
        state_bytes=state_bytes,
        away_bytes=away_bytes,
        slots=slots,
        budget=budget,
        host=host,
    )
    player = Player(pages, kept, Model(slots, budget, host, classes), seed)
    player.play(operations)
    return player
