"""Kept states in the rounds: who resumes from where, who waits for a prefix, and what is kept.

Owns, for each request from its first look to its end, what it borrows and the states it is to
fill, and it alone speaks with the store. Knows no queue and no ranks: it is asked before a start,
told of every step, and answers with what the step has to say. Invariant, by `check()`: a state is
borrowed only by a lane whose begin the ranks have not executed, and pending only for a lane that
is filling; so a request that ends, however it ends, leaves nothing behind.

A prompt that another lane is computing right now is worth waiting for, up to where both are the
same. Where no mark lies there yet, one is reserved.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from streamglm.clock import Clock
from streamglm.core.asked import Asked, places
from streamglm.core.lane import Lane, State
from streamglm.core.learning import Learning
from streamglm.core.shape import EngineShape
from streamglm.pool.identity import Identity
from streamglm.pool.kept import KeptStates
from streamglm.pool.marks import Seen, last_mark, marks
from streamglm.pool.pages import PageBook
from streamglm.pool.placing import Placed, carry_of, place
from streamglm.pool.prefix import chain, common_pages, root
from streamglm.pool.reasons import resumed
from streamglm.pool.spill import Disk
from streamglm.pool.states import Look, Tier
from streamglm.step import Arrive, Carry, Chunk, Put, Restore, Save, Step

MOST_READS = 2
"""States on the disk that a request tries to read before it computes."""
MOST_MARKS = 8
"""Of one lane, those that were reserved for others included."""

_log = logging.getLogger(__name__)


def _nothing(at: int) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class PromptCache:
    """What a server keeps prompts in; by default it keeps none."""

    slots: int = 0
    """Places of states that share pages; 0 copies rows instead."""
    budget: int = 0
    """Bytes of copies, without slots."""
    host: int = 0
    """Bytes of host memory behind either, for each rank."""
    state_bytes: Callable[[int], int] = _nothing
    """Bytes of a copied state at a mark."""
    away_bytes: Callable[[int], int] | None = None
    """The same on a rank that is not the state's home, with the latent split."""
    identity: Identity = field(default_factory=Identity)
    disk: Disk | None = None
    """What is behind all of them; None keeps nothing on a disk."""
    wait_seconds: float = 60.0
    """How long a request waits at most for a prefix that another computes; 0 is off."""


