"""The fetch rule (J22) and the pieces of a carry (J24), as pure numbers."""

from __future__ import annotations

import itertools
import random

import pytest

from streamglm.pool.carry import Piece, carried, pieces
from streamglm.pool.exchange import Room
from streamglm.pool.fetch import away_heads, exchanged, fetched, fetches
from streamglm.pool.layout import head_shares

ROW = 1_024
MIB = 1 << 20
TWO = Room(2_048, 2, 32, ROW).history_rows


def two(pos: int, rows: int, room_rows: int = TWO) -> bool:
    return fetches(pos, rows, room_rows=room_rows, world=2, away=32)


def test_what_crosses_is_known() -> None:
    """58.6 MiB against 12.5, and 97.7 MiB against 64 KiB."""
    assert [round(fetched(pos, 2) * ROW / MIB, 1) for pos in (60_000, 100_000)] == [58.6, 97.7]
    assert exchanged(200, 32) * ROW == 12.5 * MIB
    assert exchanged(1, 32) * ROW == 64 << 10


def test_few_rows_far_on_take_the_exchange() -> None:
    assert not two(60_000, 200)
    assert not two(100_000, 1)


def test_whole_chunks_fetch_to_the_end_of_the_room_and_no_further() -> None:
    starts = range(0, 2 * TWO, 2_048)
    taken = [start for start in starts if two(start, 2_048)]
    assert taken == list(range(0, TWO, 2_048))
    assert not two(TWO - 2_047, 2_048)
    assert two(TWO - 2_048, 2_048, TWO)
    assert not two(TWO - 2_048, 2_048, TWO - 1)


def test_equal_bytes_are_fetched() -> None:
    """At 64 rows of history a row of the chunk, and not one more."""
    for rows in (1, 3, 64, 2_000):
        assert two(64 * rows, rows)
        assert not two(64 * rows + 1, rows, room_rows=1 << 30)


def test_a_first_chunk_fetches_what_is_nothing() -> None:
    assert all(two(0, rows) for rows in (1, 64, 2_048))
    assert fetched(0, 3) == 0


@pytest.mark.parametrize("owner", range(3))
def test_three_ranks_count_the_heads_that_are_away(owner: int) -> None:
    shares = head_shares(64, 3)
    away = away_heads(shares, owner)
    assert away == (42, 43, 43)[owner]
    room = Room(2_048, 3, max(shares), ROW).history_rows
    assert fetches(away * 100, 100, room_rows=room, world=3, away=away)
    assert not fetches(away * 100 + 1, 100, room_rows=room, world=3, away=away)


@pytest.mark.parametrize(("world", "a_row"), [(2, 64), (4, 32), (8, 16)])
def test_more_ranks_fetch_for_shorter_histories(world: int, a_row: int) -> None:
    """2 * 64 / W rows of history a row of the chunk, less what the owner's own heads save."""
    shares = head_shares(64, world)
    away = away_heads(shares, 0)
    edge = 2 * 100 * away // (world - 1)
    assert edge == 100 * a_row
    assert fetches(edge, 100, room_rows=1 << 30, world=world, away=away)
    assert not fetches(edge + 1, 100, room_rows=1 << 30, world=world, away=away)


# -- carries


@pytest.mark.parametrize("room", [1_000, 4_096, 65_536, 1 << 20, 5 << 20])
@pytest.mark.parametrize("pages", [1, 7, 40])
def test_pieces_fit_the_room_and_hold_every_byte_once(room: int, pages: int) -> None:
    caches, page_bytes = 3, 24_000
    seen = set()
    for one in pieces(caches, pages, page_bytes, room):
        assert 0 < one.bytes <= room
        # in blocks of 8 bytes, which every cut below is a multiple of
        for page, block in itertools.product(
            range(one.first, one.stop), range(one.start, one.end, 8)
        ):
            assert (one.cache, page, block) not in seen
            seen.add((one.cache, page, block))
    assert len(seen) == caches * pages * page_bytes // 8


def test_pieces_are_in_the_order_of_caches_pages_and_bytes() -> None:
    assert list(pieces(2, 3, 100, 250)) == [
        Piece(0, 0, 2, 0, 100),
        Piece(0, 2, 3, 0, 100),
        Piece(1, 0, 2, 0, 100),
        Piece(1, 2, 3, 0, 100),
    ]
    assert list(pieces(1, 2, 100, 60)) == [
        Piece(0, 0, 1, 0, 60),
        Piece(0, 0, 1, 60, 100),
        Piece(0, 1, 2, 0, 60),
        Piece(0, 1, 2, 60, 100),
    ]


def test_both_sides_of_a_carry_walk_the_same_pieces_and_a_third_rank_none() -> None:
    draw = random.Random(5)
    for _ in range(50):
        world = draw.choice([2, 3])
        home, owner = draw.sample(range(world), 2)
        numbers = (draw.randint(1, 4), draw.randint(1, 9), draw.randint(8, 5_000))
        room = draw.randint(1_000, 9_000)
        parts = [carried(rank, home, owner, pieces(*numbers, room)) for rank in range(world)]
        there, back = parts[home], parts[owner]
        assert there is not None
        assert back is not None
        assert (there.peer, there.sends, back.peer, back.sends) == (owner, True, home, False)
        assert there.pieces == back.pieces
        assert sum(one.bytes for one in there.pieces) == numbers[0] * numbers[1] * numbers[2]
        others = [parts[rank] for rank in range(world) if rank not in (home, owner)]
        assert not any(others), "a rank that has no part in a carry posts something"
