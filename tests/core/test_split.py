"""The latent split in the rounds: classes of pages, owners, homes, and what is carried.

The ranks are fakes with a rank's own checks and with pages that hold what was written: a reply
whose rows were not shared, carried or computed as they must be is an AssertionError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from streamglm.core import keeping
from streamglm.core.engine import Reply
from streamglm.core.keeping import Keeping, PromptCache
from streamglm.core.service import EngineService
from streamglm.errors import PoolTooSmall, SettingError
from streamglm.pool import placing
from streamglm.pool.pages import PageBook
from streamglm.request import Started
from streamglm.step import Step
from support.busy import Day, busy
from support.clock import Deadlock
from support.fakes import FakeRanks, shape
from support.house import House, cache_of, read, request, rounds

CACHES = {
    "slots": cache_of(slots=6),
    "slots-and-host": cache_of(slots=3, host=3000),
    "copies-and-host": PromptCache(
        budget=4000,
        host=2000,
        state_bytes=lambda at: 100 + 10 * at,
        away_bytes=lambda at: 100 + 2 * at,
    ),
}


EACH = 14
"""Pages of a class for a busy day: little more than the longest request."""


def split(world: int, each: int = 20, **numbers: Any) -> Any:
    """A shape with `each` pages a class that may be leased, and a trash page a class."""
    return shape(pages=world * (each + 1), classes=world, **numbers)


def run(world: int, cache: PromptCache, count: int, seed: int = 1) -> tuple[Day, list[Step]]:
    days: list[Day] = []
    steps: list[Step] = []

    async def body(engine: EngineService) -> None:
        days.append(await busy(engine, count, seed))
        ranks = engine.rounds._ranks
        assert isinstance(ranks, FakeRanks)
        steps.extend(ranks.steps)

    House("fake").run(body, split(world, EACH, turn_ids=frozenset({7})), cache=cache)
    return days[0], steps


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("cache", CACHES.values(), ids=CACHES)
def test_hundreds_of_requests_over_classes_are_what_they_are_alone(
    cache: PromptCache, world: int
) -> None:
    """J10 on the engine. Also shows that the day means something: every class owned lanes, and
    resumes were both at home and off it."""
    day, steps = run(world, cache, 400)
    assert min(day.resumed, day.left) > 50
    begins = [begin for step in steps for begin in step.begins]
    carries = [carry for step in steps for carry in step.carries]
    owners = {begin.pages[0] % world for begin in begins}
    assert owners == set(range(world))
    assert all({page % world for page in one.pages} == {one.pages[0] % world} for one in begins)
    trash = world * EACH
    assert max(page for one in begins for page in one.pages) < trash
    assert 5 < len(carries) < day.resumed - 5
    buffers = cache.host > 0 or not cache.slots
    assert {bool(carry.sources) for carry in carries} <= {cache.slots > 0, not buffers}


async def started(reply: Reply) -> int:
    async for event in reply:
        if isinstance(event, Started):
            return event.cached_tokens
    raise AssertionError("a reply without a start")


def last(engine: EngineService) -> Step:
    ranks = engine.rounds._ranks
    assert isinstance(ranks, FakeRanks)
    return next(step for step in reversed(ranks.steps) if step.begins)


PROMPT = tuple(i % 50 for i in range(50))
"""Six pages before its last mark."""


def classes_of(engine: EngineService) -> list[int]:
    """The class of each live lane, by its number."""
    return [engine.rounds.book.pages(lane)[0] % 2 for lane in sorted(engine.rounds.live)]


def test_a_resume_goes_home_while_home_has_the_pages() -> None:
    """Fails when the home is ignored: class 1 is the roomier one."""

    async def body(engine: EngineService) -> None:
        await read(engine.submit(request(PROMPT, 5)))
        state = next(iter(engine.rounds.keeping.kept._states.values()))
        other = engine.submit(request(10, 20, seed=3))
        assert classes_of(engine) == [1]
        assert [engine.rounds.book.free_in(home) for home in (0, 1)] == [14, 16]
        heir = engine.submit(request(PROMPT, 5))
        assert await started(heir) == state.at == 48
        assert classes_of(engine) == [1, state.home] == [1, 0]
        assert last(engine).carries == ()
        for reply in (heir, other):
            await read(reply)

    House("fake").run(body, split(2), cache=cache_of(slots=6))


async def full_home(engine: EngineService) -> Sequence[Reply]:
    """Keep PROMPT in class 0, and fill that class; seven pages of class 1 are free."""
    await read(engine.submit(request(PROMPT, 5)))
    lengths = (84, 92)
    if not engine.rounds.keeping.kept._slots.total:  # a copy leaves class 0 as roomy as class 1
        lengths = (140, 84)
    asked = [request(20, length, seed=length) for length in lengths]
    hogs = [engine.submit(one) for one in asked]
    assert sorted(classes_of(engine)) == [0, 1]
    assert [engine.rounds.book.free_in(home) for home in (0, 1)] == [0, 7]
    return hogs


@pytest.mark.parametrize("cache", [cache_of(slots=6), CACHES["copies-and-host"]])
def test_a_resume_off_its_home_leases_all_pages_anew_and_has_its_rows_carried(
    cache: PromptCache,
) -> None:
    async def body(engine: EngineService) -> None:
        hogs = await full_home(engine)
        kept = engine.rounds.keeping.kept
        state = next(iter(kept._states.values()))
        heir = engine.submit(request(PROMPT, 5))
        assert await started(heir) == 48
        step = last(engine)
        (carry,) = step.carries
        assert (carry.state, carry.home, carry.owner, carry.at) == (state.id, 0, 1, 48)
        assert carry.sources == (kept.shared_pages(state.id) if cache.slots else ())
        begin = next(one for one in step.begins if one.lane == carry.lane)
        assert carry.pages == begin.pages[:6]
        assert {page % 2 for page in begin.pages} == {1}
        for reply in (heir, *hogs):
            await read(reply)

    House("fake").run(body, split(2), cache=cache)


def test_a_carry_of_a_reply_that_left_before_its_step_is_not_told() -> None:
    """Fails when `forget` leaves it there: the ranks refuse a carry without its begin."""

    async def body(engine: EngineService) -> None:
        hogs = await full_home(engine)
        heir = engine.submit(request(PROMPT, 5))
        assert len(engine.rounds.keeping._carries) == 1
        heir.stop()
        await rounds(engine, 2)
        assert not engine.rounds.keeping._carries
        for reply in (heir, *hogs):
            await read(reply)

    House("fake").run(body, split(2), cache=cache_of(slots=6))


def test_a_lease_waits_for_one_class_and_not_for_the_sum() -> None:
    """J12. Ten pages free in each of two classes, and twelve are asked for: it waits, although
    twenty are free."""

    async def body(engine: EngineService) -> None:
        first = [engine.submit(request(10, 60, seed=seed)) for seed in range(2)]
        await rounds(engine, 1)
        assert [engine.rounds.book.free_in(home) for home in (0, 1)] == [11, 11]
        large = engine.submit(request(10, 86, seed=9))
        assert engine.stats().waiting["pages"] == 1
        for reply in first:
            await read(reply)
        await read(large)

    House("fake").run(body, split(2), cache=PromptCache())


@pytest.mark.parametrize("world", [2, 3])
def test_what_no_class_can_hold_is_refused_with_a_pool_that_can(world: int) -> None:
    async def body(engine: EngineService) -> None:
        with pytest.raises(PoolTooSmall) as caught:
            engine.submit(request(100, 61))
        assert f"each of {world} classes of pages holds 20 pages, 160 tokens" in str(caught.value)
        assert f"--pool-tokens {world * 22 * 8} or more" in str(caught.value)
        assert await read(engine.submit(request(100, 60)))

    House("fake").run(body, split(world), cache=PromptCache())


@pytest.mark.parametrize(("pages", "classes"), [(5, 2), (4, 4), (4, 0)])
def test_classes_without_a_page_and_a_trash_page_are_refused(pages: int, classes: int) -> None:
    with pytest.raises(SettingError, match="a page and a trash page each"):
        shape(pages=pages, classes=classes)


# -- each piece removed


def carries_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keeping, "carries", lambda self: ())


def carries_from_the_owner(patch: pytest.MonkeyPatch) -> None:
    def turned(*given: Any) -> Any:
        carry = placing.carry_of(*given)
        if carry is None:
            return None
        return type(carry)(
            carry.state, carry.lane, carry.owner, carry.home, carry.at, carry.sources, carry.pages
        )

    patch.setattr(keeping, "carry_of", turned)


def shares_off_home(patch: pytest.MonkeyPatch) -> None:
    """The state's pages in front of pages of another class."""
    real = PageBook.lease

    def lease(self: PageBook, lane: int, count: int, shared: Any = (), *, near: Any = None) -> Any:
        pages = real(self, lane, count, shared, near=near)
        if not shared and len(pages) > 1 and lane % 2:
            self.release(lane)
            home = (pages[0] + 1) % self.classes
            mixed = self._free[home].take(1) if len(self._free[home]) else ()
            rest = self._free[pages[0] % self.classes].take(count - len(mixed))
            pages = mixed + rest
            for page in pages:
                self._leased[page] += 1
            self._leases[lane] = pages
        return pages

    patch.setattr(PageBook, "lease", lease)


def leases_the_trash(patch: pytest.MonkeyPatch) -> None:
    real = PageBook.__init__

    def init(self: PageBook, pages: int, *, classes: int = 1, shuffle: int | None = None) -> None:
        real(self, pages + classes, classes=classes, shuffle=shuffle)

    patch.setattr(PageBook, "__init__", init)


FAULTS = [
    carries_nothing,
    carries_from_the_owner,
    shares_off_home,
    leases_the_trash,
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
def test_a_fault_of_the_split_is_noticed(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((Exception, ExceptionGroup, Deadlock, asyncio.CancelledError)):
        run(2, CACHES["slots"], 400)
