"""The owner exchange: every send meets its receive, and each rank gets what its own heads read.

A run of the schedule over queues between ranks is the judge. It fails when a part goes to a wrong
peer or lies in a wrong slot or a segment is lost, which the last tests show.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from streamglm.errors import KvSplitRoom
from streamglm.pool.exchange import Group, Part, Room, Segment, outputs, queries, slot_of
from streamglm.pool.layout import head_shares

Change = Callable[[Group, int], Group]
Row = tuple[object, ...]
"""What a row holds: (heads of this rank, row) of a query, with the owner in front of an output."""


def same(group: Group, rank: int) -> Group:
    return group


class Wires:
    """A queue for each ordered pair of ranks. A receive takes the next message of its peer."""

    def __init__(self) -> None:
        self._between: dict[tuple[int, int], deque[tuple[Part, list[Row]]]] = {}

    def send(self, rank: int, part: Part, rows: list[Row]) -> None:
        self._between.setdefault((rank, part.peer), deque()).append((part, rows))

    def receive(self, rank: int, part: Part) -> list[Row]:
        queue = self._between.get((part.peer, rank))
        assert queue, f"rank {rank} waits for rank {part.peer}, which sends nothing"
        sent, rows = queue.popleft()
        assert sent.values == part.values, f"{sent.values} values sent, {part.values} expected"
        return rows

    def end(self) -> None:
        left = {pair: len(queue) for pair, queue in self._between.items() if queue}
        assert not left, f"sends that nobody receives: {left}"


def run(
    segments: Sequence[Segment],
    shares: Sequence[int],
    *,
    asked: Change = same,
    told: Change = same,
    slot: Callable[[int, int], int] = slot_of,
) -> None:
    """Both groups on all ranks; AssertionError where a rank ends without its rows."""
    world, total = len(shares), sum(one.rows for one in segments)
    first = [asked(queries(segments, shares, rank), rank) for rank in range(world)]
    second = [told(outputs(segments, shares, rank), rank) for rank in range(world)]
    wires = Wires()
    rooms: list[dict[tuple[int, int], Row]] = [{} for _ in range(world)]
    for rank, group in enumerate(first):
        for part in group.sends:
            wires.send(rank, part, [(rank, row) for row in span(part)])
    for rank, group in enumerate(first):
        for part in group.receives:
            rows = wires.receive(rank, part)
            rooms[rank].update(
                {(slot(rank, part.peer), r): q for r, q in zip(span(part), rows, strict=True)}
            )
    wires.end()
    results: list[dict[int, Row]] = [{} for _ in range(world)]
    for rank, group in enumerate(second):
        for part in group.sends:
            rows = [(rank, *rooms[rank][slot(rank, part.peer), row]) for row in span(part)]
            wires.send(rank, part, rows)
    for rank, group in enumerate(second):
        for part in group.receives:
            results[rank].update(zip(span(part), wires.receive(rank, part), strict=True))
    wires.end()
    owners = [one.owner for one in segments for _ in range(one.rows)]
    assert len(owners) == total
    for rank, result in enumerate(results):
        wanted = {
            row: (owner, rank, row)
            for row, owner in enumerate(owners)
            if owner is not None and owner != rank
        }
        assert result == wanted, f"rank {rank} has {result}, not {wanted}"


def span(part: Part) -> range:
    return range(part.first, part.first + part.rows)


def windows(world: int, count: int, seed: int) -> list[list[Segment]]:
    draw = random.Random(seed)
    return [
        [
            Segment(draw.randint(0, 16), draw.choice([None, *range(world)]))
            for _ in range(draw.randint(1, 16))
        ]
        for _ in range(count)
    ]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("heads", [64, 8, 7])
def test_random_windows_pair_every_send_with_its_receive(world: int, heads: int) -> None:
    """J20: 200 windows of up to 16 segments, with shares that are even and that are not."""
    for segments in windows(world, 200, seed=7):
        run(segments, head_shares(heads, world))


@pytest.mark.parametrize("world", [2, 3])
def test_one_segment_of_each_owner(world: int) -> None:
    for owner in range(world):
        segments = [Segment(5, owner)]
        shares = head_shares(64, world)
        run(segments, shares)
        for rank in range(world):
            group = queries(segments, shares, rank)
            peers = [peer for peer in range(world) if peer != owner]
            if rank == owner:
                assert group.sends == ()
                assert [part.peer for part in group.receives] == peers
                assert [part.heads for part in group.receives] == [shares[peer] for peer in peers]
            else:
                assert group.sends == (Part(owner, 0, 0, 5, shares[rank]),)
                assert group.receives == ()


def test_64_heads_over_3_ranks_cross_as_22_21_and_21() -> None:
    shares = head_shares(64, 3)
    sent = [queries([Segment(1, 1)], shares, rank).sent for rank in range(3)]
    assert (shares, sent) == ((22, 21, 21), [22, 0, 21])


def test_a_segment_without_an_owner_or_without_rows_posts_nothing() -> None:
    for rank in range(3):
        group = queries([Segment(9, None), Segment(0, 1)], (22, 21, 21), rank)
        assert group == outputs([Segment(9, None)], (22, 21, 21), rank) == Group((), ())


def test_the_second_group_is_the_first_one_backwards() -> None:
    for segments in windows(3, 20, seed=3):
        for rank in range(3):
            there, back = (of(segments, (3, 3, 2), rank) for of in (queries, outputs))
            assert (there.sends, there.receives) == (back.receives, back.sends)


# -- the room (J21)


def test_the_room_is_as_large_as_it_is_known_to_be() -> None:
    """128 MiB for 2,048 rows over two ranks, 256 MiB for 4,096, 176 MiB over three; and as many
    latent rows as it has bytes for."""
    found = [
        Room(rows, world, max(head_shares(64, world)), 1_024)
        for world, rows in ((2, 2_048), (2, 4_096), (3, 2_048))
    ]
    assert [one.bytes >> 20 for one in found] == [128, 256, 176]
    assert [one.history_rows for one in found[:2]] == [131_072, 262_144]


@pytest.mark.parametrize("world", [2, 3])
def test_a_segment_fits_to_the_edge_and_not_a_row_past_it(world: int) -> None:
    """Whoever owns it; the answer needs no rank's number, so it is every rank's."""
    room = Room(64, world, 32, 1_024)
    for owner in range(world):
        room.check([Segment(48, None), Segment(16, owner)])
        with pytest.raises(KvSplitRoom, match=r"rows 48 to 65 of segment 1 .* holds 64 rows"):
            room.check([Segment(48, None), Segment(17, owner)])
    room.check([Segment(64, 0), Segment(64, None)])


def test_no_whole_window_is_refused() -> None:
    """16 lanes of 16 rows, in a room for a prompt pass."""
    room = Room(2_048, 3, 22, 1_024)
    for segments in windows(3, 200, seed=11):
        room.check(segments)


# -- what the judge above sees


def _to(peer: int) -> Change:
    """Rank 0's first send goes to `peer` instead."""

    def change(group: Group, rank: int) -> Group:
        if rank or not group.sends:
            return group
        return replace(group, sends=(replace(group.sends[0], peer=peer), *group.sends[1:]))

    return change


