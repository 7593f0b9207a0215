"""One live stream: where it stands, and the only moves it may make.

Owns positions, the state and the moments of one request. Knows no queue, no book and no reader:
pages are ids that it was given. The moves, each legal from one state only:

    waiting --begin--> filling --fill--> ... --fill--> filling --draw--> decoding --draw--> ...
    waiting --arrive--> restoring --seal--> filling
                        restoring --return_--> waiting
    any state but done --end--> done

Rows, as half-open ranges of absolute positions; `drawn` tokens of the reply are known:

    [0, start)                        restored from a kept state
    [start, filled)                   computed by prompt passes
    [filled, prompt)                  prompt, still to compute
    [prompt, prompt + drawn - 1)      reply, computed by window passes
    [prompt + drawn - 1, +1)          the last token drawn: the next row of a window pass

Invariant, by `check()`: positions fit the request and the pages, and only live lanes
hold an index and pages.
"""

from __future__ import annotations

from bisect import insort
from enum import StrEnum

from streamglm.request import FinishReason, Request, Timing
from streamglm.step import Chunk, Row


class State(StrEnum):
    """Where a stream stands."""

    WAITING = "waiting"
    RESTORING = "restoring"
    FILLING = "filling"
    DECODING = "decoding"
    DONE = "done"


