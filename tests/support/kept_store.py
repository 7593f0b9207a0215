"""A book, a store of kept states, and lanes that fill it: what its tests are written with."""

from __future__ import annotations

from collections.abc import Sequence

from streamglm.pool.kept import KeptStates
from streamglm.pool.pages import PageBook

ROWS = 4
FIXED, ROW = 100, 10
ID = b"model"
GUEST = 99
"""A lane that comes for a state and goes."""


def state_bytes(at: int) -> int:
    return FIXED + at * ROW


class Store:
    """A book, a store, and a lane that fills one state after another."""

    def __init__(
        self, *, pages: int = 40, slots: int = 0, budget: int = 0, host: int = 0, classes: int = 1
    ) -> None:
        self.book = PageBook(pages, classes=classes)
        self.kept = KeptStates(
            self.book, ROWS, state_bytes=state_bytes, slots=slots, budget=budget, host=host
        )

    def begin(self, prompt: Sequence[int], lane: int = 0, extra: int = 1) -> tuple[int, ...]:
        """`lane` leases the pages of `prompt` and `extra` more."""
        return self.book.lease(lane, len(prompt) // ROWS + extra)

    def fill(self, prompt: Sequence[int], at: int, lane: int = 0, identity: bytes = ID) -> int:
        """The state of `prompt` at `at` is kept, as a lane that holds pages would."""
        state = self.kept.reserve(prompt, at, identity, lane)
        assert state is not None
        self.kept.save(state)
        self.kept.publish(state)
        self.check()
        return state

    def keep(self, prompt: Sequence[int], at: int, identity: bytes = ID) -> int:
        """`fill` by a lane that holds no page afterwards."""
        self.begin(prompt, GUEST, extra=0)
        state = self.fill(prompt, at, GUEST, identity)
        self.book.release(GUEST)
        self.check()
        return state

    def at(self, prompt: Sequence[int], identity: bytes = ID) -> int:
        return self.kept.look(prompt, identity).at

    def check(self) -> None:
        self.book.check()
        self.kept.check()


def prompt(start: int, length: int = 16) -> list[int]:
    """Tokens that no prompt of another hundred has."""
    return list(range(100 * start, 100 * start + length))
