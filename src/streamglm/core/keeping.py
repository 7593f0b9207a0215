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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from streamglm.clock import Clock
from streamglm.core.lane import Lane, State
from streamglm.core.shape import EngineShape
from streamglm.pool.identity import Identity
from streamglm.pool.kept import KeptStates
from streamglm.pool.marks import Seen, last_mark, marks
from streamglm.pool.pages import PageBook
from streamglm.pool.prefix import chain, common_pages
from streamglm.pool.states import Look
from streamglm.step import Chunk, Restore, Save, Step

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
    """Bytes of host memory behind either."""
    state_bytes: Callable[[int], int] = _nothing
    """Bytes of a copied state at a mark."""
    identity: Identity = field(default_factory=Identity)
    wait_seconds: float = 60.0
    """How long a request waits at most for a prefix that another computes; 0 is off."""


@dataclass(slots=True)
class _Asked:
    """What is known of one request."""

    identity: bytes
    prompt: array[int]
    """Packed once: its pages are compared as bytes."""
    digests: tuple[bytes, ...]
    """Of the prompt's whole pages."""
    look: Look | None = None
    version: int = -1
    """The store's at that look."""
    until: float | None = None
    """When it has waited long enough; None before its first wait."""
    source: Lane | None = None
    """Who computes the prefix that it waits for."""
    source_at: int = 0
    short: tuple[int, int] | None = None
    """The moment at which there were too few pages for it."""
    borrowed: int | None = None
    marks: dict[int, int] = field(default_factory=dict)
    """The states it is to fill, by their marks."""
    reach: int = 0
    """Rows of its prompt that are computed, or asked of the ranks."""


