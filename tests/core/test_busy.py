"""Thousands of requests with prompts in common, over a pool and slots that are too small for all.

The ranks are fakes with pages and slots of their own: they refuse what does not follow, and read
every row of a lane before they use it. `House` proves at the end that the engine is at rest, that
nothing is borrowed or pending, and that ranks and store agree on what is kept. The second half of
this file takes one piece after another out and asks that this is noticed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from streamglm.core.keeping import Keeping, PromptCache
from streamglm.core.lane import Lane
from streamglm.core.service import EngineService
from streamglm.pool.kept import KeptStates
from streamglm.pool.pages import PageBook
from streamglm.pool.states import State, Tier
from streamglm.ranks import mirror
from streamglm.request import FinishReason
from streamglm.step import Restore
from support.busy import Day, busy
from support.clock import Deadlock
from support.fakes import shape
from support.house import House, cache_of, read, request, tokens_of

OF = shape(pages=40, turn_ids=frozenset({7}))
CACHES = {
    "slots": cache_of(slots=6),
    "slots-and-host": cache_of(slots=3, host=3000),
    "copies-and-host": cache_of(budget=4000, host=2000),
    "host": cache_of(host=3000),
    "no-wait": cache_of(slots=6, wait=0.0),
}


def run(cache: PromptCache, count: int, seed: int = 1) -> tuple[Day, dict[str, Any]]:
    """A day on fake ranks; how it went, and what the store counted."""
    days: list[Day] = []
    counts: dict[str, Any] = {}

    async def body(engine: EngineService) -> None:
        days.append(await busy(engine, count, seed))
        counts.update(engine.rounds.keeping.kept.counts.__getstate__()[1])  # type: ignore[index]

    House("fake").run(body, OF, cache=cache)
    return days[0], counts


@pytest.mark.parametrize("cache", CACHES.values(), ids=CACHES)
def test_a_thousand_requests_are_what_they_are_alone(cache: PromptCache) -> None:
    """Also shows that the day means something: states were found, kept, left and pushed out."""
    day, counts = run(cache, 1000)
    assert min(day.resumed, day.left, counts["kept"], counts["evicted"].total()) > 100
    assert min(counts["abandoned"], counts["misses"]["identity"]) > 20
    if cache.host and (cache.slots or cache.budget):
        assert min(counts["demoted"], counts["hits"][Tier.HOST]) > 50


@pytest.mark.slow
def test_ten_thousand_requests_leave_no_slot_taken_and_nothing_borrowed() -> None:
    day, _ = run(CACHES["slots-and-host"], 10_000, seed=2)
    assert day.left > 2000


@pytest.mark.parametrize("wait", [60.0, 0.0])
def test_strangers_do_not_notice_who_leaves_a_shared_prefix_and_comes_back(wait: float) -> None:
    """CO-14: six streams on one prefix and two strangers; three leave at odd moments and ask again
    at once. In the end eight run side by side, so no lane is lost."""
    of = shape(lanes=8, pages=80)

    async def round_of(engine: EngineService, draw: random.Random) -> None:
        prefix = tuple(draw.randrange(50) for _ in range(40))
        asked = [request((*prefix, *range(i, i + 5)), 12, seed=i) for i in range(6)]
        asked += [request(30 + i, 12, seed=draw.randrange(99)) for i in range(2)]
        replies = [engine.submit(one) for one in asked]
        for place in draw.sample(range(6), 3):
            await asyncio.sleep(draw.uniform(0.001, 0.2))
            replies[place].stop()
            replies.append(engine.submit(asked[place]))
            asked.append(asked[place])
        for reply, one in zip(replies, asked, strict=True):
            ids, end = await read(reply)
            assert ids == tokens_of(one)[: len(ids)]
            assert end is FinishReason.LENGTH or reply.stopped

    async def body(engine: EngineService) -> None:
        draw = random.Random(5)
        for _ in range(100):
            await round_of(engine, draw)
        last = [engine.submit(request(20, 9, seed=seed)) for seed in range(8)]
        assert engine.stats().running == 8
        await asyncio.gather(*map(read, last))

    House("fake").run(body, of, cache=cache_of(slots=6, wait=wait))


def test_the_same_day_on_a_real_rank_process() -> None:
    async def body(engine: EngineService) -> None:
        day = await busy(engine, 150, 3, scale=0.02)
        assert day.resumed > 20

    House("process").run(body, OF, cache=CACHES["slots"])


# -- each piece removed


def evicts_borrowed(patch: pytest.MonkeyPatch) -> None:
    def evictable(self: KeptStates, tier: Tier) -> Iterable[State]:
        return iter([s for s in self._states.values() if s.tier is tier and s.published])

    patch.setattr(KeptStates, "_evictable", evictable)


def evicts_pending(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "evictable", property(lambda self: not self.borrows))


def does_not_give_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keeping, "_give_back", lambda self, asked: None)


def does_not_abandon(patch: pytest.MonkeyPatch) -> None:
    def forget(self: Keeping, lane: Lane) -> None:
        asked = self._asked.get(lane)
        if asked is not None:
            asked.marks.clear()
        real(self, lane)

    real = Keeping.forget
    patch.setattr(Keeping, "forget", forget)


def publishes_too_early(patch: pytest.MonkeyPatch) -> None:
    def reserve(self: KeptStates, *given: Any) -> int | None:
        state = real(self, *given)
        if state is not None:
            self._states[state].published = True
        return state

    real = KeptStates.reserve
    patch.setattr(KeptStates, "reserve", reserve)


def passes_its_marks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lane, "rows_wanted", property(lambda self: self.rows_left))


def tells_no_moves(patch: pytest.MonkeyPatch) -> None:
    def moves(self: KeptStates) -> tuple[()]:
        self._moves.clear()
        return ()

    patch.setattr(KeptStates, "moves", moves)


def tells_moves_in_another_order(patch: pytest.MonkeyPatch) -> None:
    real = KeptStates.moves
    patch.setattr(KeptStates, "moves", lambda self: real(self)[::-1])


def restores_from_another_slot(patch: pytest.MonkeyPatch) -> None:
    def resume(self: KeptStates, state: int) -> Restore:
        found = real(self, state)
        return Restore(found.state, (found.slot + 1) % 6, found.at)

    real = KeptStates.resume
    patch.setattr(KeptStates, "resume", resume)


def restores_a_page_too_far(patch: pytest.MonkeyPatch) -> None:
    """The mirror is made blind: the rank's own slots must tell."""
    real = KeptStates.resume

    def resume(self: KeptStates, state: int) -> Restore:
        found = real(self, state)
        return Restore(found.state, found.slot, found.at + 8)

    patch.setattr(KeptStates, "resume", resume)
    patch.setattr(mirror, "check_restore", lambda states, begin, restore, rows: restore.at // rows)


def leases_new_pages_for_shared_ones(patch: pytest.MonkeyPatch) -> None:
    """The heir's pages are its own, and empty; the mirror is made blind, the rows must tell."""
    patch.setattr(KeptStates, "shared_pages", lambda self, state: ())
    patch.setattr(mirror, "check_restore", lambda *given: 0)


def frees_kept_pages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PageBook, "_holders", lambda self, page: self._leased[page])
    patch.setattr(PageBook, "check", lambda self: None)


def finds_without_identity(patch: pytest.MonkeyPatch) -> None:
    """Not wrong here, where a salt changes no bits: the reason for a miss must be missed."""
    patch.setattr("streamglm.pool.identity.Identity.key", lambda self, salt="": b"one")


def waits_instead_of_evicting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeptStates, "make_room", lambda self, count, near: self._book.free >= count)


FAULTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    evicts_borrowed,
    evicts_pending,
    does_not_give_back,
    does_not_abandon,
    publishes_too_early,
    passes_its_marks,
    tells_no_moves,
    tells_moves_in_another_order,
    restores_from_another_slot,
    restores_a_page_too_far,
    leases_new_pages_for_shared_ones,
    frees_kept_pages,
    finds_without_identity,
    waits_instead_of_evicting,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_piece_that_is_missing_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CACHES["slots-and-host" if "moves" in fault.__name__ else "slots"]
    fault(monkeypatch)
    with pytest.raises((ExceptionGroup, AssertionError, Deadlock)):
        assert run(cache, 600)[1]["misses"]["identity"]
