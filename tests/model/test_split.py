"""Ranks that split latent rows compute what ranks compute that all have every row, bit for bit:
logits, tokens, drafts, states, pooled keys, and the rows themselves at their owner.

Pages are poisoned and shuffled, and rows past a lane's owner are never there: each rank's region
holds the pages of its class alone. What a transport would leave to chance is an error between the
threads that stand for ranks. That each piece of the exchange and of the fetch counts is shown at
the end: without it the same comparison is red.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from streamglm import nano
from streamglm.errors import KvSplitRoom
from streamglm.kernels.pages import Pages, bits
from streamglm.model import exchange as crossing
from streamglm.model.exchange import Exchange
from streamglm.model.reads import FetchedChunk
from streamglm.model.tables import PageTables
from streamglm.pool import exchange as schedule
from streamglm.pool.exchange import Segment
from streamglm.pool.layout import RowFormat
from streamglm.pool.region import Region
from streamglm.step import Chunk, Row, Step, StepResult
from support.drafted import Reply, ids
from support.peers import Mismatch
from support.split import Both, Driver, Owned, SplitDiffers
from support.tiny import Folder, TinyShape

SEVEN = TinyShape(num_attention_heads=7, linear_num_heads=7)
"""4 and 3 heads of two ranks; 3, 2 and 2 of three."""
PAGE, CHUNK, LIMIT = 64, 256, 131
LONG = 33 * PAGE + 68
"""Past 32 entries of a page table, and past the room of a fetch."""


Make = Callable[[int], Both]


@pytest.fixture(scope="module")
def make(tiny: Folder) -> Make:
    """So many ranks without the split and with it, as blank as when they were built."""
    built: dict[int, Both] = {}

    def ranks(world: int) -> Both:
        if world not in built:
            built[world] = both(tiny(SEVEN, 0), world)
        built[world].blank()
        return built[world]

    return ranks


def tokens(seed: int, length: int) -> tuple[int, ...]:
    return tuple(token % 97 + 2 for token in ids(seed, length))


def both(folder: Path, world: int, **options: Any) -> Both:
    pages = 2 * world * (LONG // PAGE + 2)
    return Both(folder, world, pages=pages, **options)


@pytest.mark.parametrize(("world", "owner"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_a_long_prompt_of_each_owner_beside_others(make: Make, world: int, owner: int) -> None:
    """Its chunks fetch up to the end of the room and are exchanged behind it; the others' prompts
    stand beside them in one pass, and all share windows. The last owner's is the longest."""
    driver = Driver(make(world))
    length = LONG if owner == world - 1 else 4 * LIMIT
    prompt, other = tokens(1, length), (owner + 1) % world
    driver.begin(0, owner, length + 9)
    driver.chunks((0, prompt[:192], False))
    driver.begin(1, other, 260)
    driver.chunks((0, prompt[192:256], False), (1, tokens(2, 130), True))
    driver.begin(2, owner, 90)
    driver.chunks((0, prompt[256:320], False), (2, tokens(3, 64 + 1), True))
    driver.window(1, 2)
    for start in range(320, length, CHUNK):
        end = min(start + CHUNK, length)
        driver.chunks((0, prompt[start:end], end == length))
    for lanes in ((0, 1, 2), (0,), (2, 1), (1,), (0, 2, 1)):
        driver.window(*lanes)


@pytest.mark.parametrize("rows", [RowFormat.BF16, RowFormat.FP8])
def test_in_other_formats(tiny: Folder, rows: RowFormat) -> None:
    _short(Driver(both(tiny(SEVEN, 0), 3, rows=rows)))


@pytest.mark.parametrize("world", [2, 3])
def test_drafts_and_verify_windows(world: int) -> None:
    """Windows of several rows a lane, of one, and of both together; the next-token layer's rows
    are exchanged too."""
    lanes = Owned(Both(nano.folder(), world, drafts=True))
    for owner in range(world):
        lanes.own(owner)
        lanes.begin(owner, ids(owner, 140 + 70 * owner), sizes=(64, 192), ahead=3)

    def mine(reply: Reply) -> Sequence[int]:
        return reply.drafts[-1]

    def wrong(reply: Reply) -> Sequence[int]:
        return [(token + 1) % 300 for token in reply.drafts[-1]]

    everyone = range(world)
    lanes.window(everyone, dict.fromkeys(everyone, mine), ahead=3)
    lanes.window(everyone, {0: wrong, 1: mine}, ahead=3)
    lanes.window([world - 1], {world - 1: mine}, ahead=2)
    lanes.window(everyone, {}, ahead=1)


# -- what crosses


