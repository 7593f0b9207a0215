"""Every round that the scheduler can choose keeps to the limits, and gets somewhere."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from streamglm.core.lane import Lane, State
from streamglm.core.scheduler import Scheduler, Work
from support.fakes import shape
from support.house import request

OF = shape(lanes=9, window_rows=3)

prompts = st.lists(st.integers(1, 70), min_size=1, max_size=9)
seconds = st.lists(st.tuples(st.floats(0, 2), st.floats(0.001, 0.5)), min_size=1, max_size=30)


def lane_of(rows: int, index: int) -> Lane:
    lane = Lane(request(prompt=rows, max_tokens=180, seed=index), 0.0, index)
    lane.begin(index, tuple(range(32)), 0.0)
    return lane


def follow(lanes: list[Lane], work: Work, served: int) -> None:
    """What the loop does when the ranks have answered."""
    for chunk in work.chunks:
        lanes[chunk.lane].fill(len(chunk.tokens))
        if chunk.last:
            lanes[chunk.lane].draw(1, served, 0.0)
    for row in work.rows:
        lanes[row.lane].draw(1, served, 0.0)


@given(prompts, seconds, st.floats(0, 0.95))
def test_every_round_keeps_to_the_limits(
    rows: list[int], measured: list[tuple[float, float]], share: float
) -> None:
    lanes = [lane_of(count, index) for index, count in enumerate(rows)]
    scheduler = Scheduler(OF, share)
    for served, (prompt_seconds, window_seconds) in enumerate(measured, 1):
        filling = any(lane.state is State.FILLING for lane in lanes)
        decoding = sum(lane.state is State.DECODING for lane in lanes)
        work = scheduler.choose(lanes)
        assert sum(len(chunk.tokens) for chunk in work.chunks) <= OF.chunk_rows
        assert len(work.rows) == min(decoding, OF.window_rows)
        assert work.rows or (filling and work.chunks), "a round without work"
        numbers = [chunk.lane for chunk in work.chunks] + [row.lane for row in work.rows]
        assert len(set(numbers)) == len(numbers)
        for chunk in work.chunks:
            assert chunk.start % OF.kda_chunk == 0
            assert chunk.last or len(chunk.tokens) % OF.kda_chunk == 0
        follow(lanes, work, served)
        scheduler.measured(work, prompt_seconds if work.chunks else 0.0, window_seconds)


@given(prompts, st.lists(st.integers(1, 16), max_size=40))
def test_the_oldest_prompt_has_half_of_any_two_passes(rows: list[int], rain: list[int]) -> None:
    """Whatever arrives behind it, from the second pass on."""
    oldest = lane_of(200, 0)
    others = [lane_of(count, index) for index, count in enumerate(rows, 1)]
    scheduler = Scheduler(shape(lanes=64), 0.5)
    got = []
    for number, fresh in enumerate(rain):
        others.append(lane_of(fresh, 10 + number))
        work = scheduler.choose([oldest, *others])
        lanes = {lane.index: lane for lane in [oldest, *others]}
        for chunk in work.chunks:
            lanes[chunk.lane].fill(len(chunk.tokens))
        if not oldest.rows_left:
            break
        got.append(sum(len(chunk.tokens) for chunk in work.chunks if chunk.lane == 0))
        others = [lane for lane in others if lane.rows_left]
    for first, second in itertools.pairwise(got):
        assert first + second >= OF.chunk_rows // 2


def test_an_old_prompt_that_stopped_at_its_mark_does_not_go_first_for_it() -> None:
    """Nobody took anything from it; the shorter one goes first."""
    old, new = lane_of(60, 0), lane_of(50, 1)
    old.mark(4)
    scheduler = Scheduler(shape(chunk_rows=16), 0.5)
    scheduler._oldest_first = True
    work = scheduler.choose([old, new])
    assert [(chunk.lane, len(chunk.tokens)) for chunk in work.chunks] == [(0, 4), (1, 12)]
    follow([old, new], work, 1)
    work = scheduler.choose([old, new])
    assert [(chunk.lane, len(chunk.tokens)) for chunk in work.chunks] == [(1, 16)]


def test_a_chunk_ends_at_each_mark() -> None:
    lane = lane_of(40, 0)
    for at in (8, 12, 32):
        lane.mark(at)
    scheduler = Scheduler(shape(chunk_rows=16), 0.5)
    ends = []
    while lane.rows_left:
        work = scheduler.choose([lane])
        ends.append(work.chunks[0].start + len(work.chunks[0].tokens))
        follow([lane], work, 1)
    assert ends == [8, 12, 28, 32, 40]


def test_an_empty_house_has_no_work() -> None:
    assert Scheduler(OF, 0.5).choose([]) == Work((), ())
