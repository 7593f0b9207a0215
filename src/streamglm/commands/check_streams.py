"""Streams driven by hand over ranks, with the server's own book and kept states.

Owns the order of a check's steps: which chunk, which row, which mark comes when is said by the
caller, not by a scheduler. Knows no torch, and ranks only as whoever runs a step. Invariant: after
`close` the book is idle and the ranks hold nothing, or `close` says what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from streamglm.model.spec import Rows
from streamglm.pool.kept import KeptStates
from streamglm.pool.layout import CacheShape, pages_for
from streamglm.pool.pages import PageBook
from streamglm.pool.placing import Placed, carry_of, place
from streamglm.pool.states import Tier
from streamglm.step import Begin, Carry, Chunk, Draw, Drawn, Restore, Row, Step, StepResult

IDENTITY = b"check"


class Runs(Protocol):
    """Ranks, or whoever stands for them."""

    async def run(self, step: Step, digest: int) -> StepResult:
        """Execute `step`."""
        ...


@dataclass(frozen=True, slots=True)
class Store:
    """Where streams keep their prompts: in slots with shared pages, or as copies."""

    slots: int = 0
    budget: int = 0
    """Bytes of copies, without slots."""
    host: int = 0
    """Bytes of copies in host memory, for what leaves either."""


@dataclass(slots=True)
class _Stream:
    """One lane at work."""

    prompt: tuple[int, ...]
    sizes: tuple[int, ...]
    position: int
    """Rows computed."""
    marks: dict[int, int]
    """The states that are to be kept on the way, by their marks."""
    cut: int = 0
    """Chunks so far."""

    @property
    def filling(self) -> bool:
        return self.position < len(self.prompt)

    def chunk(self, lane: int, most: int, grid: int) -> Chunk | None:
        """The next part of the prompt: of the next size and up to the next mark, at most `most`
        rows, and on the grid but for its end; None where nothing is left."""
        rest = len(self.prompt) - self.position
        size = self.sizes[min(self.cut, len(self.sizes) - 1)] if self.sizes else most
        rows = min(size, most, rest, *(at - self.position for at in self.marks))
        if rows < rest:
            rows = rows // grid * grid
        if not rows:
            return None
        start = self.position
        return Chunk(lane, start, self.prompt[start : start + rows], last=rows == rest)


@dataclass(slots=True)
class _Told:
    """What the next step has to say first."""

    ends: list[int] = field(default_factory=list)
    begins: list[Begin] = field(default_factory=list)
    carries: list[Carry] = field(default_factory=list)
    borrowed: list[int] = field(default_factory=list)


class Streams:
    """Lanes over `pages` page ids, in `classes` of which each ends in a page that nobody leases.

    With `window`, every lane leases so many pages in order, as without paging; else ids come in an
    order that nothing can assume. `rows` has the most of a prompt pass, and its grid.
    """

    def __init__(
        self,
        ranks: Runs,
        shape: CacheShape,
        *,
        pages: int,
        rows: Rows,
        store: Store,
        window: int | None = None,
        classes: int = 1,
        seed: int = 1,
    ) -> None:
        self.book = PageBook(pages, classes=classes, shuffle=None if window else seed)
        self.kept = KeptStates(
            self.book,
            rows.page,
            state_bytes=shape.kept_bytes,
            slots=store.slots,
            budget=store.budget,
            host=store.host,
        )
        self.pages = self.book.funded
        self._ranks = ranks
        self._rows = rows
        self._window = window
        self._live: dict[int, _Stream] = {}
        self._told = _Told()

    def begin(
        self,
        lane: int,
        prompt: Sequence[int],
        *,
        room: int = 64,
        keep: Collection[int] = (),
        sizes: Sequence[int] = (),
        resume: bool = True,
        seed: int = 0,
        drafts: bool = False,
        home: int | None = None,
    ) -> int:
        """`lane` starts with the next step: with room for `room` tokens behind the prompt, keeping
        its state at the marks `keep`, in chunks of `sizes` (the last one over and over).

        Returns the tokens that it resumes from; 0 is what it resumes without `resume`. With
        `drafts` the next-token layer follows it. `home` is the class of its pages, where it
        must not be chosen; what it resumes from is carried there.
        """
        tokens = tuple(prompt)
        restore = self._resumed(tokens) if resume else None
        need = self._window or pages_for(len(tokens) + room, self._rows.page)
        state = None if restore is None else restore.state
        if home is None:
            placed = place(self.book, self.kept, need, state)
        else:
            placed = self._placed(home, need, state)
        assert placed, f"{need} pages for lane {lane}: the pool is too small for this check"
        pages = self.book.lease(lane, placed.count, placed.shared, near=placed.home)
        if restore is not None:
            world = self.book.classes
            carry = carry_of(self.kept, restore, lane, pages, self._rows.page, world)
            self._told.carries += [] if carry is None else [carry]
        at = 0 if restore is None else restore.at
        self._live[lane] = stream = _Stream(tokens, tuple(sizes), at, {})
        for mark in sorted(keep):
            state = self.kept.reserve(tokens, mark, IDENTITY, lane) if mark > at else None
            if state is not None:
                stream.marks[mark] = state
        draw = Draw(0.0, 0, 1.0, 0.0, seed)
        self._told.begins.append(Begin(lane, pages, draw, restore, drafts=drafts))
        return at

    def _placed(self, home: int, need: int, state: int | None) -> Placed:
        """In a class that was not chosen: what lies there is shared."""
        if state is None or self.kept.home(state) != home:
            return Placed(home, need)
        shared = self.kept.shared_pages(state)
        return Placed(home, need - len(shared), shared)

    def _resumed(self, prompt: tuple[int, ...]) -> Restore | None:
        look = self.kept.look(prompt, IDENTITY)
        if look.state is None:
            return None
        self.kept.borrow(look.state)
        self._told.borrowed.append(look.state)
        return self.kept.resume(look.state)

    async def step(
        self, fill: Collection[int] = (), rows: Mapping[int, int] | None = None
    ) -> dict[int, int]:
        """One step: the next chunk of each lane of `fill`, as far as a pass has rows, and a row of
        each of `rows`, lane to token; with whatever was begun or ended before. Returns the numbers
        that came back, by lane: for the end of a prompt, and for every row."""
        found = await self._run(
            self._chunks(fill),
            [Row(lane, self._live[lane].position, token) for lane, token in (rows or {}).items()],
        )
        return {drawn.lane: drawn.tokens[0] for drawn in found}

    async def draw(self, lane: int, *, ahead: int = 0) -> Drawn:
        """The rest of a prompt, and what is drawn behind it, with `ahead` drafts."""
        while True:
            chunks = [
                msgspec.structs.replace(one, ahead=ahead if one.last else 0)
                for one in self._chunks((lane,))
            ]
            for drawn in await self._run(chunks, []):
                return drawn

    async def verify(
        self, lane: int, token: int, drafts: Sequence[int] = (), *, ahead: int = 0
    ) -> Drawn:
        """A window of `token` and `drafts`, and `ahead` drafts behind what it draws."""
        row = Row(lane, self._live[lane].position, token, tuple(drafts), ahead)
        (drawn,) = await self._run([], [row])
        return drawn

    async def _run(self, chunks: Sequence[Chunk], rows: Sequence[Row]) -> tuple[Drawn, ...]:
        """One step, with whatever was begun or ended before."""
        step = Step(
            ends=tuple(self._told.ends),
            moves=self.kept.moves(),
            begins=tuple(self._told.begins),
            carries=tuple(self._told.carries),
            chunks=tuple(chunks),
            saves=tuple(self.kept.save(state) for state in self._saved(chunks)),
            rows=tuple(rows),
        )
        result = await self._ranks.run(step, self.book.digest() ^ self.kept.digest)
        self._done(step, {drawn.lane: len(drawn.tokens) for drawn in result.drawn})
        return result.drawn

    def _chunks(self, fill: Collection[int]) -> list[Chunk]:
        found, left = [], self._rows.chunk
        for lane in fill:
            chunk = self._live[lane].chunk(lane, left, self._rows.kda_chunk)
            if chunk is not None:
                found.append(chunk)
                left -= len(chunk.tokens)
        return found

    def _saved(self, chunks: Sequence[Chunk]) -> Iterator[int]:
        for chunk in chunks:
            state = self._live[chunk.lane].marks.get(chunk.start + len(chunk.tokens))
            if state is not None:
                yield state

    def _done(self, step: Step, drawn: Mapping[int, int]) -> None:
        for state in self._told.borrowed:
            self.kept.unborrow(state)
        self._told = _Told()
        for chunk in step.chunks:
            stream = self._live[chunk.lane]
            stream.position += len(chunk.tokens)
            stream.cut += 1
        for save in step.saves:
            del self._live[save.lane].marks[save.at]
            self.kept.publish(save.state)
        for row in step.rows:
            self._live[row.lane].position += drawn[row.lane]

    async def fill(self, *lanes: int) -> dict[int, int]:
        """The prompts of `lanes` to their ends, one lane after the other."""
        found: dict[int, int] = {}
        for lane in lanes:
            while self._live[lane].filling:
                found |= await self.step(fill=(lane,))
        return found

    def end(self, lane: int) -> None:
        """`lane` ends with the next step; its pages are free at once."""
        for state in self._live.pop(lane).marks.values():
            self.kept.abandon(state)
        self.book.release(lane)
        self._told.ends.append(lane)

    def demote(self) -> int:
        """Every kept state leaves the device, with the next step; how many are in host memory."""
        assert self.kept.make_room(self.book.capacity), "a lane holds pages"
        return self.kept.stats().states[Tier.HOST]

    async def close(self) -> None:
        """Drop what is kept and prove that nothing is left. AssertionError says what is."""
        self.kept.clear()
        await self.step()
        self.check()
        stats = self.book.stats()
        assert (stats.free, stats.leases, stats.keeps) == (self.pages, 0, 0), f"not idle: {stats}"
        assert not self._live, f"lanes {sorted(self._live)} are live"
        assert not self.book.digest() ^ self.kept.digest, "the digest of nothing is not 0"

    def check(self) -> None:
        """Prove the book's invariant and the store's."""
        self.book.check()
        self.kept.check()
