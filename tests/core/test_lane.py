"""A lane makes its legal moves, and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamglm.core.lane import Lane, State
from streamglm.request import FinishReason, Request, Timing
from streamglm.step import Chunk, Row
from support.house import request


def waiting(asked: Request | None = None) -> Lane:
    return Lane(asked or request(prompt=10, max_tokens=3), 1.0, 0)


def filling() -> Lane:
    lane = waiting()
    lane.begin(2, (5, 6), 3.0)
    return lane


def decoding() -> Lane:
    lane = filling()
    lane.fill(8)
    lane.fill(2)
    lane.draw(17, 1, 6.0)
    return lane


def done() -> Lane:
    lane = decoding()
    lane.end(10.0)
    return lane


MOVES: dict[str, Callable[[Lane], object]] = {
    "begin": lambda lane: lane.begin(0, (1, 2), 4.0),
    "mark": lambda lane: lane.mark(8),
    "chunk": lambda lane: lane.chunk(4),
    "fill": lambda lane: lane.fill(4),
    "row": lambda lane: lane.row(),
    "draw": lambda lane: lane.draw(3, 2, 7.0),
    "end": lambda lane: lane.end(9.0),
}
LEGAL = {
    waiting: {"begin", "end"},
    filling: {"mark", "chunk", "fill", "end"},
    decoding: {"row", "draw", "end"},
    done: set[str](),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("state", LEGAL, ids=lambda state: state.__name__)
def test_a_move_is_legal_from_its_states_only(state: Callable[[], Lane], move: str) -> None:
    lane = state()
    if move in LEGAL[state]:
        MOVES[move](lane)
        lane.check(page_rows=8)
    else:
        with pytest.raises(AssertionError):
            MOVES[move](lane)


def test_chunks_cover_the_prompt_and_only_the_last_one_says_so() -> None:
    lane = filling()
    prompt = lane.request.prompt
    assert lane.chunk(4) == Chunk(2, 0, prompt[:4], False)
    lane.fill(4)
    assert lane.chunk(6) == Chunk(2, 4, prompt[4:], True)
    with pytest.raises(AssertionError, match="7 rows, 6 are wanted"):
        lane.chunk(7)


def test_a_chunk_ends_at_a_mark_and_never_passes_it() -> None:
    lane = filling()
    lane.mark(8)
    lane.mark(4)
    assert (lane.rows_wanted, lane.rows_left) == (4, 10)
    with pytest.raises(AssertionError, match="5 rows, 4 are wanted"):
        lane.chunk(5)
    lane.fill(4)
    assert (lane.marks, lane.rows_wanted) == ([8], 4)
    lane.fill(4)
    assert (lane.marks, lane.rows_wanted) == ([], 2)


@pytest.mark.parametrize("at", [0, 4, 10])
def test_a_mark_is_ahead_of_the_lane_and_before_its_end(at: int) -> None:
    lane = filling()
    lane.fill(4)
    with pytest.raises(AssertionError, match=f"mark {at}"):
        lane.mark(at)


def test_a_lane_that_resumes_computes_what_is_left() -> None:
    lane = waiting()
    lane.begin(2, (5, 6), 3.0, start=8)
    assert (lane.start, lane.position, lane.rows_left) == (8, 8, 2)
    assert lane.chunk(2) == Chunk(2, 8, lane.request.prompt[8:], True)
    with pytest.raises(AssertionError, match="nothing to compute"):
        waiting().begin(2, (5, 6), 3.0, start=10)


def test_a_prompt_must_be_whole_before_a_token_is_drawn() -> None:
    lane = filling()
    lane.fill(9)
    with pytest.raises(AssertionError, match="1 prompt rows left"):
        lane.draw(1, 1, 4.0)


def test_rows_stand_at_the_position_of_the_token_they_carry() -> None:
    lane = decoding()
    assert lane.row() == Row(2, 10, 17)
    lane.draw(18, 2, 7.0)
    assert lane.row() == Row(2, 11, 18)


def test_the_last_token_or_an_end_token_ends_the_reply() -> None:
    lane = decoding()
    assert lane.draw(1, 2, 7.0) is None
    assert lane.draw(1, 3, 7.0) is FinishReason.LENGTH
    lane = waiting(request(prompt=1, max_tokens=5, stop_ids=frozenset([4])))
    lane.begin(0, (0,), 1.0)
    lane.fill(1)
    assert lane.draw(3, 1, 2.0) is None
    assert lane.draw(4, 2, 3.0) is FinishReason.STOP


def test_timing_follows_the_moves_and_ends_with_the_lane() -> None:
    assert waiting().timing(4.0) == Timing(queue_seconds=3.0)
    assert filling().timing(5.0) == Timing(queue_seconds=2.0, prefill_seconds=2.0)
    assert decoding().timing(9.0) == Timing(2.0, 3.0, 3.0, rounds=0)
    assert done().timing(99.0) == Timing(2.0, 3.0, 4.0, rounds=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("filled", 11),
        ("start", 11),
        ("marks", [10]),
        ("filled", 9),
        ("drawn", 4),
        ("drawn", 0),
        ("index", -1),
        ("pages", ()),
        ("pages", (1,)),
        ("state", State.DONE),
        ("state", State.FILLING),
    ],
)
def test_check_finds_a_broken_lane(field: str, value: object) -> None:
    lane = decoding()
    lane.check(page_rows=8)
    setattr(lane, field, value)
    with pytest.raises(AssertionError):
        lane.check(page_rows=8)
