"""What a rank refuses of the latent split, on two ranks and on three; and it stays as it was.

Lane 0 is owned by class 0: it has kept its first two pages as state 10 in slot 1, at 16, and its
first page in a buffer, as state 11. It fills, and stands at 16.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import streamglm
from streamglm.errors import BadStep, FrameCut, RanksDiffer, ResidueMismatch, StreamglmError
from streamglm.pool.pages import FreeList, PageBook, book_digest, state_digest
from streamglm.ranks.mirror import Mirror
from streamglm.ranks.wire import FrameWriter, Refused, Work, rank_reader
from streamglm.ranks.worker import Worker
from streamglm.step import Begin, Carry, Chunk, Demote, Draw, Drop, Restore, Save, Step
from support.fakes import shape, spec_numbers
from support.house import settings
from support.stub import StubExecutor

DRAW = Draw(0.0, 0, 1.0, 0.0, 0)
EACH = 10
"""Pages of a class that may be leased; one more is its trash page."""
EIGHT = tuple(range(8))

Leases = dict[int, tuple[int, ...]]
States = dict[int, tuple[int, int, tuple[int, ...], int]]


class Group:
    """One rank of `world`, and what is known of it."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.of = shape(pages=world * (EACH + 1), classes=world, lanes=4)
        self.leases: Leases = {0: self.of_class(0, 0, 1, 2, 3)}
        self.states: States = {10: (1, 16, self.leases[0][:2], 0), 11: (-1, 8, (), 0)}
        self.mirror = Mirror(spec_numbers(self.of), self.of.pages, 4, 3, world)
        first = Step(
            begins=(Begin(0, self.leases[0], DRAW),),
            chunks=(Chunk(0, 0, EIGHT, False),),
            saves=(Save(11, 0, -1, False, 8),),
        )
        second = Step(chunks=(Chunk(0, 8, EIGHT, False),), saves=(Save(10, 0, 1, False, 16),))
        for step, states in ((first, {}), (second, {11: self.states[11]})):
            self.mirror.check(step, digest_of(self.leases, states))
            self.mirror.apply(step)

    def of_class(self, home: int, *places: int) -> tuple[int, ...]:
        return tuple(home + self.world * place for place in places)

    def carried(self, owner: int = 1, lane: int = 1, **changed: Any) -> Step:
        """Lane 1 resumes from state 10 in class `owner`, with its rows carried."""
        pages = self.of_class(owner, 4, 5, 6)
        carry = Carry(10, lane, 0, owner, 16, self.states[10][2], pages[:2])
        begins = (Begin(lane, pages, DRAW, Restore(10, 1, 16)),)
        return Step(begins=begins, carries=(msgspec.structs.replace(carry, **changed),))

    def good(self, step: Step) -> None:
        """`step` is as it must be."""
        self.mirror.check(step, self.digest(step))

    def digest(self, step: Step) -> int:
        """The book behind `step`, as a server would have it."""
        begun = {begin.lane: begin.pages for begin in step.begins}
        left = {lane: pages for lane, pages in self.leases.items() if lane not in step.ends}
        return digest_of({**left, **begun}, self.states)


def digest_of(leases: Leases, states: States) -> int:
    digest = book_digest(leases.items())
    for state, known in states.items():
        digest ^= state_digest(state, *known)
    return digest


@dataclass(frozen=True)
class Case:
    """A step on top of the above, and the name and words of its refusal."""

    step: Callable[[Group], Step]
    error: type[StreamglmError]
    text: str


def begun(lane: int, home: int, *places: int, restore: Restore | None = None) -> Any:
    return lambda group: Step(begins=(Begin(lane, group.of_class(home, *places), DRAW, restore),))


def mixed(group: Group) -> Step:
    """Two pages of class 1, and between them one of the last class, or of the first of two."""
    other = (group.world - 1) if group.world > 2 else 0
    one, two = group.of_class(1, 4, 5)
    return Step(begins=(Begin(1, (one, *group.of_class(other, 6), two), DRAW),))


def shared_off_home(group: Group) -> Step:
    """The state's own pages, and behind them one of class 1."""
    pages = (*group.states[10][2], *group.of_class(1, 4))
    return Step(begins=(Begin(1, pages, DRAW, Restore(10, 1, 16)),))


