"""A rank refuses by name whatever does not follow from what it knows, and stays as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from streamglm.errors import BadStep, RanksDiffer, StepRefused
from streamglm.pool.pages import book_digest
from streamglm.ranks.mirror import Mirror
from streamglm.step import Begin, Chunk, Draw, Drawn, Row, Step, pack
from support.fakes import shape, spec_numbers

DRAW = Draw(0.0, 0, 1.0, 0.0, 0)
OF = shape(pages=20, lanes=3)
TEN = tuple(range(10))
HELD = {0: (4, 5), 1: (7, 6, 9)}
"""Lane 0 decodes and its next row is 12; lane 1 fills and its next row is 8."""


@dataclass(frozen=True)
class Case:
    """A step on top of the lanes above, and the words of its refusal."""

    step: Step
    text: str
    leases: dict[int, tuple[int, ...]] | None = None
    """The book after the step, when it differs from HELD."""


def known() -> Mirror:
    mirror = Mirror(spec_numbers(OF), OF.pages, OF.lanes)
    begins = tuple(Begin(lane, pages, DRAW) for lane, pages in HELD.items())
    first = Step(begins=begins, chunks=(Chunk(0, 0, TEN, True),))
    second = Step(chunks=(Chunk(1, 0, TEN[:8], False),), rows=(Row(0, 10, 3),))
    for step in (first, second, Step(rows=(Row(0, 11, 4),))):
        mirror.check(step, book_digest(HELD.items()))
        mirror.apply(step)
    return mirror


def begin(lane: int, *pages: int) -> Begin:
    return Begin(lane, pages, DRAW)


def drawn(*, seen: bytes = b"", **changed: Any) -> Step:
    """Lane 2 begins with another draw."""
    return Step(begins=(Begin(2, (1,), msgspec.structs.replace(DRAW, **changed), seen=seen),))


REFUSED_DRAWS = {
    "temperature": (drawn(temperature=-0.5), "temperature is -0.5"),
    "temperature of nan": (drawn(temperature=float("nan")), "temperature is nan"),
    "top_k": (drawn(top_k=-1), "top_k is -1"),
    "top_p of nothing": (drawn(top_p=0.0), "top_p is 0.0"),
    "top_p": (drawn(top_p=1.5), "top_p is 1.5"),
    "min_p": (drawn(min_p=1.5), "min_p is 1.5"),
    "repetition of zero": (drawn(repetition_penalty=0.0, seen=b"\1"), "repetition_penalty is 0.0"),
    "presence": (drawn(presence_penalty=float("inf")), "presence_penalty is inf"),
    "frequency": (drawn(frequency_penalty=float("nan")), "frequency_penalty is nan"),
    "bias of an id past the end": (drawn(bias=((50, 1.0),)), "bias has an id that is not below 50"),
    "bias of an id below zero": (drawn(bias=((-1, 1.0),)), "bias has an id"),
    "bias twice": (drawn(bias=((3, 1.0), (3, 2.0))), "bias has ids out of order"),
    "bias out of order": (drawn(bias=((9, 1.0), (3, 2.0))), "bias has ids out of order"),
    "bias without end": (drawn(bias=((3, float("inf")),)), "bias has a value that is not finite"),
    "mask past the end": (drawn(allowed=pack([3, 50])), "allowed has id 50, not below 50"),
    "mask of zeros": (drawn(allowed=b"\0"), "allowed ends in zeros"),
    "too many alternatives": (drawn(logprobs=21), "logprobs is 21"),
    "alternatives below zero": (drawn(logprobs=-1), "logprobs is -1"),
    "a history without a penalty": (drawn(seen=pack([1])), "do not go together"),
    "a penalty without a history": (drawn(repetition_penalty=1.1), "do not go together"),
    "a history past the end": (
        drawn(repetition_penalty=1.1, seen=pack([50])),
        "its history has id 50",
    ),
}


REFUSED = {
    "unknown lane ended": Case(Step(ends=(2,)), "lane 2 is ended, but it was never begun"),
    "ended twice": Case(Step(ends=(0, 0)), "lane 0 is ended 2 times"),
    "begun twice": Case(Step(begins=(begin(0, 1),)), "lane 0 is begun twice"),
    "begun twice in a step": Case(
        Step(begins=(begin(2, 1), begin(2, 2))), "lane 2 is begun 2 times"
    ),
    "no such lane": Case(Step(begins=(begin(3, 1),)), "this rank has 3 lanes"),
    "lane below zero": Case(Step(begins=(begin(-1, 1),)), "lane -1"),
    "no page": Case(Step(begins=(begin(2),)), "without a page"),
    "page past the pool": Case(Step(begins=(begin(2, 3, 20),)), "page 20 is out of range"),
    "page below zero": Case(Step(begins=(begin(2, -1),)), "page -1 is out of range"),
    "page twice in a lane": Case(Step(begins=(begin(2, 3, 3),)), "page 3 is mapped by lane 2 2"),
    "page of another lane": Case(Step(begins=(begin(2, 1, 7),)), "page 7 is mapped by another"),
    "page of another begin": Case(
        Step(ends=(0,), begins=(begin(0, 1), begin(2, 1))), "page 1 is mapped by another lane"
    ),
    "chunk of an unknown lane": Case(Step(chunks=(Chunk(2, 0, TEN, True),)), "lane 2 is unknown"),
    "chunk of an ended lane": Case(
        Step(ends=(1,), chunks=(Chunk(1, 8, TEN, True),)),
        "lane 1 is unknown",
        {0: HELD[0]},
    ),
    "chunk of a complete prompt": Case(
        Step(chunks=(Chunk(0, 12, TEN, True),)), "its prompt is complete"
    ),
    "chunk too early": Case(Step(chunks=(Chunk(1, 4, TEN, True),)), "its next row is 8"),
    "chunk too late": Case(Step(chunks=(Chunk(1, 12, TEN, True),)), "its next row is 8"),
    "empty chunk": Case(Step(chunks=(Chunk(1, 8, (), True),)), "holds no row"),
    "chunk off the grid": Case(
        Step(chunks=(Chunk(1, 8, TEN[:3], False),)), "ends at 11, off the grid of 4"
    ),
    "chunk past its pages": Case(
        Step(chunks=(Chunk(1, 8, TEN + TEN[:7], True),)), "ends at 25, past its 3 pages"
    ),
    "token past the vocabulary": Case(
        Step(chunks=(Chunk(1, 8, (50,), True),)), "a token that is not below 50"
    ),
    "token below zero": Case(Step(rows=(Row(0, 12, -1),)), "a token that is not below 50"),
    "row of a prompt": Case(Step(rows=(Row(1, 8, 1),)), "its prompt is not complete"),
    "row at another position": Case(Step(rows=(Row(0, 13, 1),)), "its next row is 12"),
    "row of an unknown lane": Case(Step(rows=(Row(2, 0, 1),)), "lane 2 is unknown"),
    "lane in both passes": Case(
        Step(chunks=(Chunk(1, 8, TEN, True),), rows=(Row(1, 18, 1),)), "lane 1 is computed 2"
    ),
    "pass too large": Case(
        Step(chunks=(Chunk(1, 8, TEN, True), Chunk(2, 0, TEN, True)), begins=(begin(2, 1, 2),)),
        "a prompt pass of 20 rows; at most 16",
        {**HELD, 2: (1, 2)},
    ),
    "digest of another book": Case(Step(rows=(Row(0, 12, 1),)), "digest", {0: (5, 4)}),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_step_that_does_not_fit_is_refused_and_nothing_changes(case: Case) -> None:
    mirror = known()
    leases = HELD if case.leases is None else case.leases
    with pytest.raises((BadStep, RanksDiffer), match=case.text):
        mirror.check(case.step, book_digest(leases.items()))
    good = Step(chunks=(Chunk(1, 8, TEN, True),), rows=(Row(0, 12, 1),))
    mirror.check(good, book_digest(HELD.items()))
    assert (mirror.live, mirror.mapped_pages) == ((0, 1), 5)


def test_a_window_too_wide_is_refused() -> None:
    of = shape(lanes=5, window_rows=4)
    mirror = Mirror(spec_numbers(of), of.pages, of.lanes)
    digest = book_digest((lane, (lane,)) for lane in range(5))
    begins = tuple(begin(lane, lane) for lane in range(5))
    step = Step(begins=begins, chunks=tuple(Chunk(lane, 0, (1,), True) for lane in range(5)))
    mirror.check(step, digest)
    mirror.apply(step)
    rows = tuple(Row(lane, 1, 1) for lane in range(5))
    mirror.check(Step(rows=rows[:4]), digest)
    with pytest.raises(StepRefused, match="a window of 5 rows; at most 4"):
        mirror.check(Step(rows=rows), digest)


def test_a_row_past_its_pages_is_refused() -> None:
    mirror = known()
    held = book_digest(HELD.items())
    for position in range(12, 16):
        step = Step(rows=(Row(0, position, 1),))
        mirror.check(step, held)
        mirror.apply(step)
    with pytest.raises(StepRefused, match="ends at 17, past its 2 pages"):
        mirror.check(Step(rows=(Row(0, 16, 1),)), held)


def test_ends_come_before_begins_so_that_lane_and_pages_can_be_reused_at_once() -> None:
    mirror = known()
    step = Step(ends=(0,), begins=(begin(0, 5, 4, 1),), chunks=(Chunk(0, 0, TEN, True),))
    leases = {0: (5, 4, 1), 1: HELD[1]}
    mirror.check(step, book_digest(leases.items()))
    mirror.apply(step)
    mirror.check(Step(rows=(Row(0, 10, 1),)), book_digest(leases.items()))
    assert mirror.mapped_pages == 6


def test_an_idle_rank_holds_nothing() -> None:
    mirror = known()
    step = Step(ends=(0, 1))
    mirror.check(step, 0)
    mirror.apply(step)
    assert (mirror.live, mirror.mapped_pages) == ((), 0)


@pytest.mark.parametrize(("step", "text"), REFUSED_DRAWS.values(), ids=REFUSED_DRAWS)
def test_a_draw_that_no_sampler_can_use_is_refused(step: Step, text: str) -> None:
    mirror = known()
    with pytest.raises(StepRefused, match="lane 2 is begun, but") as caught:
        mirror.check(step, book_digest([*HELD.items(), (2, (1,))]))
    assert text in caught.value.message
    assert mirror.live == (0, 1)


def test_a_draw_at_every_edge_is_taken() -> None:
    edges = drawn(
        temperature=0.0,
        top_p=1e-9,
        min_p=1.0,
        repetition_penalty=0.01,
        presence_penalty=-2.0,
        frequency_penalty=2.0,
        bias=((0, -100.0), (49, 100.0)),
        allowed=pack([49]),
        logprobs=20,
        seen=pack([0, 49]),
    )
    known().check(edges, book_digest([*HELD.items(), (2, (1,))]))


WIDE = shape(pages=20, lanes=3, slack=4, window_rows=6)


def drafting(*, follow: bool = True) -> Mirror:
    """Lane 0 with 4 pages decodes and its next row is 10."""
    mirror = Mirror(spec_numbers(WIDE), WIDE.pages, WIDE.lanes)
    begins = (Begin(0, (4, 5, 6, 7), DRAW, drafts=follow), Begin(1, (8, 9), DRAW))
    first = Step(begins=begins, chunks=(Chunk(0, 0, TEN, True, 3 if follow else 0),))
    mirror.check(first, book_digest([(0, (4, 5, 6, 7)), (1, (8, 9))]))
    mirror.apply(first, (Drawn(0, (3,), drafts=(1, 2, 3)),))
    return mirror


def at(position: int, *drafts: int, ahead: int = 0) -> Step:
    return Step(rows=(Row(0, position, 3, drafts, ahead),))


REFUSED_DRAFTS = {
    "a draft that is no token": (at(10, 4, 50), "a token that is not below 50"),
    "more rows than a lane may have": (at(10, 1, 2, 3, 4), "has 5 rows; at most 4 a lane"),
    "more drafts than a window takes": (at(10, ahead=4), "asks for 4 drafts; at most 3"),
    "fewer than none": (at(10, ahead=-1), "asks for -1 drafts"),
    "drafts in the middle of a prompt": (
        Step(chunks=(Chunk(1, 0, TEN[:8], False, 1),)),
        "asks for drafts, but the lane is not followed",
    ),
    "rows past the pages": (at(31, 1), "its next row is 10"),
}


@pytest.mark.parametrize("name", REFUSED_DRAFTS)
def test_drafts_that_do_not_fit_are_refused(name: str) -> None:
    step, text = REFUSED_DRAFTS[name]
    with pytest.raises(StepRefused, match=text):
        drafting().check(step, book_digest([(0, (4, 5, 6, 7)), (1, (8, 9))]))


def test_the_next_row_stands_behind_what_was_drawn() -> None:
    """Not behind the rows that were written: those of false drafts are as if they never were."""
    mirror, book = drafting(), book_digest([(0, (4, 5, 6, 7)), (1, (8, 9))])
    mirror.check(at(10, 1, 2, 3, ahead=2), book)
    mirror.apply(at(10, 1, 2, 3, ahead=2), (Drawn(0, (1, 2)),))
    mirror.check(at(12), book)
    with pytest.raises(StepRefused, match="its next row is 12"):
        mirror.check(at(14), book)


def test_a_lane_that_is_not_followed_has_no_drafts_ahead() -> None:
    mirror, book = drafting(follow=False), book_digest([(0, (4, 5, 6, 7)), (1, (8, 9))])
    mirror.check(at(10, 1, 2), book)
    with pytest.raises(StepRefused, match="not followed"):
        mirror.check(at(10, 1, 2, ahead=1), book)


def test_rows_of_the_next_token_layer_need_pages_too() -> None:
    """32 rows of pages: rows 28 to 30, then the layer's row 31 for the last token drawn."""
    mirror, book = drafting(), book_digest([(0, (4, 5, 6, 7)), (1, (8, 9))])
    for position in range(10, 28):
        mirror.apply(at(position), (Drawn(0, (1,)),))
    mirror.check(at(28, 1, 2), book)
    mirror.check(at(28, 1, 2, ahead=1), book)
    for step in (at(28, 1, 2, 3), at(28, 1, 2, ahead=2), at(28, 1, ahead=3)):
        with pytest.raises(StepRefused, match=r"ends at 33, past its 4 pages"):
            mirror.check(step, book)


def test_a_window_is_full_by_its_rows_and_not_by_its_lanes() -> None:
    mirror, book = drafting(), book_digest([(0, (4, 5, 6, 7)), (1, (8, 9))])
    prompt = Step(chunks=(Chunk(1, 0, TEN[:8], True),))
    mirror.check(prompt, book)
    mirror.apply(prompt, (Drawn(1, (1,)),))
    mirror.check(Step(rows=(Row(0, 10, 3, (1, 2)), Row(1, 8, 1, (1, 2)))), book)
    with pytest.raises(StepRefused, match="a window of 7 rows; at most 6"):
        mirror.check(Step(rows=(Row(0, 10, 3, (1, 2, 3)), Row(1, 8, 1, (1, 2)))), book)
