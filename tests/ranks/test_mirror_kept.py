"""A rank refuses by name what does not fit the states it keeps, and stays as it was.

Lane 0 has kept its first two pages as state 10 in slot 1, at 16, and its first page in a device
buffer, as state 11; state 12 is in host memory. Lane 0 fills and stands at 16.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from streamglm.errors import BadStep, RanksDiffer, StepRefused
from streamglm.pool.pages import book_digest, state_digest
from streamglm.ranks.mirror import Mirror
from streamglm.step import Begin, Chunk, Demote, Draw, Drop, Restore, Save, Step
from support.fakes import shape, spec_numbers

DRAW = Draw(0.0, 0, 1.0, 0.0, 0)
OF = shape(pages=20, lanes=4)
SLOTS = 3
EIGHT = tuple(range(8))
PAGES = (4, 5, 6, 7)
STATES = {10: (1, 16, (4, 5)), 11: (-1, 8, ()), 12: (-2, 8, ())}

Leases = dict[int, tuple[int, ...]]
States = dict[int, tuple[int, int, tuple[int, ...]]]


def digest_of(leases: Leases, states: States) -> int:
    digest = book_digest(leases.items())
    for state, (place, at, pages) in states.items():
        digest ^= state_digest(state, place, at, pages)
    return digest


def known() -> Mirror:
    mirror = Mirror(spec_numbers(OF), OF.pages, OF.lanes, SLOTS)
    first = Step(
        begins=(Begin(0, PAGES, DRAW),),
        chunks=(Chunk(0, 0, EIGHT, False),),
        saves=(Save(11, 0, -1, False, 8), Save(12, 0, -1, True, 8)),
    )
    second = Step(chunks=(Chunk(0, 8, EIGHT, False),), saves=(Save(10, 0, 1, False, 16),))
    for step, states in ((first, {}), (second, {11: STATES[11], 12: STATES[12]})):
        mirror.check(step, digest_of({0: PAGES}, states))
        mirror.apply(step)
    assert set(mirror.kept) == set(STATES)
    return mirror


@dataclass(frozen=True)
class Case:
    """A step on top of the above, and the words of its refusal; the book after it."""

    step: Step
    text: str
    leases: Leases | None = None
    states: States | None = None


def begin(lane: int, pages: tuple[int, ...], *restore: int) -> Step:
    return Step(begins=(Begin(lane, pages, DRAW, Restore(*restore) if restore else None),))


def save(*given: int, lane: int = 0, host: bool = False) -> Step:
    state, slot, at = given
    return Step(chunks=(Chunk(0, 16, EIGHT, False),), saves=(Save(state, lane, slot, host, at),))


def move(*moves: Demote | Drop) -> Step:
    return Step(moves=moves)


REFUSED = {
    "drop of nothing": Case(move(Drop(9)), "state 9 is moved, but it is not kept here"),
    "dropped twice": Case(move(Drop(10), Drop(10)), "state 10 is moved, but it is not kept"),
    "demote of nothing": Case(move(Demote(9, 0, 8, (1,))), "state 9 is moved, but"),
    "demote after a drop": Case(move(Drop(11), Demote(11, -1, 8, ())), "state 11 is moved, but"),
    "demote from another slot": Case(move(Demote(10, 0, 16, (4, 5))), "from slot 0"),
    "demote at another mark": Case(move(Demote(10, 1, 8, (4, 5))), "at 8 with pages"),
    "demote of other pages": Case(move(Demote(10, 1, 16, (4, 6))), "with pages \\(4, 6\\)"),
    "demote of a copy with pages": Case(move(Demote(11, -1, 8, (4,))), "with pages \\(4,\\)"),
    "demote of what is in host memory": Case(move(Demote(12, -1, 8, ())), "is in host memory"),
    "restore of nothing": Case(begin(1, (8,), 9, 0, 8), "restores state 9, but it is not kept"),
    "restore of what is dropped": Case(
        Step(moves=(Drop(11),), begins=(Begin(1, (8, 9), DRAW, Restore(11, -1, 8)),)),
        "restores state 11, but it is not kept",
    ),
    "restore from another slot": Case(begin(1, (4, 5, 8), 10, 2, 16), "but it is in 1 at 16"),
    "restore at another mark": Case(begin(1, (4, 5, 8), 10, 1, 8), "but it is in 1 at 16"),
    "restore of a copy from a slot": Case(begin(1, (8, 9), 11, 0, 8), "but it is in -1 at 8"),
    "restore with pages of its own": Case(
        begin(1, (8, 9, 3), 10, 1, 16), "its first pages are not the state's"
    ),
    "restore in another order": Case(begin(1, (5, 4, 8), 10, 1, 16), "are not the state's"),
    "restore that leaves no row": Case(begin(1, (4, 5), 10, 1, 16), "at 16, past its 2 pages"),
    "a copy that leaves no row": Case(begin(1, (8,), 11, -1, 8), "at 8, past its 1 pages"),
    "a third page that is a lane's": Case(
        begin(1, (4, 5, 6), 10, 1, 16), "page 6 is mapped by another lane"
    ),
    "shared without a restore": Case(begin(1, (4, 8)), "page 4 is mapped by another lane"),
    "shared with a copy": Case(begin(1, (4, 8), 11, -1, 8), "page 4 is mapped by another"),
    "page of a state": Case(
        Step(ends=(0,), begins=(Begin(1, (4, 8), DRAW),)), "page 4 is held by a kept state"
    ),
    "saved under a known number": Case(save(10, 0, 24), "kept as state 10, which is kept already"),
    "saved into a full slot": Case(save(13, 1, 24), "in slot 1, which is full"),
    "saved past the slots": Case(save(13, 3, 24), "in slot 3; this rank has 3 slots"),
    "saved below the slots": Case(save(13, -2, 24), "in slot -2; this rank has 3 slots"),
    "saved in a slot of host memory": Case(save(13, 0, 24, host=True), "in slot 0"),
    "saved too early": Case(save(13, 0, 16), "kept at 16, but it stands at 24"),
    "saved too late": Case(save(13, 0, 32), "kept at 32, but it stands at 24"),
    "saved off the pages": Case(
        Step(chunks=(Chunk(0, 16, EIGHT[:4], False),), saves=(Save(13, 0, 0, False, 20),)),
        "kept at 20, not a whole number of pages of 8",
    ),
    "saved at the end": Case(
        Step(chunks=(Chunk(0, 16, EIGHT, True),), saves=(Save(13, 0, 0, False, 24),)),
        "kept at 24, but its prompt is complete",
    ),
    "saved before the first row": Case(
        Step(begins=(Begin(1, (8,), DRAW),), saves=(Save(13, 1, 0, False, 0),)),
        "kept at 0, not a whole number",
        {0: PAGES, 1: (8,)},
    ),
    "saved twice in a step": Case(
        Step(
            chunks=(Chunk(0, 16, EIGHT, False),),
            saves=(Save(13, 0, 0, False, 24), Save(13, 0, 2, False, 24)),
        ),
        "state 13, which is kept already",
    ),
    "two in one slot": Case(
        Step(
            chunks=(Chunk(0, 16, EIGHT, False),),
            saves=(Save(13, 0, 0, False, 24), Save(14, 0, 0, False, 24)),
        ),
        "in slot 0, which is full",
    ),
    "saved by nobody": Case(save(13, 0, 24, lane=2), "lane 2 is unknown"),
    "a store that forgot a state": Case(
        Step(chunks=(Chunk(0, 16, EIGHT, False),)), "digest", None, {10: STATES[10]}
    ),
    "a store that has it elsewhere": Case(move(Demote(10, 1, 16, (4, 5))), "digest", None, STATES),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_and_nothing_changes(case: Case) -> None:
    mirror = known()
    leases: Leases = {0: PAGES} if case.leases is None else case.leases
    states = STATES if case.states is None else case.states
    with pytest.raises((BadStep, RanksDiffer), match=case.text):
        mirror.check(case.step, digest_of(leases, states))
    assert set(mirror.kept) == set(STATES)
    good = Step(
        begins=(Begin(1, (4, 5, 8), DRAW, Restore(10, 1, 16)),),
        chunks=(Chunk(0, 16, EIGHT, False), Chunk(1, 16, EIGHT, True)),
        saves=(Save(13, 0, 0, False, 24),),
    )
    mirror.check(good, digest_of({0: PAGES, 1: (4, 5, 8)}, STATES))


def follow(mirror: Mirror, step: Step, leases: Leases, states: States) -> None:
    mirror.check(step, digest_of(leases, states))
    mirror.apply(step)


def test_heirs_share_the_pages_of_a_state_and_go_on_at_its_mark() -> None:
    mirror = known()
    heirs = tuple(
        Begin(lane, (4, 5, page), DRAW, Restore(10, 1, 16)) for lane, page in ((1, 8), (2, 9))
    )
    leases = {0: PAGES, 1: (4, 5, 8), 2: (4, 5, 9)}
    chunks = (Chunk(1, 16, EIGHT[:4], False), Chunk(2, 16, EIGHT[:4], True))
    follow(mirror, Step(begins=heirs, chunks=chunks), leases, STATES)
    assert mirror.mapped_pages == 6
    with pytest.raises(StepRefused, match="its next row is 20"):
        mirror.check(Step(chunks=(Chunk(1, 16, EIGHT, True),)), digest_of(leases, STATES))


def test_pages_outlive_the_state_and_the_donor_while_an_heir_lives() -> None:
    mirror = known()
    follow(mirror, begin(1, (4, 5, 8), 10, 1, 16), {0: PAGES, 1: (4, 5, 8)}, STATES)
    left = {11: STATES[11], 12: STATES[12]}
    follow(mirror, Step(ends=(0,), moves=(Drop(10),)), {1: (4, 5, 8)}, left)
    taken = Step(begins=(Begin(2, (6, 4), DRAW),))
    with pytest.raises(StepRefused, match="page 4 is mapped by another lane"):
        mirror.check(taken, digest_of({1: (4, 5, 8), 2: (6, 4)}, left))
    follow(mirror, Step(ends=(1,), begins=(Begin(2, (6, 4), DRAW),)), {2: (6, 4)}, left)


def test_a_demoted_state_gives_its_pages_and_its_slot_and_is_restored_from_host_memory() -> None:
    """All in one step: the moves come first."""
    mirror = known()
    step = Step(
        ends=(0,),
        moves=(Demote(10, 1, 16, (4, 5)), Drop(11)),
        begins=(Begin(1, (4, 5, 6), DRAW, Restore(10, -1, 16)), Begin(2, (7,), DRAW)),
        chunks=(Chunk(1, 16, EIGHT[:4], True), Chunk(2, 0, EIGHT, False)),
        saves=(Save(13, 2, 1, False, 8),),
    )
    states = {10: (-2, 16, ()), 12: STATES[12]}
    follow(mirror, step, {1: (4, 5, 6), 2: (7,)}, states)
    assert {kept.number: kept.place for kept in mirror.kept.values()} == {10: -2, 12: -2, 13: 1}


def test_a_rank_without_work_still_holds_what_is_kept() -> None:
    mirror = known()
    follow(mirror, Step(ends=(0,)), {}, STATES)
    assert (mirror.live, mirror.mapped_pages, set(mirror.kept)) == ((), 0, set(STATES))
    follow(mirror, Step(moves=(Drop(10), Drop(11), Drop(12))), {}, {})
    assert not mirror.kept
    follow(mirror, begin(0, tuple(range(20))), {0: tuple(range(20))}, {})