def without(carry: bool) -> Callable[[Group], Step]:
    """A carry without its begin, or a begin without its carry."""
    part = {"carries": ()} if not carry else {"begins": ()}
    return lambda group: msgspec.structs.replace(group.carried(), **part)


def at_home(group: Group) -> Step:
    pages = (*group.states[10][2], *group.of_class(0, 5))
    carry = Carry(10, 1, 0, 0, 16, group.states[10][2], pages[:2])
    return Step(begins=(Begin(1, pages, DRAW, Restore(10, 1, 16)),), carries=(carry,))


def twice(group: Group) -> Step:
    step = group.carried()
    return msgspec.structs.replace(step, carries=step.carries * 2)


def to_another(group: Group) -> Step:
    """To the third rank of three, to the home of two."""
    step = group.carried()
    wrong = msgspec.structs.replace(step.carries[0], owner=2 % group.world)
    return msgspec.structs.replace(step, carries=(wrong,))


def carried(**changed: Any) -> Callable[[Group], Step]:
    return lambda group: group.carried(**changed)


CASES = {
    "page of another class": Case(mixed, ResidueMismatch, "but its first page is rank 1's"),
    "shared off its home": Case(shared_off_home, ResidueMismatch, "its first page is rank 0's"),
    "trash page": Case(begun(1, 1, 4, EACH), BadStep, "out of range 0 to"),
    "past the trash pages": Case(begun(1, 1, 4, EACH + 1), BadStep, "out of range 0 to"),
    "page twice": Case(begun(1, 1, 4, 4), BadStep, "mapped by lane 1 2 times"),
    "page of another lane": Case(begun(1, 0, 3), BadStep, "mapped by another lane"),
    "lane that is live": Case(begun(0, 1, 4), BadStep, "lane 0 is begun twice"),
    "lane without a page": Case(begun(1, 1), BadStep, "without a page"),
    "unknown lane": Case(lambda _: Step(ends=(3,)), BadStep, "it was never begun"),
    "nothing carried": Case(without(carry=False), BadStep, "and nothing is carried"),
    "nothing carried from a buffer": Case(
        begun(1, 1, 4, 5, restore=Restore(11, -1, 8)), BadStep, "and nothing is carried"
    ),
    "carry without its begin": Case(without(carry=True), BadStep, "does not restore it"),
    "carry at home": Case(at_home, BadStep, "does not restore it off its home"),
    "carried twice": Case(twice, BadStep, "does not restore it off its home"),
    "from another home": Case(carried(home=1), ResidueMismatch, "from rank 1 to 1, but its home"),
    "to another owner": Case(to_another, ResidueMismatch, "the lane's pages are rank 1's"),
    "of another state": Case(carried(state=11), BadStep, "has state 10, 2 pages to 2 up to 16"),
    "up to another mark": Case(carried(at=8), BadStep, "up to 8, but this rank"),
    "from too few pages": Case(carried(sources=(0,)), BadStep, "1 pages to 2"),
    "from other pages": Case(carried(sources=(0, 1)), BadStep, "or they are others"),
    "from a buffer": Case(carried(sources=()), BadStep, "0 pages to 2"),
    "to too many pages": Case(
        lambda group: group.carried(pages=group.of_class(1, 4, 5, 6)), BadStep, "2 pages to 3"
    ),
    "to pages of another class": Case(
        lambda group: group.carried(pages=group.of_class(0, 4, 5)), BadStep, "or they are others"
    ),
}


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_does_not_fit_the_classes_is_refused_and_nothing_changes(
    case: Case, world: int
) -> None:
    group = Group(world)
    step = case.step(group)
    with pytest.raises(case.error, match=case.text) as caught:
        group.good(step)
    assert type(caught.value) is case.error
    assert (group.mirror.live, group.mirror.mapped_pages, len(group.mirror.kept)) == ((0,), 4, 2)
    group.good(group.carried())
    group.good(Step(chunks=(Chunk(0, 16, EIGHT, False),)))