class Lane:
    """A request from its arrival to its end. Moments are seconds of one clock."""

    __slots__ = (
        "_began",
        "_ended",
        "_first",
        "_submitted",
        "accepted",
        "drafted",
        "drawn",
        "filled",
        "index",
        "marks",
        "order",
        "pages",
        "request",
        "rounds",
        "served",
        "start",
        "state",
        "token",
    )

    def __init__(self, request: Request, now: float, order: int) -> None:
        self.request = request
        self.order = order
        """Place in the order of arrival."""
        self.state = State.WAITING
        self.index = -1
        """The ranks' number of this lane, while it is filling or decoding."""
        self.pages: tuple[int, ...] = ()
        self.start = 0
        self.filled = 0
        self.marks: list[int] = []
        """Positions at which a chunk has to end, ascending."""
        self.drawn = 0
        self.token = -1
        """The last token drawn."""
        self.rounds = 0
        """Windows that it stood in."""
        self.drafted = 0
        """Draft tokens that those windows had."""
        self.accepted = 0
        """Of these, the ones that stand in the reply."""
        self.served = 0
        """The round that drew its last token."""
        self._submitted = now
        self._began: float | None = None
        self._first: float | None = None
        self._ended: float | None = None

    @property
    def position(self) -> int:
        """Rows that are computed or restored."""
        return self.filled + max(0, self.drawn - 1)

    @property
    def rows_left(self) -> int:
        """Prompt rows still to compute."""
        return len(self.request.prompt) - self.filled

    @property
    def rows_wanted(self) -> int:
        """Prompt rows up to the next mark, or all that are left."""
        return self.marks[0] - self.filled if self.marks else self.rows_left

    def begin(self, index: int, pages: tuple[int, ...], now: float, start: int = 0) -> None:
        """Waiting becomes filling: the lane has its number and every page it can need, and its
        rows before `start`."""
        assert self.state is State.WAITING, f"begin of a lane that is {self.state}"
        assert 0 <= start < len(self.request.prompt), (
            f"a start at {start} leaves nothing to compute"
        )
        self.state, self.index, self.pages = State.FILLING, index, pages
        self.start = self.filled = start
        self._began = now

    def arrive(self, index: int, pages: tuple[int, ...], now: float) -> None:
        """Waiting becomes restoring: the lane has its number and pages, and its first rows come
        from the disk."""
        self.begin(index, pages, now)
        self.state = State.RESTORING

    def seal(self, at: int) -> None:
        """Restoring becomes filling: the rows before `at` have come."""
        assert self.state is State.RESTORING, f"seal of a lane that is {self.state}"
        assert 0 < at < len(self.request.prompt), f"a start at {at} leaves nothing to compute"
        self.state = State.FILLING
        self.start = self.filled = at
        if self.marks and self.marks[0] == at:
            del self.marks[0]

    def return_(self) -> None:
        """Restoring becomes waiting again: its rows did not come. Number and pages are others'."""
        assert self.state is State.RESTORING, f"return of a lane that is {self.state}"
        self.state, self.index, self.pages = State.WAITING, -1, ()
        self.marks.clear()

    def mark(self, at: int) -> None:
        """A chunk has to end at `at`, which is still to compute and leaves something after it."""
        live = (State.FILLING, State.RESTORING)
        assert self.state in live, f"mark of a lane that is {self.state}"
        assert self.filled < at < len(self.request.prompt), f"mark {at}, {self.filled} are filled"
        insort(self.marks, at)

    def chunk(self, rows: int) -> Chunk:
        """The next `rows` prompt rows, as a step holds them."""
        assert self.state is State.FILLING, f"chunk of a lane that is {self.state}"
        assert 0 < rows <= self.rows_wanted, f"chunk of {rows} rows, {self.rows_wanted} are wanted"
        stop = self.filled + rows
        prompt = self.request.prompt
        return Chunk(self.index, self.filled, prompt[self.filled : stop], stop == len(prompt))

    def fill(self, rows: int) -> None:
        """`rows` more prompt rows are computed."""
        assert self.state is State.FILLING, f"fill of a lane that is {self.state}"
        assert 0 < rows <= self.rows_wanted, f"fill of {rows} rows, {self.rows_wanted} were wanted"
        self.filled += rows
        if self.marks and self.marks[0] == self.filled:
            del self.marks[0]

    @property
    def left(self) -> int:
        """Tokens that the reply may still have."""
        return self.request.max_tokens - self.drawn

    def row(self) -> Row:
        """The next row of a window pass."""
        assert self.state is State.DECODING, f"row of a lane that is {self.state}"
        return Row(self.index, len(self.request.prompt) + self.drawn - 1, self.token)

    def draw(self, token: int, served: int, now: float) -> FinishReason | None:
        """The next token of the reply is drawn. Returns why the reply is complete, if it is."""
        if self.state is State.FILLING:
            assert not self.rows_left, f"draw with {self.rows_left} prompt rows left"
            self.state, self._first = State.DECODING, now
        assert self.state is State.DECODING, f"draw of a lane that is {self.state}"
        self.token, self.served = token, served
        self.drawn += 1
        if token in self.request.stop_ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if self.drawn == self.request.max_tokens else None

    def stood(self, drafted: int, accepted: int) -> None:
        """It stood in a window with `drafted` drafts, of which `accepted` are in the reply."""
        assert 0 <= accepted <= drafted, f"{accepted} of {drafted} drafts accepted"
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted

    def end(self, now: float) -> None:
        """The lane is done, for whatever reason; its number and pages belong to others."""
        assert self.state is not State.DONE, "end of a lane that is done"
        self.state, self.index, self.pages = State.DONE, -1, ()
        self._ended = now

    def timing(self, now: float) -> Timing:
        """What the reply cost up to `now`, or up to its end. A round is a window."""
        end = now if self._ended is None else self._ended
        began = end if self._began is None else self._began
        first = end if self._first is None else self._first
        return Timing(
            queue_seconds=began - self._submitted,
            prefill_seconds=first - began,
            decode_seconds=end - first,
            rounds=self.rounds,
            drafted=self.drafted,
            accepted=self.accepted,
        )

    def check(self, page_rows: int) -> None:
        """Prove the invariant; AssertionError says what broke."""
        prompt = len(self.request.prompt)
        assert 0 <= self.start <= self.filled <= prompt, f"{self.filled} rows filled of {prompt}"
        assert all(self.filled < at < prompt for at in self.marks), f"marks at {self.marks}"
        assert 0 <= self.drawn <= self.request.max_tokens, f"{self.drawn} tokens drawn"
        live = self.state in (State.RESTORING, State.FILLING, State.DECODING)
        assert live == (self.index >= 0), f"a {self.state} lane has number {self.index}"
        assert live == bool(self.pages), f"a {self.state} lane holds {len(self.pages)} pages"
        if self.state is State.RESTORING:
            assert not self.filled, f"restoring with {self.filled} rows filled"
        if self.state in (State.WAITING, State.RESTORING, State.FILLING):
            assert not self.drawn, f"a {self.state} lane has drawn {self.drawn} tokens"
        if self.state is State.DECODING:
            assert self.filled == prompt, f"decoding with {self.rows_left} prompt rows left"
            assert self.drawn, "decoding without a token"
        rows = prompt + self.request.max_tokens
        assert not live or rows <= len(self.pages) * page_rows, f"{rows} rows pass the pages"
