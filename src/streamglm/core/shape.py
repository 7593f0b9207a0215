"""EngineShape: the few numbers that lanes, admission and scheduling need.

Owns the numbers that core decides with, checked once. Knows no model and no settings: whoever
wires the server fills it in, and core never meets the checkpoint.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields

from streamglm.errors import SettingError
from streamglm.pool.layout import window_pages


@dataclass(frozen=True, slots=True)
class EngineShape:
    """Row counts, in tokens, and what the ranks have. Raises `SettingError` on a number below 1,
    or on row counts whose grids do not fit each other."""

    page_rows: int
    chunk_rows: int
    """Rows of one prompt pass at most, over all its prompts."""
    kda_chunk: int
    """Grid of chunk starts; only a prompt's last chunk may end off it."""
    window_rows: int
    """Lanes of one window pass at most."""
    context: int
    """Window of a lane: prompt and reply together."""
    lanes: int
    pages: int
    """Pages funded on every rank, ids 0 to `pages - 1`."""
    vocab_size: int
    slack: int = 0
    """Rows past a lane's committed end: one verify window of drafts."""
    paged: bool = True
    """False: a lane leases a whole window of pages, whatever its request needs."""
    turn_ids: frozenset[int] = frozenset()
    """Token ids that begin a user's turn: prompts are kept before them."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.default is MISSING and getattr(self, field.name) < 1:
                raise SettingError(f"{field.name} is {getattr(self, field.name)}, below 1")
        for name in ("page_rows", "chunk_rows"):
            if getattr(self, name) % self.kda_chunk:
                raise SettingError(
                    f"{name} is {getattr(self, name)}, not a multiple of kda_chunk {self.kda_chunk}"
                )

    @property
    def window_pages(self) -> int:
        """Pages of a whole window: the most that one lease can be."""
        return window_pages(self.context, self.page_rows, self.slack)

    @property
    def pool_tokens(self) -> int:
        """Tokens that the pool holds."""
        return self.pages * self.page_rows