def _lost(group: Group, rank: int) -> Group:
    """Rank 0 leaves out its first segment."""
    return group if rank else replace(group, sends=group.sends[1:])


def _lost_by_all(group: Group, rank: int) -> Group:
    """Every rank leaves out segment 0, so all sends meet."""
    return Group(
        sends=tuple(part for part in group.sends if part.segment),
        receives=tuple(part for part in group.receives if part.segment),
    )


def _turned(group: Group, rank: int) -> Group:
    """Rank 0 posts in another order."""
    return group if rank else replace(group, sends=group.sends[::-1])


THREE = [Segment(2, 1), Segment(3, 1), Segment(4, 2), Segment(1, None)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_to(2), "values sent|sends nothing|nobody receives"),
        (_lost, "values sent|sends nothing"),
        (_lost_by_all, "has"),
        (_turned, "values sent|sends nothing"),
    ],
    ids=["wrong peer", "lost segment", "lost on every rank", "wrong order"],
)
def test_a_fault_of_a_group_is_seen(change: Change, why: str) -> None:
    shares = head_shares(64, 3)
    run(THREE, shares)
    with pytest.raises(AssertionError, match=why):
        run(THREE, shares, asked=change, told=change if change is _lost_by_all else same)


def test_a_wrong_slot_is_seen() -> None:
    """Two peers in one slot: the second one's queries are answered to the first."""
    with pytest.raises(AssertionError, match="has"):
        run(THREE, head_shares(64, 3), slot=lambda rank, peer: 0)
