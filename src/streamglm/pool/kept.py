"""Kept states: what was computed of a prompt, at its marks, for whoever comes with the same tokens.

Owns which states there are, in which tier each lies, who may be evicted, and why a prompt found
none. Knows the book of pages, and bytes by functions it is given; no torch, no lanes, no ranks:
what the ranks have to do is told as moves. Invariant, by `check()`: no tier holds more than it
was given, and the book keeps pages for the sharing states alone.

A state stands at a mark `at`, a whole number of pages, under an identity. Its life:

    absent --reserve--> pending --publish--> kept --evict--> kept in host memory, or absent
                        pending --abandon--> absent

A pending state has its place and its pages, is found by nobody and cannot be evicted; a borrowed
one cannot be evicted either. Of the states that may go, the least recently used goes first.

    tier      rows [0, at)                         fixed part
    shared    pages of the pool, by reference      a slot
    copied    a copy in the prompt cache's budget  with the copy
    host      a copy in host memory                with the copy
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence

from streamglm.pool.finding import Finder
from streamglm.pool.pages import PageBook, state_digest
from streamglm.pool.states import Counts, KeptStats, Look, Shown, State, Tier
from streamglm.pool.tiers import Budget, Slots
from streamglm.step import Demote, Drop, Move, Restore, Save

_COPIED, _HOST = -1, -2
"""Where a buffer lies, in a digest."""


class KeptStates:
    """The states of one server.

    `slots`: places of states that share pages; 0 copies rows into `budget` bytes instead. `host`:
    bytes of host memory behind either. `state_bytes`: bytes of a copied state at a mark, and
    `away_bytes` on a rank that is not its home. Bytes are one rank's. `now`: seconds, for the
    states' ages alone.
    """

    def __init__(
        self,
        book: PageBook,
        page_rows: int,
        *,
        state_bytes: Callable[[int], int],
        away_bytes: Callable[[int], int] | None = None,
        slots: int = 0,
        budget: int = 0,
        host: int = 0,
        ghosts: int = 4096,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = Counts()
        self.version = 0
        """Changes whenever `look` may answer otherwise: whoever waits need not look before."""
        self.digest = 0
        """64 bits over the published states, as the ranks know them once the moves are told."""
        self._book = book
        self._page_rows = page_rows
        self._state_bytes = state_bytes
        self._slots = Slots(slots)
        self._away_bytes = away_bytes or state_bytes
        self._budgets = {
            Tier.COPIED: Budget(0 if slots else budget, book.classes),
            Tier.HOST: Budget(host, book.classes),
        }
        self._finder = Finder(page_rows, ghosts)
        self._states: OrderedDict[int, State] = OrderedDict()
        """By id, the least recently used first."""
        self._next = 0
        self._clock = 0
        self._now = now
        self._moves: list[Move] = []

    # -- finding

    @property
    def off(self) -> bool:
        """Nothing can be kept."""
        return not self._slots.total and not any(one.total for one in self._budgets.values())

    def look(self, prompt: Sequence[int], identity: bytes) -> Look:
        """The longest kept state that is a strict prefix of `prompt`. Changes nothing."""
        return self._finder.look(prompt, identity, off=self.off)

    # -- resuming

    def borrow(self, state: int) -> None:
        """Nobody evicts `state` until it was given back as often as it was borrowed."""
        self._states[state].borrows += 1

    def unborrow(self, state: int) -> None:
        one = self._states[state]
        assert one.borrows, f"state {state} was given back more often than borrowed"
        one.borrows -= 1

    def shared_pages(self, state: int) -> tuple[int, ...]:
        """The pages that an heir of `state` leases by reference; none where rows are copied."""
        one = self._states[state]
        return self._book.kept_pages(state) if one.tier is Tier.SHARED else ()

    def home(self, state: int) -> int:
        """The class that an heir prefers."""
        return self._states[state].home

    def place(self, state: int) -> tuple[int, tuple[int, ...]]:
        """Where `state` lies: its slot and the pages that it shares, or -1 and none."""
        return self._states[state].slot, self.shared_pages(state)

    def found(self, prompt: Sequence[int], at: int, identity: bytes) -> int | None:
        """The published state of `prompt` at exactly `at`. Changes nothing."""
        return self._finder.found(prompt, at, identity)

    def resume(self, state: int) -> Restore:
        """A lane starts from `state`: what its begin has to say. The state must be borrowed until
        the step with that begin is done."""
        one = self._states[state]
        assert one.borrows, f"state {state} is resumed and not borrowed"
        self._touch(one)
        self.counts.hits[one.tier] += 1
        self.counts.hit_tokens += one.at
        return Restore(state, one.slot, one.at)

    def missed(self, look: Look) -> None:
        """Count a prompt that starts from nothing."""
        assert look.miss is not None, "a hit is counted when it is resumed"
        self.counts.misses[look.miss] += 1

    # -- keeping

    def reserve(self, prompt: Sequence[int], at: int, identity: bytes, lane: int) -> int | None:
        """Make a place for the state of `prompt` at the mark `at`, which `lane` will compute.

        Returns its number, or None when it is known already, or no place can be made: everything
        that would have to go is in use, or the state is larger than all there is.
        """
        pages = at // self._page_rows
        assert at >= self._page_rows, f"{at} is no mark"
        assert at % self._page_rows == 0, f"{at} is no mark"
        node = self._finder.place(prompt, identity, pages)
        if node.value is not None:
            self.counts.known += 1
            if node.value.published:
                self._touch(node.value)
            return None
        one = State(self._next, node, at, lane)
        node.value = one
        if not self._settle(one, self._book.pages(lane)[:pages]):
            self._finder.forget(node)
            self.counts.refused += 1
            return None
        self._next += 1
        self.version += 1
        self._states[one.id] = one
        return one.id

    def save(self, state: int) -> Save:
        """What a step has to say to fill `state`: after its prompt pass, the lane stands there."""
        one = self._states[state]
        assert not one.published, f"state {state} is filled twice"
        return Save(state, one.lane, one.slot, one.tier is Tier.HOST, one.at)

    def publish(self, state: int) -> None:
        """The step that fills `state` is done: it can be found."""
        one = self._states[state]
        assert not one.published, f"state {state} is published twice"
        one.published, one.lane, one.born = True, -1, self._now()
        self.version += 1
        self._touch(one)
        self._tell(one)
        self.counts.kept += 1

    def abandon(self, state: int) -> None:
        """`state` will not be filled: its lane ended. It must be pending."""
        one = self._states[state]
        assert not one.published, f"state {state} is kept, and not pending"
        self._forget(one)
        self.counts.abandoned += 1

    def pending(self, lane: int) -> list[int]:
        """The states that `lane` is to fill, by their marks."""
        found = [one for one in self._states.values() if one.lane == lane]
        return [one.id for one in sorted(found, key=lambda one: one.at)]

    # -- making room

    def make_room(self, count: int, near: int | None = None) -> bool:
        """Evict until `count` pages are free in one class, `near` if it is given.

        False, with nothing evicted, when all that may go would not be enough: the request waits
        for a lease to end.
        """
        book = self._book
        homes = range(book.classes) if near is None else (near,)
        if any(book.free_in(home) >= count for home in homes):
            return True
        states = [one.id for one in self._evictable(Tier.SHARED)]
        spare = book.spare(states)
        gains = Counter(page % book.classes for page in spare)
        home = max(homes, key=lambda one: (book.free_in(one) + gains[one], -one))
        if book.free_in(home) + gains[home] < count:
            return False
        for state in states:
            if book.free_in(home) >= count:
                break
            mine = (page for page in book.kept_pages(state) if page % book.classes == home)
            if any(page in spare for page in mine):
                self._evict(self._states[state])
        return True

    def moves(self) -> tuple[Move, ...]:
        """What the next step has to say before its begins. Empties the list."""
        moves = tuple(self._moves)
        self._moves.clear()
        return moves

    def clear(self, keys: Collection[bytes] | None = None) -> None:
        """Evict all that may go, to nothing; with `keys`, only states at these digests of a
        prompt's chain."""
        for one in [one for one in self._states.values() if one.evictable]:
            if keys is None or one.node.digest in keys:
                self._gone(one)

    def _settle(self, one: State, pages: tuple[int, ...]) -> bool:
        """Give a new state its place: in a slot, in the budget, or in host memory at once."""
        one.home = pages[0] % self._book.classes
        if self._slots.free or (self._slots.total and self._evict_oldest()):
            one.tier, one.slot = Tier.SHARED, self._slots.take()
            self._book.keep(one.id, pages)
            return True
        return any(self._buy(one, tier, self._clock + 1) for tier in (Tier.COPIED, Tier.HOST))

    def _buy(self, one: State, tier: Tier, before: int) -> bool:
        """Place `one` in `tier`, evicting states last used before `before`, the oldest first;
        false, with nothing evicted, when that would not be enough."""
        budget, sizes = self._budgets[tier], self._sizes(one)
        oldest = []
        room = budget.free
        for other in self._evictable(tier):
            if _fits(sizes, room) or other.used >= before:
                break
            oldest.append(other)
            room = [free + size for free, size in zip(room, self._sizes(other), strict=True)]
        if not _fits(sizes, room):
            return False
        for other in oldest:
            self._evict(other)
        budget.take(sizes)
        one.tier, one.size = tier, sizes[one.home]
        return True

    def _sizes(self, one: State) -> list[int]:
        """Bytes of a copy on each rank: its home alone has latent rows of it."""
        sizes = [self._away_bytes(one.at)] * self._book.classes
        sizes[one.home] = self._state_bytes(one.at)
        return sizes

    def _evictable(self, tier: Tier) -> Iterator[State]:
        return (one for one in self._states.values() if one.tier is tier and one.evictable)

    def _evict_oldest(self) -> bool:
        """Free a slot, if the state in one of them may go."""
        oldest = next(self._evictable(Tier.SHARED), None)
        if oldest is not None:
            self._evict(oldest)
        return oldest is not None

    def _evict(self, one: State) -> None:
        """Off the device: into host memory if it has room among what is older, else gone."""
        if one.tier is Tier.HOST or not self._demote(one):
            self._gone(one)

    def _demote(self, one: State) -> bool:
        tier, slot = one.tier, one.slot
        if not self._buy(one, Tier.HOST, one.used):
            return False
        pages = self._book.kept_pages(one.id) if tier is Tier.SHARED else ()
        self._moves.append(Demote(one.id, slot, one.at, pages))
        self._leave(one, tier, slot)
        one.slot = -1
        self._tell(one)
        self.counts.demoted += 1
        return True

    def _gone(self, one: State) -> None:
        self.counts.evicted[one.tier] += 1
        self._finder.remember(one.node)
        self._forget(one)

    def _forget(self, one: State) -> None:
        if one.published:
            self._moves.append(Drop(one.id))
            self.digest ^= one.digest
        self._leave(one, one.tier, one.slot)
        self._finder.forget(one.node)
        self.version += 1
        del self._states[one.id]

    def _leave(self, one: State, tier: Tier, slot: int) -> None:
        """Give back what `one` holds in `tier`."""
        if tier is Tier.SHARED:
            self._slots.give(slot)
            self._book.drop(one.id)
        else:
            self._budgets[tier].give(self._sizes(one))

    def _touch(self, one: State) -> None:
        self._clock += 1
        one.used, one.used_at = self._clock, self._now()
        self._states.move_to_end(one.id)

    def _tell(self, one: State) -> None:
        """The ranks will know where `one` lies now."""
        self.digest ^= one.digest ^ self._digest_of(one)
        one.digest = self._digest_of(one)

    def _digest_of(self, one: State) -> int:
        if one.tier is Tier.SHARED:
            pages = self._book.kept_pages(one.id)
            return state_digest(one.id, one.slot, one.at, pages, one.home)
        place = _HOST if one.tier is Tier.HOST else _COPIED
        return state_digest(one.id, place, one.at, (), one.home)

    # -- telling

    def stats(self) -> KeptStats:
        slot_bytes = self._state_bytes(0)
        pooled = self._away_bytes(self._page_rows) - slot_bytes
        latent = self._state_bytes(self._page_rows) - slot_bytes - pooled
        pages = [one.kept for one in self._book.stats().classes]
        tiers = Counter(one.tier for one in self._states.values() if one.published)
        shared = (self._slots.total - self._slots.free) * slot_bytes
        return KeptStats(
            states={tier: tiers[tier] for tier in Tier},
            bytes={
                Tier.DISK: 0,
                Tier.SHARED: shared + sum(pages) * pooled + max(pages) * latent,
                **{tier: budget.used for tier, budget in self._budgets.items()},
            },
            pending=sum(not one.published for one in self._states.values()),
            borrowed=sum(one.borrows for one in self._states.values()),
            slots=self._slots.total,
            slots_free=self._slots.free,
        )

    def show(self) -> Iterator[Shown]:
        """The published states, the least recently used first."""
        now = self._now()
        for one in self._states.values():
            if one.published:
                size = self._state_bytes(0) if one.tier is Tier.SHARED else one.size
                ages = now - one.born, now - one.used_at
                yield Shown(one.at, size, one.tier, bool(one.borrows), *ages, one.home)

    def check(self) -> None:
        """Prove the invariant; AssertionError says what broke. The book checks itself."""
        self._finder.check()
        slots = []
        sizes = {tier: [0] * self._book.classes for tier in self._budgets}
        used = digest = 0
        for number, one in self._states.items():
            assert one.id == number, f"state {number} calls itself {one.id}"
            assert one.node.value is one, f"state {number} is not at its node"
            assert one.at == one.node.depth * self._page_rows, f"state {number} is at {one.at}"
            assert one.published == (one.lane < 0), f"state {number} is filled by lane {one.lane}"
            if one.tier is Tier.SHARED:
                slots.append(one.slot)
                assert len(self._book.kept_pages(number)) == one.node.depth
            else:
                assert one.size == self._state_bytes(one.at), f"state {number}: {one.size} bytes"
                held = zip(sizes[one.tier], self._sizes(one), strict=True)
                sizes[one.tier] = [before + size for before, size in held]
            if one.published:
                assert one.used > used, f"state {number} is out of the order of use"
                used = one.used
                digest ^= self._digest_of(one)
        assert digest == self.digest, "the digest is not the states'"
        assert len(set(slots)) == len(slots), f"two states in one slot: {sorted(slots)}"
        assert len(slots) + self._slots.free == self._slots.total, "a slot is lost"
        assert self._book.stats().keeps == len(slots), (
            "the book keeps pages for a state that is not"
        )
        for tier, budget in self._budgets.items():
            free = [budget.total - size for size in sizes[tier]]
            assert free == budget.free, f"{tier}: {budget.free} bytes free, not {free}"
            assert min(free) >= 0, f"{tier}: {budget.used} bytes of {budget.total}"


def _fits(sizes: Sequence[int], room: Sequence[int]) -> bool:
    return all(size <= free for size, free in zip(sizes, room, strict=True))
