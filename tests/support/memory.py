"""Pages, slots and buffers of a stub rank: each row holds a hash of all tokens up to it.

As on a real rank, a row depends on its own prefix alone, a page that is taken is poison, and what
was never written cannot be right. `read` proves that a lane's rows are its own; a faulty server is
an AssertionError that names lane and row.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from zlib import crc32

from streamglm.step import Arrive, Carry, Demote, Drop, Move, Record, Restore, Save, Write

POISON = 2**32 - 1


@dataclass(slots=True)
class Fixed:
    """The fixed part of a state: what each row before it must hold. Its last row is the hash of
    the whole prefix, from which a lane goes on."""

    state: int
    rows: array[int]


@dataclass(slots=True)
class Held:
    """A lane's pages, and what each of its rows must hold."""

    pages: tuple[int, ...]
    rows: array[int] = field(default_factory=lambda: array("I"))

    @property
    def hash(self) -> int:
        """Of all tokens so far."""
        return self.rows[-1] if self.rows else 0


class Memory:
    """The memory of one rank: pages of `page_rows` rows, made when they are first taken."""

    def __init__(self, page_rows: int) -> None:
        self._page_rows = page_rows
        self._blank = array("I", [POISON]) * page_rows
        self._pages: dict[int, array[int]] = {}
        self._slots: dict[int, Fixed] = {}
        self._buffers: dict[int, tuple[Fixed, array[int]]] = {}

    @property
    def buffers(self) -> int:
        return len(self._buffers)

    def move(self, move: Move) -> None:
        """A demote reads its pages now: from the begins on they may be another's."""
        match move:
            case Demote(state, -1):
                assert state in self._buffers, f"state {state} has no buffer"
            case Demote(state, slot, at, pages):
                fixed = self._fixed(slot, state, at)
                self._buffers[state] = fixed, self._rows(pages, at)
            case Drop(state):
                self._buffers.pop(state, None)

    def begin(
        self,
        lane: int,
        pages: tuple[int, ...],
        restore: Restore | Arrive | None,
        *,
        carried: bool = False,
    ) -> Held:
        """The pages that are the lane's own are poisoned; `carried`, all are, until `carry`."""
        held = Held(pages)
        shared = 0
        if isinstance(restore, Arrive):
            restore = None
        if restore is not None and restore.slot >= 0:
            held.rows = self._fixed(restore.slot, restore.state, restore.at).rows[:]
            shared = 0 if carried else restore.at // self._page_rows
        for page in pages[shared:]:
            self._pages[page] = self._blank[:]
        if restore is not None and restore.slot < 0:
            fixed, rows = self._buffers[restore.state]
            assert len(fixed.rows) == restore.at, f"state {restore.state} is at {len(fixed.rows)}"
            held.rows = fixed.rows[:]
            if not carried:
                self._fill(pages, 0, rows)
        if not carried:
            self.read(lane, held)
        return held

    def carry(self, carry: Carry, held: Held) -> None:
        """Rows of a state into pages that are the lane's own."""
        if carry.sources:
            rows = self._rows(carry.sources, carry.at)
        else:
            _, rows = self._buffers[carry.state]
        self._fill(carry.pages, 0, rows)
        self.read(carry.lane, held)

    def copy(self, write: Write, record: Record) -> array[int]:
        """What a write takes of a state: a page's rows, or all that its rows must be."""
        if write.slot >= 0:
            fixed = self._slots[write.slot]
            assert fixed.state == write.state, f"slot {write.slot} holds state {fixed.state}"
            page = self._pages.get(record.page, self._blank)
        else:
            fixed, rows = self._buffers[write.state]
            start = record.page * self._page_rows
            page = rows[start : start + self._page_rows]
        return fixed.rows[:] if record.page < 0 else page[:]

    def put(self, lane: int, held: Held, first: int, pages: list[array[int]]) -> None:
        """What came from the disk, into a lane's pages from `first` on."""
        for number, rows in enumerate(pages, first):
            self._pages[held.pages[number]] = rows[:]

    def seal(self, lane: int, held: Held, rows: array[int]) -> None:
        """A lane's pages have come, and what its rows must be: they are."""
        held.rows = rows[:]
        self.read(lane, held)

    def write(self, held: Held, tokens: tuple[int, ...]) -> None:
        """The next rows of a lane."""
        start, running = len(held.rows), held.hash
        for token in tokens:
            running = crc32(array("q", (token,)).tobytes(), running)
            held.rows.append(running)
        self._fill(held.pages, start, held.rows[start:])

    def read(self, lane: int, held: Held) -> None:
        """All rows of a lane, as attention reads them."""
        found = self._rows(held.pages, len(held.rows))
        if found != held.rows:
            row = next(i for i, wanted in enumerate(held.rows) if found[i] != wanted)
            what = "was never written" if found[row] == POISON else "is another's"
            raise AssertionError(f"lane {lane}: row {row} {what}")

    def save(self, save: Save, held: Held) -> None:
        assert len(held.rows) == save.at, f"lane {save.lane} stands at {len(held.rows)}"
        fixed = Fixed(save.state, held.rows[:])
        if save.slot >= 0:
            self._slots[save.slot] = fixed
        else:
            self._buffers[save.state] = fixed, self._rows(held.pages, save.at)

    def _fixed(self, slot: int, state: int, at: int) -> Fixed:
        fixed = self._slots[slot]
        found = (fixed.state, len(fixed.rows))
        assert found == (state, at), f"slot {slot} holds state and mark {found}, not {(state, at)}"
        return fixed

    def _rows(self, pages: tuple[int, ...], stop: int) -> array[int]:
        rows = array("I")
        for page in pages[: -(-stop // self._page_rows)]:
            rows += self._pages.get(page, self._blank)
        return rows[:stop]

    def _fill(self, pages: tuple[int, ...], start: int, rows: array[int]) -> None:
        done = 0
        while done < len(rows):
            page, row = divmod(start + done, self._page_rows)
            piece = rows[done : done + self._page_rows - row]
            self._pages[pages[page]][row : row + len(piece)] = piece
            done += len(piece)
