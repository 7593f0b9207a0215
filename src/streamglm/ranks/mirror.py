"""A rank's own account of the lanes: what a step must fit before anything is touched.

Owns, for each lane that was begun, its pages and its next position. Knows no tensors, so that a
fake rank checks as a real one does; kept states are `keeps.py`. `check` raises by name and changes
nothing; `apply` follows a step that was checked and executed. There is no free page here: a rank
writes the ids that it is sent. `ResidueMismatch` is a page of another class than the lane's owner,
`RanksDiffer` another book than this side's, and `BadStep` all else. A step that passes means the
same to server and rank:

    pages      in range, no trash page, of one class, in no lane twice; held by nobody else, but for
               those in front that the lane shares with the state it restores
    draws      have parameters and a history that a sampler can use
    puts       go on where the last put of a lane ended that waits for the disk, up to its mark
    chunks     start where the lane's prompt stands, on the grid; the lane is still filling
    saves      of a lane that is filling and stands at the mark, a whole number of pages
    rows       stand at the lane's next position; its prompt is complete
    drafts     are asked of the next-token layer for lanes that it follows, and fit the pages
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from streamglm.errors import BadStep, RanksDiffer, ResidueMismatch
from streamglm.pool.owners import owner_of, stray
from streamglm.pool.pages import lease_digest
from streamglm.ranks.keeps import (
    Kept,
    States,
    after_moves,
    check_arrive,
    check_carries,
    check_restore,
    check_saves,
    check_writes,
    given_up,
    saved,
)
from streamglm.ranks.wire import SpecNumbers
from streamglm.step import (
    Arrive,
    Begin,
    Chunk,
    Drawn,
    Put,
    Restore,
    Row,
    Save,
    Step,
    fault_of,
    seen_fault,
)


class _Held:
    """A lane that was begun: rows `[0, position)` are computed, or restored."""

    __slots__ = ("arrives", "drafts", "filling", "pages", "position")

    def __init__(self, begin: Begin) -> None:
        self.pages = begin.pages
        self.position = begin.restore.at if isinstance(begin.restore, Restore) else 0
        self.arrives = begin.restore if isinstance(begin.restore, Arrive) else None
        """What it waits for before it computes."""
        self.filling = True
        self.drafts = begin.drafts

    def reach(self, stop: int, ahead: int) -> int:
        """The end of the rows that may be written with a lane's rows up to `stop`: the next-token
        layer has a row for each drawn token, and one for each draft but the last."""
        return stop + max(1, ahead) if self.drafts else stop


class Mirror:
    """The lanes 0 to `lanes - 1` over the pages 0 to `pages - 1`, and what is kept in the slots 0
    to `slots - 1` or in buffers. With several `classes` the last page of each is its trash page."""

    def __init__(
        self, spec: SpecNumbers, pages: int, lanes: int, slots: int = 0, classes: int = 1
    ) -> None:
        self._spec = spec
        self._pages = pages - classes if classes > 1 else pages
        self._classes = classes
        self._lanes = lanes
        self._slots = slots
        self._held: dict[int, _Held] = {}
        self._kept: dict[int, Kept] = {}
        self._mapped: Counter[int] = Counter()
        """Lanes that hold a page, by its id."""
        self._sharing: Counter[int] = Counter()
        """Kept states that hold a page, by its id."""
        self._digest = 0

    @property
    def live(self) -> tuple[int, ...]:
        """The lanes that are begun and not ended."""
        return tuple(self._held)

    @property
    def mapped_pages(self) -> int:
        return len(self._mapped)

    @property
    def kept(self) -> States:
        """The states that are kept, by number."""
        return self._kept

    def check(self, step: Step, digest: int) -> None:
        """Raise, naming lane, page or position, unless the whole step fits."""
        _once("ended", step.ends)
        _once("begun", [begin.lane for begin in step.begins])
        _once("computed", [*_lanes(step.puts), *_lanes(step.chunks), *_lanes(step.rows)])
        for lane in step.ends:
            if lane not in self._held:
                raise BadStep(f"lane {lane} is ended, but it was never begun")
        states = after_moves(self._kept, step.moves)
        begun = self._check_begins(step, states)
        check_carries(states, step, self._spec.page_rows, self._classes)
        self._check_digest(step, states, digest)
        for put in step.puts:
            self._check_put(put, self._lane(put.lane, step.ends, begun))
        for chunk in step.chunks:
            self._check_chunk(chunk, self._lane(chunk.lane, step.ends, begun))
        check_writes(states, step.writes)
        check_saves(states, step.saves, self._slots)
        for save in step.saves:
            self._check_save(save, step, self._lane(save.lane, step.ends, begun))
        for row in step.rows:
            self._check_row(row, self._lane(row.lane, step.ends, begun))
        self._check_sizes(step)

    def apply(self, step: Step, drawn: Sequence[Drawn] = ()) -> None:
        """The step was executed and drew `drawn`: follow it. A row without drafts draws one token,
        so that steps without drafts can be followed without it."""
        states = after_moves(self._kept, step.moves)
        self._digest = self._digest_after(step, states)
        for lane in step.ends:
            _take(self._mapped, self._held.pop(lane).pages)
        _take(self._sharing, given_up(self._kept, states))
        self._kept = dict(states)
        for begin in step.begins:
            self._held[begin.lane] = _Held(begin)
            self._mapped.update(begin.pages)
        for put in step.puts:
            held = self._held[put.lane]
            held.position = put.stop * self._spec.page_rows
            held.arrives = None if put.seal else held.arrives
        for chunk in step.chunks:
            held = self._held[chunk.lane]
            held.position += len(chunk.tokens)
            held.filling = not chunk.last
        for save in step.saves:
            pages = self._held[save.lane].pages
            self._keep(saved(save, pages, self._spec.page_rows, self._classes))
        counts = {one.lane: len(one.tokens) for one in drawn}
        for row in step.rows:
            self._held[row.lane].position += counts.get(row.lane, 1)

    def _keep(self, kept: Kept) -> None:
        self._kept[kept.number] = kept
        self._sharing.update(kept.pages)
        self._digest ^= kept.digest

    def _digest_after(self, step: Step, states: States) -> int:
        """The digest after the step's ends, moves and begins; `states` are those of then."""
        digest = self._digest
        for lane in step.ends:
            digest ^= lease_digest(lane, self._held[lane].pages)
        for number in {move.state for move in step.moves}:
            digest ^= self._kept[number].digest
            digest ^= states[number].digest if number in states else 0
        for begin in step.begins:
            digest ^= lease_digest(begin.lane, begin.pages)
        return digest

    def _check_digest(self, step: Step, states: States, digest: int) -> None:
        own = self._digest_after(step, states)
        if own != digest:
            raise RanksDiffer(f"the book's digest is {digest:016x}, this rank has {own:016x}")

    def _check_begins(self, step: Step, states: States) -> dict[int, _Held]:
        if not step.begins:
            return {}
        ended = set(step.ends)
        mapped = self._mapped - Counter(p for lane in ended for p in self._held[lane].pages)
        sharing = self._sharing - Counter(given_up(self._kept, states))
        for begin in step.begins:
            self._check_begin(begin, ended)
            shared = self._shared(begin, states)
            for page in begin.pages[shared:]:
                self._check_page(begin.lane, page, mapped, sharing)
            mapped.update(begin.pages)
        return {begin.lane: _Held(begin) for begin in step.begins}

    def _shared(self, begin: Begin, states: States) -> int:
        """How many pages of `begin`, its first, others may hold."""
        if isinstance(begin.restore, Arrive):
            check_arrive(begin, begin.restore, self._spec.page_rows)
            return 0
        if begin.restore is None:
            return 0
        owner = owner_of(begin.pages, self._classes)
        return check_restore(states, begin, begin.restore, self._spec.page_rows, owner)

    def _check_begin(self, begin: Begin, ended: set[int]) -> None:
        lane = begin.lane
        if not 0 <= lane < self._lanes:
            raise BadStep(f"lane {lane} is begun, but this rank has {self._lanes} lanes")
        if lane in self._held and lane not in ended:
            raise BadStep(f"lane {lane} is begun twice")
        if not begin.pages:
            raise BadStep(f"lane {lane} is begun without a page")
        _once(f"mapped by lane {lane}", begin.pages, "page")
        owner = owner_of(begin.pages, self._classes)
        if (page := stray(begin.pages, owner, self._classes)) is not None:
            raise ResidueMismatch(
                f"lane {lane}: page {page} is rank {page % self._classes}'s, but its first page is "
                f"rank {owner}'s"
            )
        vocab = self._spec.vocab_size
        if fault := fault_of(begin.draw, vocab) or seen_fault(begin, vocab):
            raise BadStep(f"lane {lane} is begun, but {fault}")

    def _check_page(
        self, lane: int, page: int, mapped: Counter[int], sharing: Counter[int]
    ) -> None:
        """A page of `lane` alone."""
        if not 0 <= page < self._pages:
            raise BadStep(f"lane {lane}: page {page} is out of range 0 to {self._pages}")
        if mapped[page]:
            raise BadStep(f"lane {lane}: page {page} is mapped by another lane")
        if sharing[page]:
            raise BadStep(f"lane {lane}: page {page} is held by a kept state")

    def _lane(self, lane: int, ends: tuple[int, ...], begun: dict[int, _Held]) -> _Held:
        held = begun.get(lane)
        if held is None and lane not in ends:
            held = self._held.get(lane)
        if held is None:
            raise BadStep(f"lane {lane} is unknown to this rank")
        return held

    def _check_put(self, put: Put, held: _Held) -> None:
        name = f"lane {put.lane}: pages {put.first} to {put.stop} of job {put.job} are put"
        rows = self._spec.page_rows
        if held.arrives is None or held.arrives.job != put.job:
            raise BadStep(f"{name}, but it does not wait for them")
        at = held.arrives.at
        if put.first * rows != held.position or not put.first <= put.stop <= at // rows:
            raise BadStep(f"{name}, but it has {held.position} rows of {at}")
        if put.seal and put.stop * rows != at:
            raise BadStep(f"{name} and it is sealed, but its mark is {at}")

    def _check_chunk(self, chunk: Chunk, held: _Held) -> None:
        name = f"lane {chunk.lane}: chunk at {chunk.start}"
        stop = chunk.start + len(chunk.tokens)
        if held.arrives is not None:
            raise BadStep(f"{name}, but it waits for the disk")
        if not held.filling:
            raise BadStep(f"{name}, but its prompt is complete")
        if chunk.start != held.position:
            raise BadStep(f"{name}, but its next row is {held.position}")
        if not chunk.tokens:
            raise BadStep(f"{name} holds no row")
        if not chunk.last and stop % self._spec.kda_chunk:
            raise BadStep(f"{name} ends at {stop}, off the grid of {self._spec.kda_chunk}")
        self._check_tokens(name, chunk.tokens)
        self._check_ahead(name, chunk.ahead, held)
        if chunk.ahead and not chunk.last:
            raise BadStep(f"{name} asks for drafts in the middle of a prompt")
        self._check_room(name, held.reach(stop, chunk.ahead) if chunk.last else stop, held)

    def _check_save(self, save: Save, step: Step, held: _Held) -> None:
        name = f"lane {save.lane} is kept at {save.at}"
        position, filling = held.position, held.filling
        arrives = held.arrives is not None
        for put in step.puts:
            if put.lane == save.lane:
                position, arrives = put.stop * self._spec.page_rows, not put.seal
        if arrives:
            raise BadStep(f"{name}, but it waits for the disk")
        for chunk in step.chunks:
            if chunk.lane == save.lane:
                position, filling = chunk.start + len(chunk.tokens), not chunk.last
        if not filling:
            raise BadStep(f"{name}, but its prompt is complete")
        if save.at != position:
            raise BadStep(f"{name}, but it stands at {position}")
        if save.at < 1 or save.at % self._spec.page_rows:
            raise BadStep(f"{name}, not a whole number of pages of {self._spec.page_rows}")

    def _check_row(self, row: Row, held: _Held) -> None:
        name = f"lane {row.lane}: row at {row.position}"
        if held.filling:
            raise BadStep(f"{name}, but its prompt is not complete")
        if row.position != held.position:
            raise BadStep(f"{name}, but its next row is {held.position}")
        self._check_tokens(name, row.tokens)
        if len(row.tokens) > self._spec.verify_rows:
            raise BadStep(
                f"{name} has {len(row.tokens)} rows; at most {self._spec.verify_rows} a lane"
            )
        self._check_ahead(name, row.ahead, held)
        self._check_room(name, held.reach(row.position + len(row.tokens), row.ahead), held)

    def _check_ahead(self, name: str, ahead: int, held: _Held) -> None:
        if ahead and not held.drafts:
            raise BadStep(f"{name} asks for drafts, but the lane is not followed")
        if not 0 <= ahead < self._spec.verify_rows:
            raise BadStep(f"{name} asks for {ahead} drafts; at most {self._spec.verify_rows - 1}")

    def _check_tokens(self, name: str, tokens: tuple[int, ...]) -> None:
        if min(tokens) < 0 or max(tokens) >= self._spec.vocab_size:
            raise BadStep(f"{name} has a token that is not below {self._spec.vocab_size}")

    def _check_room(self, name: str, stop: int, held: _Held) -> None:
        room = len(held.pages) * self._spec.page_rows
        if stop > room:
            raise BadStep(f"{name} ends at {stop}, past its {len(held.pages)} pages ({room})")

    def _check_sizes(self, step: Step) -> None:
        rows = sum(len(chunk.tokens) for chunk in step.chunks)
        if rows > self._spec.chunk_rows:
            raise BadStep(f"a prompt pass of {rows} rows; at most {self._spec.chunk_rows}")
        rows = sum(len(row.tokens) for row in step.rows)
        if rows > self._spec.window_rows:
            raise BadStep(f"a window of {rows} rows; at most {self._spec.window_rows}")


def _lanes(parts: Iterable[Put | Chunk | Row]) -> Iterator[int]:
    return (part.lane for part in parts)


def _take(counts: Counter[int], pages: Iterable[int]) -> None:
    for page in pages:
        counts[page] -= 1
        if not counts[page]:
            del counts[page]


def _once(what: str, numbers: Sequence[int], noun: str = "lane") -> None:
    if len(set(numbers)) < len(numbers):
        number, count = Counter(numbers).most_common(1)[0]
        raise BadStep(f"{noun} {number} is {what} {count} times in one step")