class Keeping:
    """The kept states of one engine, over its book."""

    def __init__(
        self, shape: EngineShape, book: PageBook, cache: PromptCache, clock: Clock
    ) -> None:
        self.kept = KeptStates(
            book,
            shape.page_rows,
            state_bytes=cache.state_bytes,
            slots=cache.slots,
            budget=cache.budget,
            host=cache.host,
            now=clock.now,
        )
        self._shape = shape
        self._book = book
        self._cache = cache
        self._clock = clock
        self._seen = Seen()
        self._asked: dict[Lane, _Asked] = {}
        self._live: dict[int, Lane] = {}
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
        moment = (self.kept.version, self._returns)
        if asked.short == moment:
            return None
        look = self._look(asked)
        shared: tuple[int, ...] = ()
        near = None
        if look.state is not None:
            self.kept.borrow(look.state)
            shared, near = self.kept.shared_pages(look.state), self.kept.home(look.state)
        count = need - len(shared)
        if not self.kept.make_room(count, near if shared else None):
            if look.state is not None:
                self.kept.unborrow(look.state)
            asked.short = moment
            return None
        asked.borrowed = look.state
        return self._book.lease(index, count, shared, near=near)

    # -- with a step

    def begin(self, lane: Lane, index: int, pages: tuple[int, ...]) -> Restore | None:
        """`lane`, which has just leased `pages`, starts: from a state, or blank."""
        asked = self._asked[lane]
        look, prompt = asked.look, lane.request.prompt
        assert look is not None, "a lane begins without a look"
        lane.begin(index, pages, self._clock.now(), look.at)
        self._live[index] = lane
        asked.reach, asked.source = look.at, None
        restore = None
        if look.state is None:
            self.kept.missed(look)
        else:
            restore = self.kept.resume(look.state)
        _log.info("%s: %s", lane.request.id, look.line)
        if not self.kept.off:
            for at in reversed(self._marks(prompt, asked, look.at)):
                self._reserve(lane, asked, at)
        return restore

    def saves(self, chunks: Iterable[Chunk]) -> tuple[Save, ...]:
        """What a step with these chunks has to save after them."""
        saves = []
        for chunk in chunks:
            asked = self._asked[self._live[chunk.lane]]
            asked.reach = chunk.start + len(chunk.tokens)
            state = asked.marks.get(asked.reach)
            if state is not None:
                saves.append(self.kept.save(state))
        return tuple(saves)

    def done(self, step: Step) -> None:
        """The ranks have executed `step`: what it restored may go, what it saved can be found."""
        for begin in step.begins:
            if begin.restore is not None:
                self._give_back(self._asked[self._live[begin.lane]])
        for save in step.saves:
            del self._asked[self._live[save.lane]].marks[save.at]
            self.kept.publish(save.state)

    def forget(self, lane: Lane) -> None:
        """A request has ended; its lane has still its number, if it had one."""
        asked = self._asked.pop(lane, None)
        if asked is None:
            return
        self._give_back(asked)
        for state in asked.marks.values():
            self.kept.abandon(state)
        if lane.index >= 0:
            del self._live[lane.index]
            self._returns += 1

    def check(self, lanes: Iterable[Lane]) -> None:
        """Prove the invariant for the waiting and live `lanes`, which are all; AssertionError says
        what broke."""
        self.kept.check()
        strangers = self._asked.keys() - set(lanes)
        assert not strangers, f"{len(strangers)} requests that ended are not forgotten"
        stats = self.kept.stats()
        borrowed = sum(asked.borrowed is not None for asked in self._asked.values())
        assert stats.borrowed == borrowed, f"{stats.borrowed} borrows, {borrowed} are known"
        pending = 0
        for lane, asked in self._asked.items():
            assert list(asked.marks) == [] or lane.state is State.FILLING, "marks of an idle lane"
            assert sorted(asked.marks) == lane.marks, f"marks {lane.marks}, states {asked.marks}"
            pending += len(asked.marks)
        assert stats.pending == pending, f"{stats.pending} pending states, {pending} are known"

    # -- inside

    def _known(self, lane: Lane) -> _Asked:
        asked = self._asked.get(lane)
        if asked is None:
            identity = self._cache.identity.key(lane.request.salt)
            prompt = array("I", lane.request.prompt)
            pages = () if self.kept.off else chain(identity, prompt, self._shape.page_rows)
            asked = self._asked[lane] = _Asked(identity, prompt, tuple(pages))
        return asked

    def _look(self, asked: _Asked) -> Look:
        """What the store knows of the prompt, looked up when it may have changed."""
        if asked.look is None or asked.version != self.kept.version:
            asked.look = self.kept.look(asked.prompt, asked.identity)
            asked.version = self.kept.version
        return asked.look

    def _marks(self, prompt: tuple[int, ...], asked: _Asked, start: int) -> tuple[int, ...]:
        rows = self._shape.page_rows
        shared = self._seen.shared(asked.digests) * rows
        self._seen.add(asked.digests)
        turns = sorted(places(prompt, self._shape.turn_ids))
        return marks(len(prompt), turns, rows, start=start, shared=shared)

    def _reserve(self, lane: Lane, asked: _Asked, at: int) -> bool:
        state = self.kept.reserve(asked.prompt, at, asked.identity, lane.index)
        if state is None:
            return False
        asked.marks[at] = state
        lane.mark(at)
        return True

    def _give_back(self, asked: _Asked) -> None:
        if asked.borrowed is not None:
            self.kept.unborrow(asked.borrowed)
            asked.borrowed = None
            self._returns += 1

    def _comes(self, asked: _Asked) -> bool:
        """Whether the prefix that is waited for is still on its way."""
        source = None if asked.source is None else self._asked.get(asked.source)
        return source is not None and asked.source_at in source.marks

    def _find_source(self, lane: Lane, asked: _Asked) -> bool:
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

    def _common(self, lane: Lane, asked: _Asked) -> Iterator[tuple[int, Lane]]:
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


def places(prompt: Sequence[int], ids: Iterable[int]) -> Iterator[int]:
    """Where `ids` stand in a prompt, each in ascending order."""
    for token in ids:
        place = -1
        try:
            while True:
                place = prompt.index(token, place + 1)
                yield place
        except ValueError:
            continue


def _may_wait(lane: Lane, source: Lane) -> bool:
    """Foreground does not wait for background, which may not get on."""
    return lane.request.background or not source.request.background
