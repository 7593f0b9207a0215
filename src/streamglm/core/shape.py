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
    """Page ids, 0 to `pages - 1`, trash pages included."""
    vocab_size: int
    slack: int = 0
    """Rows past a lane's committed end: one verify window of drafts."""
    paged: bool = True
    """False: a lane leases a whole window of pages, whatever its request needs."""
    classes: int = 1
    """Classes of pages, one a rank with the latent split; each has a trash page then."""
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
        if self.classes < 1 or self.pages % self.classes or self.most_pages < 1:
            raise SettingError(
                f"{self.pages} pages do not make {self.classes} classes with a page and a trash "
                "page each"
            )

    @property
    def window_pages(self) -> int:
        """Pages of a whole window: the most that one lease can be."""
        return window_pages(self.context, self.page_rows, self.slack)

    @property
    def most_pages(self) -> int:
        """Pages that any lease can be: those of a class, since no lease lies in two."""
        return self.pages if self.classes == 1 else self.pages // self.classes - 1

    @property
    def most_tokens(self) -> int:
        """Tokens that a lease can hold."""
        return self.most_pages * self.page_rows
