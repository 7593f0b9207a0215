"""The history fetch: whether a prompt chunk takes its lane's latent rows from their owner.

Owns the rule. Knows no tensors. A chunk of a lane that another rank owns is attended in one of two
ways, and both give the same bits:

    fetch      the owner sends its rows [0, pos) to every rank, which then attends its own heads
    exchange   the owner attends for all (`exchange.py`)

The rule compares what crosses, in latent rows, from numbers that every rank has. It is for prompt
chunks alone: rows of a window always take the exchange.
"""

from __future__ import annotations

from collections.abc import Sequence


def fetches(pos: int, rows: int, *, room_rows: int, world: int, away: int) -> bool:
    """Whether the chunk of rows [pos, pos + rows) fetches. A first chunk does: nothing crosses.

    `room_rows`: latent rows that a rank has room for (`Room.history_rows`). `away`: heads that
    other ranks than the owner hold.
    """
    return pos + rows <= room_rows and fetched(pos, world) <= exchanged(rows, away)


def fetched(pos: int, world: int) -> int:
    """Latent rows that a fetch sends, a layer."""
    return pos * (world - 1)


def exchanged(rows: int, away: int) -> int:
    """Latent rows that an exchange sends, a layer: a query and an output a row and head."""
    return 2 * rows * away


def away_heads(shares: Sequence[int], owner: int) -> int:
    """Heads that the other ranks hold; `shares` are the heads of each rank."""
    return sum(shares) - shares[owner]
