"""The owner exchange: who sends which rows to whom, so that a lane's owner attends for all ranks.

Owns the schedule, computed alike on every rank from numbers that all have. Knows no tensors and no
transport. One latent layer of one pass takes two groups:

    queries   each other rank sends its heads' queries of a segment to the segment's owner
    outputs   the owner sends back what those heads read, into the rank's own rows

A segment is the rows of one lane, with its owner, or with None where each rank attends by itself:
such a segment posts nothing. Invariant: what stands between two ranks is in the order of the
segments on both sides, with the same sizes. What an owner receives lies in its room: one slot for
each other rank, row r of the pass at row r of the slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamglm.errors import KvSplitRoom


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbouring rows of a pass that one lane has."""

    rows: int
    owner: int | None
    """The rank that holds the lane's latent rows; None where every rank can attend."""


@dataclass(frozen=True, slots=True)
class Part:
    """What crosses between this rank and `peer`: rows [first, first + rows) of the pass, for
    `heads` heads of whichever of the two is not the owner."""

    peer: int
    segment: int
    first: int
    rows: int
    heads: int

    @property
    def values(self) -> int:
        """Latent rows that cross: one a row and head."""
        return self.rows * self.heads


@dataclass(frozen=True, slots=True)
class Group:
    """One rank's sends and receives of one group, each in the order in which it is posted."""

    sends: tuple[Part, ...]
    receives: tuple[Part, ...]

    @property
    def sent(self) -> int:
        """Latent rows that leave this rank."""
        return sum(part.values for part in self.sends)


@dataclass(frozen=True, slots=True)
class Room:
    """What one rank holds for its peers' queries and outputs, made once at the start.

    `rows`: of the longest pass. `share`: heads of the rank with the most. `row_bytes`: of one
    latent row as it crosses.
    """

    rows: int
    world: int
    share: int
    row_bytes: int

    @property
    def slot_bytes(self) -> int:
        """One peer's queries, or its outputs."""
        return self.rows * self.share * self.row_bytes

    @property
    def bytes(self) -> int:
        """Queries and outputs of every peer."""
        return 2 * (self.world - 1) * self.slot_bytes

    @property
    def history_rows(self) -> int:
        """Latent rows that a history may have, when the room holds one instead."""
        return self.bytes // self.row_bytes

    def check(self, segments: Sequence[Segment]) -> None:
        """Raise `KvSplitRoom` if an owned segment does not lie in the room. Every rank asks before
        the first group, and all get the same answer, so none is left waiting."""
        for number, (first, segment) in enumerate(_placed(segments)):
            if segment.owner is not None and first + segment.rows > self.rows:
                raise KvSplitRoom(
                    f"rows {first:,} to {first + segment.rows:,} of segment {number} go to rank "
                    f"{segment.owner}, and the room for an exchange holds {self.rows:,} rows"
                )


def slot_of(rank: int, peer: int) -> int:
    """The slot in `rank`'s room that `peer` has."""
    return peer - (peer > rank)


def queries(segments: Sequence[Segment], shares: Sequence[int], rank: int) -> Group:
    """The first group as `rank` posts it. `shares`: heads of each rank."""
    return Group(
        sends=tuple(_mine(segments, shares, rank)), receives=tuple(_theirs(segments, shares, rank))
    )


def outputs(segments: Sequence[Segment], shares: Sequence[int], rank: int) -> Group:
    """The second group: the first one backwards."""
    there = queries(segments, shares, rank)
    return Group(sends=there.receives, receives=there.sends)


def _mine(segments: Sequence[Segment], shares: Sequence[int], rank: int) -> Iterator[Part]:
    """This rank's heads of rows that others own."""
    for number, (first, segment) in enumerate(_placed(segments)):
        if segment.owner not in (None, rank) and segment.rows:
            yield Part(segment.owner, number, first, segment.rows, shares[rank])


def _theirs(segments: Sequence[Segment], shares: Sequence[int], rank: int) -> Iterator[Part]:
    """The other ranks' heads of rows that this rank owns."""
    for number, (first, segment) in enumerate(_placed(segments)):
        if segment.owner == rank and segment.rows:
            for peer, heads in enumerate(shares):
                if peer != rank:
                    yield Part(peer, number, first, segment.rows, heads)


def _placed(segments: Sequence[Segment]) -> Iterator[tuple[int, Segment]]:
    """Each segment with its first row in the pass."""
    first = 0
    for segment in segments:
        yield first, segment
        first += segment.rows