def _short(driver: Driver) -> None:
    """A lane of each owner: first chunks, a fetch, an exchange beside a fetch, shared windows."""
    world = driver.both.world
    for lane in range(world):
        driver.begin(lane, lane, 400)
        driver.chunks((lane, tokens(lane, 192), False))
    driver.chunks(*((lane, tokens(10 + lane, 64), lane != 1) for lane in range(world) if lane))
    driver.chunks((0, tokens(20, 3), True))
    driver.chunks((1, tokens(21, 7), True))
    driver.token |= dict.fromkeys(range(world), 5)
    driver.window(0, 1)
    driver.window(*reversed(range(1, world)))


@pytest.mark.parametrize("world", [2, 3])
def test_bytes_counted_are_bytes_carried(make: Make, world: int) -> None:
    ranks = make(world)
    carried = dict.fromkeys(("trade", "spread"), 0)
    run = ranks.run

    def counted(step: Step) -> StepResult:
        result = run(step)
        for one in ranks.sent:
            if one.call in carried:
                carried[one.call] += one.bytes
        return result

    with mock.patch.object(ranks, "run", counted):
        _short(Driver(ranks))
    assert ranks.counted() == {"exchange": carried["trade"], "fetch": carried["spread"]}
    assert all(carried.values())


@pytest.mark.parametrize("owner", [0, 1])
def test_a_chunk_fetches_up_to_the_byte_rule(make: Make, owner: int) -> None:
    """192 rows cross once, or 2 rows for each row and head of the other rank: 3 or 4 heads."""
    away = (3, 4)[owner]
    for rows, way in ((192 // (2 * away), "spread"), (192 // (2 * away) - 1, "trade")):
        driver = Driver(make(2))
        driver.begin(0, owner, 400)
        driver.chunks((0, tokens(1, 192), False))
        assert driver.kinds() == set()  # a first chunk needs nobody
        driver.chunks((0, tokens(2, rows), True))
        assert driver.kinds() == {way}
        sent = sum(one.bytes for one in driver.both.sent if one.call == way)
        assert sent == 4 * 32 * (192 if way == "spread" else 2 * away * rows)


@pytest.mark.parametrize("world", [2, 3])
def test_rows_past_the_room_are_refused_on_every_rank_before_a_byte_is_sent(
    make: Make, world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of windows and of a chunk. Red where only the move itself checks: the layers before it
    have sent their sums by then."""
    driver = Driver(make(world))
    for lane in range(4):
        driver.begin(lane, lane % world, 100)
        driver.chunks((lane, tokens(lane, 40), True))
    driver.begin(4, 1, 100)
    driver.chunks((4, tokens(4, PAGE), False))
    for executor in driver.both.split.executors:
        assert executor.exchange is not None
        split = executor.exchange._split
        small = replace(split, room=replace(split.room, rows=3))
        monkeypatch.setattr(executor.exchange, "_split", small)
    driver.window(0, 1, 2)  # to the edge
    window = Step(rows=tuple(Row(lane, driver.position[lane], 5) for lane in range(4)))
    prompt = Step(chunks=(Chunk(4, PAGE, tokens(5, 4), True),))
    names, world_of = [], driver.both.split.world
    world_of.record.clear()
    for wide in (window, prompt):

        def refused(peer: Any, wide: Step = wide) -> None:
            with pytest.raises(KvSplitRoom, match="the room for an exchange holds 3 rows"):
                driver.both.split.executors[peer.rank].run(wide)
            names.append(peer.rank)

        world_of.run(refused)
    assert sorted(names) == sorted([*range(world)] * 2)
    assert world_of.record == []


def test_a_whole_window_and_a_whole_chunk_fit_the_room(make: Make) -> None:
    ranks = make(3)
    for executor in ranks.split.executors:
        assert executor.exchange is not None
        for rows in (ranks.spec.rows.window, ranks.spec.rows.chunk):
            executor.exchange.check([Segment(rows - 1, 0), Segment(1, 2)])
        with pytest.raises(KvSplitRoom):
            executor.exchange.check([Segment(rows, 0), Segment(1, 1)])


# -- whose rows are whose


@pytest.mark.parametrize("world", [2, 3])
def test_no_rank_but_the_owner_reads_a_latent_row(make: Make, world: int) -> None:
    """After every step, what a rank holds of lanes that others own is poisoned: its trash page,
    and the room in which it had their history."""
    driver = Driver(make(world))
    run = driver.both.run

    def spoiled(step: Step) -> StepResult:
        result = run(step)
        for executor in driver.both.split.executors:
            region, exchange = executor.pool.region, executor.exchange
            assert exchange is not None
            executor.pool.latents[:, region.places - 1] = 0xFF
            exchange._memory.fill_(0xFF)
        return result

    with mock.patch.object(driver.both, "run", spoiled):
        _short(driver)


@pytest.mark.parametrize("world", [2, 3])
def test_places_are_the_owners_alone(make: Make, world: int) -> None:
    ranks = make(world)
    driver = Driver(ranks)
    driver.begin(0, 1, 400)
    driver.chunks((0, tokens(1, 70), True))
    pages = ranks.leases[0]
    for rank, executor in enumerate(ranks.split.executors):
        region, tables = executor.pool.region, executor._tables
        places = tables.places_host[0, : len(pages)].tolist()
        trash = ranks.pool.pages // world - 1
        assert places == ([page // world for page in pages] if rank == 1 else [trash] * len(pages))
        assert set(tables.places_host[0, len(pages) :].tolist()) == {region.null}
        assert tables.host[0, : len(pages)].tolist() == list(pages)
        own = [page // world for page in pages]
        written = {at for at in range(region.places) if executor.pool.latents[:, at].any()}
        assert written == (set(own) if rank == 1 else {trash})


def test_a_table_outlives_what_it_was_made_from(make: Make) -> None:
    """The ids come from a message whose memory is another's by the time that the table is read."""
    tables = make(2).split.executors[0]._tables
    source = np.array([6, 2, 4])
    tables.begin(0, source)  # type: ignore[arg-type]
    source[:] = 0
    assert tables.host[0, :3].tolist() == [6, 2, 4]
    assert tables.places_host[0, :3].tolist() == [3, 1, 2]


# -- each piece counts

Patch = tuple[object, str, Any]


def _second_pass_dropped(self: Exchange, segments: Any, answers: Any, out: Any) -> None:
    blank = {peer: torch.zeros_like(rows) for peer, rows in answers.items()}
    _answer(self, segments, blank, out)


def _other_peers_answers(self: Exchange, segments: Any, answers: Any, out: Any) -> None:
    order = list(answers)
    moved = {peer: answers[order[i - 1]] for i, peer in enumerate(order)}
    _answer(self, segments, moved, out)


def _one_segment_lost(segments: Any, shares: Any, rank: int) -> Any:
    group = _queries(segments, shares, rank)
    return replace(group, sends=group.sends[:-1]) if rank == 0 else group


def _one_row_on(self: Exchange, part: Any, kind: int) -> torch.Tensor:
    slot = self._slot(part.peer, part.heads, kind)
    return slot[part.first + 1 : part.first + 1 + part.rows]


def _not_spread(self: Exchange, rows: torch.Tensor, owner: int) -> None:
    return None


def _a_row_short(self: Exchange, rows: torch.Tensor, owner: int) -> None:
    _spread(self, rows[:-1], owner)


def _room_for_all(self: Exchange, chunk: FetchedChunk, cache: Pages, latents: Any) -> Pages:
    _fetched(self, chunk, cache, latents)
    return self._history


def _own_pages_for_all(self: Exchange, chunk: FetchedChunk, cache: Pages, latents: Any) -> Pages:
    _fetched(self, chunk, cache, latents)
    return cache


def _history_alone(self: Exchange, chunk: FetchedChunk, cache: Pages, latents: Any) -> Pages:
    found = _fetched(self, chunk, cache, latents)
    if found is not cache:
        bits(found.values).view(-1, found.dim)[chunk.rows.start : chunk.rows.start + 1] = -1.0
    return found


def _own_id_as_place(self: Region, pages: Sequence[int]) -> list[int]:
    return [page // self.world for page in pages]


def _heads_backwards(queries: torch.Tensor, heads: int) -> torch.Tensor:
    return _widened(queries.flip(1).contiguous(), heads)


_answer, _part = Exchange._answer, Exchange._part
_spread, _fetched = Exchange._spread, Exchange._fetched
_queries, _widened = schedule.queries, crossing._widened

PIECES: dict[str, Patch] = {
    "the owner's pass for others is dropped": (Exchange, "_answer", _second_pass_dropped),
    "heads come in another order": (crossing, "_widened", _heads_backwards),
    "answers go to another rank": (Exchange, "_answer", _other_peers_answers),
    "a segment's queries are lost": (schedule, "queries", _one_segment_lost),
    "queries land one row on": (Exchange, "_part", _one_row_on),
    "a history is not sent": (Exchange, "_spread", _not_spread),
    "a history is one row short": (Exchange, "_spread", _a_row_short),
    "the owner attends the room": (Exchange, "_fetched", _room_for_all),
    "others attend their own pages": (Exchange, "_fetched", _own_pages_for_all),
    "a chunk's rows are not behind its history": (Exchange, "_fetched", _history_alone),
    "others write at the page's place": (Region, "written", _own_id_as_place),
}


@contextmanager
def _without(piece: str) -> Iterator[None]:
    target, name, replacement = PIECES[piece]
    with mock.patch.object(target, name, replacement):
        yield


@pytest.mark.parametrize("piece", PIECES)
def test_each_piece_counts(make: Make, piece: str) -> None:
    """With three ranks, so that two may be confused."""
    driver = Driver(make(3))
    with _without(piece), pytest.raises((SplitDiffers, Mismatch, IndexError)):
        _short(driver)


def test_tables_are_of_pages_without_the_split(make: Make) -> None:
    tables: PageTables = make(2).whole.executors[0]._tables
    assert tables.places_host is tables.host
    assert tables.owners[0] is None