@pytest.mark.parametrize("world", [2, 3])
def test_another_book_is_refused_by_name(world: int) -> None:
    """Of other pages, of another class, and of a state with another home."""
    group = Group(world)
    step = Step(chunks=(Chunk(0, 16, EIGHT, False),))
    for leases, states in (
        ({0: group.of_class(0, 0, 1, 2, 4)}, group.states),
        ({0: group.of_class(1, 0, 1, 2, 3)}, group.states),
        (group.leases, {**group.states, 11: (-1, 8, (), 1)}),
    ):
        with pytest.raises(RanksDiffer, match="the book's digest is"):
            group.mirror.check(step, digest_of(leases, states))
    group.good(step)


@pytest.mark.parametrize("world", [2, 3])
def test_a_carried_lane_owns_its_pages_and_what_it_keeps_is_at_home_there(world: int) -> None:
    """On every other class; the donor's pages stay as they were."""
    for owner in range(1, world):
        group = Group(world)
        step = group.carried(owner)
        group.good(step)
        group.mirror.apply(step)
        group.leases[1] = step.begins[0].pages
        assert group.mirror.mapped_pages == 7
        more = Step(
            chunks=(Chunk(1, 16, EIGHT, False),),
            saves=(Save(12, 1, 0, False, 24), Save(13, 1, -1, False, 24)),
        )
        group.good(more)
        group.mirror.apply(more)
        group.states |= {12: (0, 24, group.leases[1], owner), 13: (-1, 24, (), owner)}
        gone = (Drop(10), Demote(11, -1, 8, ()), Demote(13, -1, 24, ()))
        after = Step(ends=(0,), moves=gone)
        group.states |= {11: (-2, 8, (), 0), 13: (-2, 24, (), owner)}
        del group.states[10]
        group.good(after)
        group.mirror.apply(after)
        del group.leases[0]
        # class 0 again: the state of class `owner` is carried back
        pages = group.of_class(0, 0, 1, 2, 3)
        carry = Carry(12, 2, owner, 0, 24, group.leases[1], pages[:3])
        back = Step(begins=(Begin(2, pages, DRAW, Restore(12, 0, 24)),), carries=(carry,))
        group.good(back)


@pytest.mark.parametrize("world", [2, 3])
def test_a_step_of_each_owner_crosses_the_wire_as_it_is(world: int) -> None:
    """J13. A frame that is cut is refused before anything of it is looked at."""
    for owner in range(1, world):
        step = Group(world).carried(owner)
        frame = FrameWriter().frame(Work(7, step))
        assert rank_reader().feed(frame) == [Work(7, step)]
        reader = rank_reader()
        assert reader.feed(frame[:-1]) == []
        with pytest.raises(FrameCut):
            reader.end()


@pytest.mark.parametrize("world", [2, 3])
def test_a_worker_says_the_name_of_what_it_refuses(world: int) -> None:
    group = Group(world)
    told = msgspec.structs.replace(settings(group.of, slots=3), kv_split=True)
    worker = Worker(told, StubExecutor(50, 8), world=world)
    for step, digest, name in (
        (mixed(group), 0, "ResidueMismatch"),
        (Step(ends=(3,)), 0, "BadStep"),
        (Step(begins=(Begin(0, group.leases[0], DRAW),)), 1, "RanksDiffer"),
    ):
        answer = worker.answer(Work(digest, step))
        assert isinstance(answer, Refused)
        assert answer.name == name


# -- a rank never allocates (J19)


def reachable(root: object) -> set[type]:
    """Types of what `root` holds, however deep: instances of ours and their containers."""
    seen: dict[int, object] = {id(root): root}
    todo = [root]
    while todo:
        for one in gc.get_referents(todo.pop()):
            if id(one) not in seen and not isinstance(one, type):
                seen[id(one)] = one
                if not callable(one) and type(one).__name__ != "module":
                    todo.append(one)
    return {type(one) for one in seen.values()}


def test_a_rank_has_no_list_of_free_pages() -> None:
    """Neither what it holds, nor what its modules name. The walk finds one where there is one."""
    group = Group(3)
    worker = Worker(settings(group.of, slots=3), StubExecutor(50, 8))
    assert {Mirror, StubExecutor} <= reachable(worker)
    assert not {FreeList, PageBook} & reachable(worker)
    assert FreeList in reachable([PageBook(9)])
    package = Path(streamglm.__file__).parent
    files = [path for name in ("ranks", "model") for path in (package / name).rglob("*.py")]
    assert len(files) > 20
    for path in files:
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert not {"FreeList", "PageBook", "KeptStates"} & names, path.name
