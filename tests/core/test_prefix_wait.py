"""Requests that arrive while another computes the same beginning, in virtual time.

A prompt row takes a millisecond and a pass holds 256 of them; rows that were computed are counted
by the ranks. Each test states what happens with the wait off as well, so that none passes idly.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from streamglm.core.engine import Reply
from streamglm.core.keeping import MOST_MARKS
from streamglm.core.service import EngineService
from streamglm.core.shape import EngineShape
from streamglm.errors import ShuttingDown
from streamglm.pool.kept import KeptStates
from streamglm.pool.states import Look
from streamglm.request import Request, Started, Tokens
from support.clock import LoopClock, virtual_time
from support.fakes import FakeRanks, shape
from support.house import assert_idle, cache_of, read, request, serving, tokens_of

ROW, WINDOW = 0.001, 0.01
OF = shape(page_rows=64, chunk_rows=256, kda_chunk=64, context=16384, lanes=10, pages=2048)
PASS = OF.chunk_rows * ROW
COMMON = 2000
MARK = COMMON // 64 * 64


@asynccontextmanager
async def engine_of(
    wait: float = 60.0, of: EngineShape = OF
) -> AsyncIterator[tuple[EngineService, FakeRanks]]:
    ranks = FakeRanks(of, LoopClock(), slots=40, row_seconds=ROW, window_seconds=WINDOW)
    async with serving(of, ranks, cache=cache_of(slots=40, wait=wait)) as engine:
        yield engine, ranks
        await engine.rounds.idle.wait()
        assert_idle(engine)


def tokens(count: int, seed: int) -> tuple[int, ...]:
    draw = random.Random(seed)
    return tuple(draw.randrange(50) for _ in range(count))


def one_of(number: int, common: int = COMMON, max_tokens: int = 4) -> Request:
    """A conversation of its own after what all have in common."""
    return request(tokens(common, 0) + tokens(50 + number, number + 1), max_tokens, id=str(number))


async def first(reply: Reply, asked: Request) -> tuple[int, float]:
    """`cached_tokens`, and when the first token came; the reply must be the right one."""
    cached, moment = -1, -1.0
    ids: tuple[int, ...] = ()
    async for event in reply:
        if isinstance(event, Started):
            cached = event.cached_tokens
        elif isinstance(event, Tokens):
            moment = moment if ids else asyncio.get_running_loop().time()
            ids += event.ids
    assert ids == tokens_of(asked)
    return cached, moment


def computed(ranks: FakeRanks) -> int:
    return sum(len(chunk.tokens) for step in ranks.steps for chunk in step.chunks)


@pytest.mark.parametrize("wait", [60.0, 0.0])
def test_eight_conversations_that_arrive_together_compute_their_prefix_once(wait: float) -> None:
    """CO-04 and J43. Off, it is computed by each of them."""

    @virtual_time
    async def run() -> None:
        async with engine_of(wait) as (engine, ranks):
            asked = [one_of(number) for number in range(8)]
            replies = [engine.submit(one) for one in asked]
            waiting = engine.stats().waiting["prefix"]
            found = await asyncio.gather(*map(first, replies, asked))
        cached = [tokens for tokens, _ in found]
        if wait:
            assert (waiting, cached) == (7, [0] + [MARK] * 7)
            assert computed(ranks) == sum(len(one.prompt) for one in asked) - 7 * MARK
            assert max(moment for _, moment in found) < 4 * COMMON * ROW
        else:
            assert (waiting, cached) == (0, [0] * 8)
            assert min(moment for _, moment in found) >= COMMON * ROW
            assert max(moment for _, moment in found) > 7 * COMMON * ROW

    run()


@virtual_time
async def test_a_mark_is_reserved_where_two_prompts_part() -> None:
    """The first prompt alone would be kept at its end only."""
    async with engine_of() as (engine, ranks):
        asked = one_of(1), one_of(2)
        one = engine.submit(asked[0])
        await asyncio.sleep(3.5 * PASS)
        two = engine.submit(asked[1])
        assert engine.stats().waiting["prefix"] == 1
        assert (await first(two, asked[1]))[0] == MARK
        assert (await first(one, asked[0]))[0] == 0
        saved = [save.at for step in ranks.steps for save in step.saves]
        assert MARK in saved


@virtual_time
async def test_what_the_first_has_passed_is_not_waited_for() -> None:
    """Also not what is in the pass that runs: nobody can stop there any more."""
    async with engine_of() as (engine, _):
        long = replace(one_of(1), prompt=tokens(500, 0) + tokens(4000, 1))
        one = engine.submit(long)
        await asyncio.sleep(1.5 * PASS)
        two = engine.submit(one_of(2, common=500))
        assert engine.stats().waiting["prefix"] == 0
        assert (await first(two, one_of(2, common=500)))[0] == 0
        one.stop()
        await read(one)


@virtual_time
async def test_the_wait_is_bounded() -> None:
    async with engine_of(wait=0.5) as (engine, _):
        one = engine.submit(one_of(1, common=10_000))
        await asyncio.sleep(0)
        asked = one_of(2, common=10_000)
        two = engine.submit(asked)
        await asyncio.sleep(0.5 - 2 * ROW)
        assert engine.stats().waiting["prefix"] == 1
        await asyncio.sleep(PASS + 2 * ROW)
        assert (engine.stats().running, engine.stats().waiting["prefix"]) == (2, 0)
        assert (await first(two, asked))[0] == 0
        one.stop()
        await read(one)


@virtual_time
async def test_who_waits_for_a_prefix_lets_others_pass() -> None:
    async with engine_of() as (engine, _):
        one = engine.submit(one_of(1))
        await asyncio.sleep(0)
        two = engine.submit(one_of(2))
        three = engine.submit(request(20, 3, seed=5))
        assert engine.stats().waiting == {"lanes": 0, "pages": 0, "prefix": 1}
        start = asyncio.get_running_loop().time()
        await read(three)
        assert asyncio.get_running_loop().time() - start < 4 * PASS
        await asyncio.gather(read(one), read(two))


@virtual_time
async def test_when_the_first_leaves_the_next_goes_on_at_once() -> None:
    """It computes the prefix in its place, and the third waits for it in turn."""
    async with engine_of() as (engine, _):
        one = engine.submit(one_of(1))
        await asyncio.sleep(0)
        asked = [one_of(2), one_of(3)]
        others = [engine.submit(each) for each in asked]
        await asyncio.sleep(2.5 * PASS)
        assert engine.stats().waiting["prefix"] == 2
        one.stop()
        await asyncio.sleep(PASS)
        assert (engine.stats().running, engine.stats().waiting["prefix"]) == (1, 1)
        found = await asyncio.gather(*map(first, others, asked))
        assert [cached for cached, _ in found] == [0, MARK]
        await read(one)


@virtual_time
async def test_a_request_that_is_stopped_while_it_waits_leaves_nothing() -> None:
    async with engine_of() as (engine, _):
        one = engine.submit(one_of(1))
        await asyncio.sleep(0)
        two = engine.submit(one_of(2))
        assert engine.stats().waiting["prefix"] == 1
        two.stop()
        assert engine.stats().waiting["prefix"] == 0
        await asyncio.gather(read(one), read(two))


@virtual_time
async def test_foreground_does_not_wait_for_background() -> None:
    """The other way round it does."""
    async with engine_of() as (engine, _):
        slow = engine.submit(replace(one_of(1), background=True))
        await asyncio.sleep(0)
        fast = engine.submit(one_of(2))
        late = engine.submit(replace(one_of(3), background=True))
        assert (engine.stats().running, engine.stats().waiting["prefix"]) == (2, 1)
        same = engine.submit(one_of(1))
        assert engine.stats().running == 3
        assert (await first(fast, one_of(2)))[0] == 0
        assert (await first(same, one_of(1)))[0] == 0
        assert (await first(late, one_of(3)))[0] == MARK
        assert (await first(slow, one_of(1)))[0] == 0


@virtual_time
async def test_a_prompt_that_ends_inside_another_waits_for_a_mark_before_its_own_end() -> None:
    """A state at its very end would be of no use to it."""
    async with engine_of() as (engine, _):
        one = engine.submit(one_of(1))
        await asyncio.sleep(0)
        short = replace(one_of(2), prompt=one_of(1).prompt[:MARK])
        two = engine.submit(short)
        assert (await first(two, short))[0] == MARK - 64
        await read(one)


@virtual_time
async def test_one_lane_is_given_so_many_marks_and_no_more() -> None:
    """Each of these parts from the first at another page."""
    async with engine_of() as (engine, _):
        base = tokens(3000, 0)
        one = engine.submit(request(base, 4, id="0"))
        await asyncio.sleep(0)
        others = [
            engine.submit(request(base[: 64 * pages + 1] + tokens(50, pages), 4, id=str(pages)))
            for pages in range(10, 30)
        ]
        lane = engine.rounds.live[0].lane
        assert len(lane.marks) == MOST_MARKS
        await asyncio.gather(*map(read, [one, *others]))


@virtual_time
async def test_whoever_waits_keeps_its_place() -> None:
    """Those that wait for a prefix, before one that waits for pages."""
    async with engine_of(of=replace(OF, pages=100)) as (engine, _):
        replies = [engine.submit(one_of(number)) for number in range(4)]
        replies.append(engine.submit(request(5000, 4, id="large")))
        await asyncio.sleep(2.5 * PASS)
        waiting = [reply.lane.request.id for reply in engine.rounds.queue]
        assert waiting == ["1", "2", "3", "large"]
        assert engine.stats().waiting == {"lanes": 0, "pages": 1, "prefix": 3}
        await asyncio.gather(*map(read, replies))


@virtual_time
async def test_a_queue_that_is_refused_waits_for_nothing() -> None:
    async with engine_of() as (engine, _):
        replies = [engine.submit(one_of(number)) for number in range(3)]
        engine.rounds.refuse_queue(ShuttingDown("over"))
        assert not any(engine.stats().waiting.values())
        await asyncio.gather(*map(read, replies))


@virtual_time
async def test_whoever_waits_is_not_looked_up_round_after_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also not when other prompts are kept meanwhile."""
    async with engine_of() as (engine, _):
        replies = [engine.submit(one_of(number, common=5000)) for number in range(3)]
        looked = []
        real = KeptStates.look

        def look(self: KeptStates, prompt: Sequence[int], identity: bytes) -> Look:
            looked.append(len(prompt))
            return real(self, prompt, identity)

        monkeypatch.setattr(KeptStates, "look", look)
        for seed in range(4):
            await read(engine.submit(request(100, 2, seed=seed)))
        assert engine.stats().cache.kept_total == 4
        assert set(looked) == {100}
        assert engine.stats().waiting["prefix"] == 2
        await asyncio.gather(*map(read, replies))


@virtual_time
async def test_another_salt_is_not_waited_for() -> None:
    async with engine_of() as (engine, _):
        replies = [engine.submit(replace(one_of(1), salt=salt)) for salt in ("a", "b")]
        assert engine.stats().waiting["prefix"] == 0
        await asyncio.gather(*map(read, replies))