class Keeping:
    """The kept states of one engine, over its book."""

    def __init__(
        self, shape: EngineShape, book: PageBook, cache: PromptCache, clock: Clock
    ) -> None:
        self.kept = KeptStates(
            book,
            shape.page_rows,
            state_bytes=cache.state_bytes,
            away_bytes=cache.away_bytes,
            slots=cache.slots,
            budget=cache.budget,
            host=cache.host,
            now=clock.now,
        )
        page_bytes = cache.state_bytes(shape.page_rows) - cache.state_bytes(0)
        self.learning = Learning(cache.disk, self.kept, page_bytes)
        self._shape = shape
        self._book = book
        self._cache = cache
        self._clock = clock
        self._seen = Seen()
        self._asked: dict[Lane, Asked] = {}
        self._live: dict[int, Lane] = {}
        self._carries: dict[int, Carry] = {}
        """Of lanes that have begun and the ranks were not told."""
        self._returns = 0
        """Changes whenever pages or states come back that no version of the store tells of."""

    # -- before a start

    def waits(self, lane: Lane) -> bool:
        """Whether a waiting request had better wait for a prefix that another lane computes."""
        asked = self._known(lane)
        if not self._cache.wait_seconds or not asked.digests or self.kept.off:
            return False
        now = self._clock.now()
        if asked.until is not None and now >= asked.until:
            return False
        if not self._comes(asked) and not self._find_source(lane, asked):
            return False
        if asked.until is None:
            asked.until = now + self._cache.wait_seconds
        return True

    def lease(self, lane: Lane, index: int, need: int) -> tuple[int, ...] | None:
        """`need` pages for the lane `index`, those of the state it resumes from in front; kept
        states are evicted for the others. None when even that is not enough."""
        asked = self._known(lane)
        moment = (self.kept.version, self._returns, self.learning.version)
        if asked.short == moment:
            return None
        look = self._look(asked)
        asked.stored = self._stored(lane, asked, look)
        state = None if asked.stored else look.state
        if state is not None:
            self.kept.borrow(state)
        placed = self._place(need, state)
        if placed is None:
            if state is not None:
                self.kept.unborrow(state)
            asked.short = moment
            return None
        asked.borrowed = state
        return self._book.lease(index, placed.count, placed.shared, near=placed.home)

    # -- with a step

    def begin(self, lane: Lane, index: int, pages: tuple[int, ...]) -> Restore | Arrive | None:
        """`lane`, which has just leased `pages`, starts: from a state in memory or on the disk, or
        blank."""
        asked = self._asked[lane]
        look, now = asked.look, self._clock.now()
        assert look is not None, "a lane begins without a look"
        restore: Restore | Arrive | None = None
        start = asked.stored * self._shape.page_rows or look.at
        if asked.stored:
            lane.arrive(index, pages, now)
            restore = self._fetch(lane, asked, index)
        else:
            lane.begin(index, pages, now, start)
            _log.info("%s: %s", lane.request.id, look.line)
            if look.state is None:
                self.kept.missed(look)
            else:
                restore = self.kept.resume(look.state)
                self._carry(restore, index, pages)
        self._live[index] = lane
        asked.reach, asked.source = start, None
        if not self.kept.off:
            self._keep(lane, asked, start)
        return restore

    def _carry(self, restore: Restore, index: int, pages: tuple[int, ...]) -> None:
        rows, world = self._shape.page_rows, self._shape.classes
        carry = carry_of(self.kept, restore, index, pages, rows, world)
        if carry is not None:
            self._carries[index] = carry
            self.kept.counts.carried += 1

    def carries(self) -> tuple[Carry, ...]:
        """What the step with the begins since the last one has to carry. Empties the list."""
        carries = tuple(self._carries.values())
        self._carries.clear()
        return carries

    def _keep(self, lane: Lane, asked: Asked, start: int) -> None:
        """Make places for the states of a lane that goes on at `start`."""
        marks = self._marks(lane, asked, start)
        if asked.stored:  # others resume from what it reads
            marks = (start, *marks)
        for at in reversed(marks):
            if not self._reserve(lane, asked, at):
                self._learn(lane, asked, self.kept.found(asked.prompt, at, asked.identity), at)
        if asked.borrowed is not None:
            self._learn(lane, asked, asked.borrowed, start)

    def _fetch(self, lane: Lane, asked: Asked, index: int) -> Arrive:
        at = asked.stored * self._shape.page_rows
        _log.info(
            "%s: reads %s of %s tokens from the disk",
            lane.request.id,
            f"{at:,}",
            f"{len(asked.prompt):,}",
        )
        keys, tokens = asked.digests[: asked.stored], asked.prompt[:at].tobytes()
        return self.learning.fetch(lane, index, keys, asked.root, tokens)

    def returned(self, lane: Lane) -> None:
        """What `lane` waited for could not be read: it is to begin again, and finds another state
        or none. Its lane has still its number."""
        asked = self._asked[lane]
        for state in asked.marks.values():
            self.kept.abandon(state)
        asked.marks.clear()
        asked.reads += 1
        asked.stored = asked.reach = 0
        del self._live[lane.index]
        self._returns += 1

    def saves(self, puts: Iterable[Put], chunks: Iterable[Chunk]) -> tuple[Save, ...]:
        """What a step with these puts and chunks has to save after them."""
        saves = []
        ends = [(put.lane, put.stop * self._shape.page_rows) for put in puts if put.seal]
        ends += [(chunk.lane, chunk.start + len(chunk.tokens)) for chunk in chunks]
        for index, at in ends:
            asked = self._asked[self._live[index]]
            asked.reach = at
            state = asked.marks.get(at)
            if state is not None:
                saves.append(self.kept.save(state))
        return tuple(saves)

    def done(self, step: Step) -> None:
        """The ranks have executed `step`: what it restored may go, what it saved can be found."""
        for begin in step.begins:
            if isinstance(begin.restore, Restore):
                self._give_back(self._asked[self._live[begin.lane]])
        for put in step.puts:
            if put.seal:
                self._sealed(self._live[put.lane], put.stop * self._shape.page_rows)
        self.learning.taken(step.puts)
        self.learning.copied()
        for save in step.saves:
            lane = self._live[save.lane]
            asked = self._asked[lane]
            del asked.marks[save.at]
            self.kept.publish(save.state)
            self._learn(lane, asked, save.state, save.at)

    def _sealed(self, lane: Lane, at: int) -> None:
        """What `lane` waited for has come."""
        lane.seal(at)
        self.kept.counts.hits[Tier.DISK] += 1
        self.kept.counts.hit_tokens += at
        length = len(lane.request.prompt)
        _log.info("%s: %s", lane.request.id, resumed(Tier.DISK, at, length, 0, 0))

    def forget(self, lane: Lane) -> None:
        """A request has ended; its lane has still its number, if it had one."""
        asked = self._asked.pop(lane, None)
        if asked is None:
            return
        self._give_back(asked)
        for state in asked.marks.values():
            self.kept.abandon(state)
        if lane.index >= 0:
            self._carries.pop(lane.index, None)
            self.learning.forget(lane.index)
            del self._live[lane.index]
            self._returns += 1

    def check(self, lanes: Iterable[Lane]) -> None:
        """Prove the invariant for the waiting and live `lanes`, which are all; AssertionError says
        what broke."""
        self.kept.check()
        strangers = self._asked.keys() - set(lanes)
        assert not strangers, f"{len(strangers)} requests that ended are not forgotten"
        stats = self.kept.stats()
        self.learning.check()
        borrowed = sum(asked.borrowed is not None for asked in self._asked.values())
        borrowed += self.learning.borrowed
        assert all(lane in self._live for lane in self._carries), "a carry of an idle lane"
        assert stats.borrowed == borrowed, f"{stats.borrowed} borrows, {borrowed} are known"
        pending = 0
        for lane, asked in self._asked.items():
            live = lane.state in (State.RESTORING, State.FILLING)
            assert list(asked.marks) == [] or live, "marks of an idle lane"
            assert sorted(asked.marks) == lane.marks, f"marks {lane.marks}, states {asked.marks}"
            pending += len(asked.marks)
        assert stats.pending == pending, f"{stats.pending} pending states, {pending} are known"

    # -- inside

    def _known(self, lane: Lane) -> Asked:
        asked = self._asked.get(lane)
        if asked is None:
            identity = self._cache.identity.key(lane.request.salt)
            prompt = array("I", lane.request.prompt)
            pages = () if self.kept.off else chain(identity, prompt, self._shape.page_rows)
            asked = self._asked[lane] = Asked(identity, prompt, tuple(pages), root=root(identity))
        return asked

    def _stored(self, lane: Lane, asked: Asked, look: Look) -> int:
        """Pages of a state on the disk that reaches further than the one in memory; 0 without one,
        and when two could not be read already."""
        if asked.reads >= MOST_READS:
            return 0
        rows = self._shape.page_rows
        pages = self.learning.find(asked.digests, last_mark(len(lane.request.prompt), rows) // rows)
        return pages if pages * rows > look.at else 0

    def _place(self, need: int, state: int | None) -> Placed | None:
        """Where `need` pages are, whatever is kept; what waits to be copied for the disk goes
        last."""
        while (placed := place(self._book, self.kept, need, state)) is None:
            if not self.learning.give_way():
                return None
        return placed

    def _learn(self, lane: Lane, asked: Asked, state: int | None, at: int) -> None:
        """Write `state`, which is the prompt's at `at`, if it is one of those that are written."""
        if state is None or at not in asked.lessons:
            return
        if not self.learning.on or not lane.request.learn:
            return
        pages = at // self._shape.page_rows
        tokens = asked.prompt[:at].tobytes()
        self.learning.learn(state, asked.digests[:pages], asked.root, tokens)

    def _look(self, asked: Asked) -> Look:
        """What the store knows of the prompt, looked up when it may have changed."""
        if asked.look is None or asked.version != self.kept.version:
            asked.look = self.kept.look(asked.prompt, asked.identity)
            asked.version = self.kept.version
        return asked.look

    def _marks(self, lane: Lane, asked: Asked, start: int) -> tuple[int, ...]:
        prompt, rows = lane.request.prompt, self._shape.page_rows
        shared = self._seen.shared(asked.digests) * rows
        self._seen.add(asked.digests)
        turns = sorted(places(prompt, self._shape.turn_ids))
        # A turn's own mark moves with every turn, so that it is kept in memory and not written.
        lasting = turns[:1]
        asked.lessons = {last_mark(len(prompt), rows)}
        asked.lessons.update(marks(len(prompt), lasting, rows, shared=shared))
        return marks(len(prompt), turns, rows, start=start, shared=shared)

    def _reserve(self, lane: Lane, asked: Asked, at: int) -> bool:
        state = self.kept.reserve(asked.prompt, at, asked.identity, lane.index)
        if state is None:
            return False
        asked.marks[at] = state
        lane.mark(at)
        return True

    def _give_back(self, asked: Asked) -> None:
        if asked.borrowed is not None:
            self.kept.unborrow(asked.borrowed)
            asked.borrowed = None
            self._returns += 1

    def _comes(self, asked: Asked) -> bool:
        """Whether the prefix that is waited for is still on its way."""
        source = None if asked.source is None else self._asked.get(asked.source)
        return source is not None and asked.source_at in source.marks

    def _find_source(self, lane: Lane, asked: Asked) -> bool:
        """Choose the lane that computes the longest prefix of this prompt; false without any."""
        look = self._look(asked)
        asked.source, asked.source_at = None, look.at
        if look.pending_lane is not None:
            source = self._live[look.pending_lane]
            if _may_wait(lane, source):
                asked.source, asked.source_at = source, look.pending_at
        common = max(self._common(lane, asked), key=lambda one: one[0], default=None)
        if common is not None and common[0] > asked.source_at:
            at, source = common
            if self._reserve(source, self._asked[source], at):
                asked.source, asked.source_at = source, at
        return asked.source is not None

    def _common(self, lane: Lane, asked: Asked) -> Iterator[tuple[int, Lane]]:
        """Marks that filling lanes could still be given, as far as their prompts are this one."""
        rows = self._shape.page_rows
        most = last_mark(len(lane.request.prompt), rows)
        for other in self._live.values():
            theirs = self._asked[other]
            if other.state is not State.FILLING or len(theirs.marks) >= MOST_MARKS:
                continue
            at = common_pages(asked.digests, theirs.digests) * rows
            at = min(at, most, last_mark(len(other.request.prompt), rows))
            if at > theirs.reach and _may_wait(lane, other):
                yield at, other


def _may_wait(lane: Lane, source: Lane) -> bool:
    """Foreground does not wait for background, which may not get on."""
    return lane.request.background or not source.request.background
