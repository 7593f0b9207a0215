"""The latent split as a model's passes see it: whose rows are whose, and which chunk fetches.

Owns the numbers that all ranks share, so that each computes the same schedule. Knows no torch and
no bytes in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamglm.model.share import Share
from streamglm.pool.exchange import Room
from streamglm.pool.fetch import away_heads, fetches
from streamglm.pool.region import Region

FLOAT32_BYTES = 4
"""Of a value of a query or an output, which cross as they are computed."""


@dataclass(frozen=True, slots=True)
class Split:
    """`shares` are the heads of each rank; `page` the rows of a page."""

    region: Region
    shares: tuple[int, ...]
    room: Room
    page: int

    @classmethod
    def of(cls, share: Share, region: Region) -> Split:
        """That of a model: the room is for the longest pass."""
        spec, world = share.spec, share.world
        shares = tuple(replace(share, rank=rank).heads.size for rank in range(world))
        rows = max(spec.rows.chunk, spec.rows.window)
        room = Room(rows, world, max(shares), spec.kv_lora_rank * FLOAT32_BYTES)
        return cls(region, shares, room, spec.rows.page)

    @property
    def history_pages(self) -> int:
        """Pages that a history in the room has; the null page stands behind them."""
        return -(-self.room.history_rows // self.page)

    def fetches(self, start: int, rows: int, owner: int) -> bool:
        """Whether the chunk of rows [start, start + rows) takes its history from its owner."""
        return fetches(
            start,
            rows,
            room_rows=self.room.history_rows,
            world=self.region.world,
            away=away_heads(self.shares, owner),
        )
