"""What kept states hold on a rank: fixed parts in slots, and whole copies in buffers.

Owns the slots' tensors and the buffers; does what moves, saves and restores say. Knows no prompts
and decides nothing: which state, which slot and which pages, the server says, and the rank has
checked it. Invariant: a state that shares pages has nothing here but its slot; a copied one has
exactly `CacheShape.kept_bytes` of its mark, so that bytes follow the position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from streamglm.model.exchange import Exchange
from streamglm.model.state import FixedParts, LaneStates
from streamglm.pool.layout import CacheShape
from streamglm.pool.memory import HOST, Memory
from streamglm.pool.tensors import PageCopies, PoolTensors, Raw
from streamglm.step import Carry, Demote, Drop, Move, Record, Restore, Save, Write

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class _Buffer:
    """One state's own copy of everything."""

    fixed: FixedParts
    rows: PageCopies
    host: bool

    @property
    def bytes(self) -> int:
        return self.fixed.bytes + self.rows.bytes


class KeptTensors:
    """The kept states of one rank, over its lanes and its pool."""

    def __init__(
        self,
        shape: CacheShape,
        slots: int,
        states: LaneStates,
        pool: PoolTensors,
        *,
        poison: bool = False,
        memory: Memory = HOST,
    ) -> None:
        self._memory = memory
        self.slots = FixedParts(shape, slots, poison=poison, memory=memory)
        self._shape = shape
        self._states = states
        self._pool = pool
        self._buffers: dict[int, _Buffer] = {}

    def save(self, save: Save, pages: Sequence[int]) -> None:
        """Keep a lane that stands at the mark; `pages` are its own up to there."""
        if save.slot >= 0:
            self.slots.copy(save.slot, self._states, save.lane)
        else:
            self._keep(save.state, self._states, save.lane, pages, save.host)

    def restore(self, restore: Restore, lane: int, pages: Sequence[int]) -> None:
        """The lane continues from the mark; `pages` are its own up to there, and are written only
        where the state has rows of its own."""
        self._resume(restore, lane)
        if restore.slot < 0:
            self._pool.copy_in(pages, self._buffers[restore.state].rows)

    def carry(self, restore: Restore, carry: Carry, exchange: Exchange) -> None:
        """`restore` into pages of another class: every rank has the pooled keys, and the latent
        rows go from the state's home to the lane's owner."""
        self._resume(restore, carry.lane)
        rows = self._pool.latents
        places = self._pool.region.own(carry.sources)
        if carry.sources:
            self._pool.copy_keys(carry.pages, carry.sources)
        else:
            buffer = self._buffers[restore.state].rows
            self._pool.copy_in(carry.pages, buffer, rows=False)
            rows, places = buffer.latents, list(range(buffer.latents.shape[1]))
        if exchange.rank == carry.home:
            exchange.carry(carry, rows, places)
        else:
            exchange.carry(carry, self._pool.latents, self._pool.region.own(carry.pages))

    def _resume(self, restore: Restore, lane: int) -> None:
        if restore.slot >= 0:
            self._states.resume(lane, self.slots, restore.slot)
        else:
            self._states.resume(lane, self._buffers[restore.state].fixed, 0)

    def copies(self, write: Write) -> Iterator[tuple[Record, list[Raw]]]:
        """Of each record of `write`, a copy of what it holds."""
        buffer = None if write.slot >= 0 else self._buffers[write.state]
        for record in write.records:
            if record.page < 0:
                parts = self.slots if buffer is None else buffer.fixed
                yield record, parts.dump(max(write.slot, 0))
            elif buffer is None:
                yield record, self._pool.page(record.page)
            else:
                yield record, buffer.rows.page(record.page)

    def seal(self, lane: int, sections: Sequence[Raw]) -> None:
        """A lane whose pages came from the disk continues from its mark, by the fixed part that
        came with them."""
        fixed = FixedParts(self._shape, 1, memory=self._memory)
        fixed.load(0, sections)
        self._states.resume(lane, fixed, 0)

    def move(self, move: Move) -> None:
        """Off the device, or out of the world."""
        match move:
            case Demote(state, slot, _, pages) if slot >= 0:
                self._keep(state, self.slots, slot, pages, host=True)
            case Demote(state):
                # Where the device's memory is the host's, only the account changes.
                buffer = self._buffers[state]
                fixed = buffer.fixed
                if self._memory.on_gpu:
                    fixed = FixedParts(self._shape, 1, memory=replace(self._memory, device=_CPU))
                    fixed.copy(0, buffer.fixed, 0)
                self._buffers[state] = _Buffer(fixed, buffer.rows.on_host(), True)
            case Drop(state):
                self._buffers.pop(state, None)

    def _keep(
        self, state: int, parts: FixedParts, place: int, pages: Sequence[int], host: bool
    ) -> None:
        memory = replace(self._memory, device=_CPU) if host else self._memory
        fixed = FixedParts(self._shape, 1, memory=memory)
        fixed.copy(0, parts, place)
        rows = self._pool.copy_out(pages)
        self._buffers[state] = _Buffer(fixed, rows.on_host() if host else rows, host)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the copies on the device."""
        return sum(one.bytes for one in self._buffers.values() if not one.host)

    @property
    def host_bytes(self) -> int:
        """Bytes of the copies in host memory."""
        return sum(one.bytes for one in self._buffers.values() if one.host)
