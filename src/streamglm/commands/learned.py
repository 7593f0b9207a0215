"""What was learned, for its owners: the disk tier and the memory in front of it as one.

Owns the views that HTTP shows, and that forgetting reaches both. Knows no HTTP.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence

from streamglm.core.engine import ConversationView, StateView
from streamglm.disk.nouns import Conversation
from streamglm.disk.tier import DiskTier
from streamglm.errors import DiskError


class Library:
    """The `Library` of `core/engine.py`. `clear` forgets what memory keeps at the given keys."""

    def __init__(
        self, tier: DiskTier, page_rows: int, clear: Callable[[Collection[bytes]], None]
    ) -> None:
        self._tier = tier
        self._page_rows = page_rows
        self._clear = clear

    def conversations(self) -> list[ConversationView]:
        return [view_of(one, self._page_rows) for one in self._tier.conversations()]

    async def forget(self, ids: Sequence[str]) -> None:
        try:
            self._clear(await self._tier.forget_conversations(ids))
        except (OSError, sqlite3.Error) as error:
            raise DiskError(f"the conversations cannot be removed: {error}") from None


def view_of(one: Conversation, page_rows: int) -> ConversationView:
    """A conversation of the index, in tokens."""
    return ConversationView(
        id=one.id,
        tokens=one.tip.depth * page_rows,
        bytes=one.bytes,
        pages=one.pages,
        created=min(stored.created for stored in one.states),
        used=max(stored.used for stored in one.states),
        states=tuple(
            StateView(stored.depth * page_rows, stored.size, stored.created, stored.used)
            for stored in one.states
        ),
    )
