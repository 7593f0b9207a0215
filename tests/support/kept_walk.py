"""Random operations on a book and a store of kept states, beside the model of `kept_model.py`.

Whatever differs is an AssertionError, so that a planted fault must show.
"""

from __future__ import annotations

import random

from streamglm.pool.kept import KeptStates
from streamglm.pool.pages import PageBook
from streamglm.pool.placing import Placed, place
from streamglm.pool.states import Tier
from streamglm.step import Demote, Drop
from support.kept_model import (
    IDENTITIES,
    LANES,
    PAGES,
    ROWS,
    Kept,
    Live,
    Model,
    Places,
    away_bytes,
    state_bytes,
)


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
