"""Prompts that were seen before: positions, reasons and order, on ranks that check every row.

The fake ranks hold pages and slots, and read all rows of a lane before each of its chunks and rows:
a resume from a row that was never written, or from another's, fails the reply; a resume from the
wrong prefix draws other tokens than `tokens_of`. Each `cached_tokens` is exact, so that a test
whose reuse was silently off fails too.
"""

from __future__ import annotations

import asyncio

import pytest

from streamglm.core.keeping import PromptCache
from streamglm.core.service import EngineService
from streamglm.request import Finished, FinishReason, Request, Started
from support.fakes import shape
from support.house import House, cache_of, request
from support.resumed import PAGE, ask, last, tokens

CHUNK = 16
LENGTHS = sorted(
    {at + off for at in (PAGE, 2 * PAGE, CHUNK, 3 * CHUNK, 4 * CHUNK) for off in (-1, 0, 1)}
)


@pytest.fixture(params=["fake", "process"])
def house(request: pytest.FixtureRequest) -> House:
    return House(request.param)


# -- resume, on both sides of every boundary


def test_a_prompt_that_goes_on_resumes_at_the_last_boundary_of_the_one_before(
    house: House,
) -> None:
    """CO-01 at this level: lengths around pages and chunks, each with and without reuse."""

    async def body(engine: EngineService) -> None:
        for length in LENGTHS:
            first = tokens(length, seed=length)
            found = await ask(engine, first, (*first, 48, 48, 49))
            assert found == [0, last(length)]

    house.run(body, cache=cache_of(slots=8))


def test_the_same_prompt_three_times_leaves_one_token_at_least(house: House) -> None:
    """CO-02 at this level: ten lengths that differ by one."""

    async def body(engine: EngineService) -> None:
        for length in range(36, 46):
            prompt = tokens(length, seed=length)
            assert await ask(engine, prompt, prompt, prompt) == [0, last(length), last(length)]

    house.run(body, cache=cache_of(slots=8))


@pytest.mark.parametrize("page_rows", [4, 8, 16])
@pytest.mark.parametrize("chunk_rows", [16, 32])
def test_resumes_do_not_depend_on_page_and_chunk(page_rows: int, chunk_rows: int) -> None:
    async def body(engine: EngineService) -> None:
        for length in (3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97):
            first = tokens(length, seed=length)
            mark = (length - 1) // page_rows * page_rows
            assert await ask(engine, first, (*first, 48)) == [0, mark]

    House("fake").run(
        body, shape(page_rows=page_rows, chunk_rows=chunk_rows), cache=cache_of(slots=8)
    )


def test_a_prompt_is_reused_at_the_longest_mark_it_shares(house: House) -> None:
    async def body(engine: EngineService) -> None:
        long = tokens(60)
        found = await ask(engine, long[:20], long[:40], long, long[:30] + (48,) * 30, (*long, 1))
        assert found == [0, 16, 32, 16, 56]

    house.run(body, cache=cache_of(slots=8))


# -- turns


TURN = 49
OF = shape(turn_ids=frozenset({TURN}))


def turn(count: int, seed: int) -> tuple[int, ...]:
    return (TURN, *tokens(count, seed))


def test_a_regenerated_and_an_edited_turn_resume(house: House) -> None:
    """CO-03: system, a user turn, a reply and a second user turn; then the first again, the
    second with another last turn, and the second with an edit in its first turn."""

    async def body(engine: EngineService) -> None:
        system, reply = tokens(21, 9), tokens(13, 8)
        first = system + turn(30, 1)
        second = first + reply + turn(5, 2)
        edited = system + turn(10, 1) + (48,) + turn(30, 1)[12:] + reply + turn(5, 2)
        other = first + reply + turn(6, 3)
        assert await ask(engine, first) == [0]
        assert await ask(engine, second) == [last(len(first))]
        assert await ask(engine, first) == [last(len(first))]
        start = len(first) + len(reply)
        assert await ask(engine, other) == [start // PAGE * PAGE]
        assert await ask(engine, edited) == [len(system) // PAGE * PAGE]

    house.run(body, OF, cache=cache_of(slots=16))


def test_a_system_prompt_is_kept_for_other_conversations(house: House) -> None:
    async def body(engine: EngineService) -> None:
        system = tokens(45)
        found = await ask(engine, *(system + turn(9 + seed, seed) for seed in range(2, 6)))
        assert found == [0, 40, 40, 40]

    house.run(body, OF, cache=cache_of(slots=16))


def test_what_two_prompts_shared_is_kept_for_the_third() -> None:
    """Without turns: the second prompt computes it again, and keeps it on the way."""

    async def body(engine: EngineService) -> None:
        common = tokens(45)
        found = await ask(engine, *(common + tokens(20, seed) for seed in range(2, 6)))
        assert found == [0, 0, 40, 40]

    House("fake").run(body, cache=cache_of(slots=16))


def test_with_one_slot_the_last_mark_is_the_one_that_is_kept() -> None:
    async def body(engine: EngineService) -> None:
        prompt = tokens(20) + turn(30, 2) + turn(20, 3)
        assert await ask(engine, prompt, prompt) == [0, last(len(prompt))]
        assert engine.stats().cache.refused_total == 2

    House("fake").run(body, OF, cache=cache_of(slots=1))


# -- where states lie


@pytest.mark.parametrize(
    "cache",
    [cache_of(budget=10_000), cache_of(host=10_000), cache_of(slots=1, host=10_000)],
    ids=["copied", "host", "slot-and-host"],
)
def test_copies_resume_like_shared_states(house: House, cache: PromptCache) -> None:
    async def body(engine: EngineService) -> None:
        for _ in range(2):
            for seed in (1, 2, 3):
                await ask(engine, tokens(40, seed), (*tokens(40, seed), 48, 49))
        prompts = [(*tokens(40, seed), 48, 49) for seed in (1, 2, 3)]
        assert await ask(engine, *prompts) == [40, 40, 40]

    house.run(body, cache=cache)


@pytest.mark.parametrize("slots", [0, 4])
def test_a_lane_with_a_window_of_its_own_resumes_from_copies(slots: int) -> None:
    """`--kv-pages off`: every lease is a window, its page ids in order."""
    of = shape(paged=False, pages=4 * 32)

    async def body(engine: EngineService) -> None:
        assert await ask(engine, tokens(40), (*tokens(40), 1)) == [0, 32]
        two = [engine.submit(request(tokens(9, seed), max_tokens=30)) for seed in (1, 2)]
        await asyncio.sleep(0)
        assert engine.stats().pages_leased == 2 * 32
        for reply in two:
            reply.stop()

    House("fake").run(body, of, cache=cache_of(budget=10_000))


def test_without_a_cache_nothing_is_kept_and_the_reason_is_told(house: House) -> None:
    async def body(engine: EngineService) -> None:
        assert await ask(engine, tokens(40), tokens(40)) == [0, 0]
        stats = engine.stats()
        assert stats.cache.misses_total["off"] == 2
        assert (stats.pages_kept, stats.pages_free) == (0, stats.pages_total)

    house.run(body)


def test_another_salt_finds_nothing() -> None:
    async def body(engine: EngineService) -> None:
        plain = request(tokens(40), max_tokens=3)
        salted = Request("s", plain.prompt, 3, plain.sampling, salt="mine")
        assert await ask(engine, plain, salted, salted, plain) == [0, 0, 32, 32]
        assert engine.stats().cache.misses_total["identity"] == 1

    House("fake").run(body, cache=cache_of(slots=8))


def test_the_log_says_why_a_prompt_was_reused_or_not(caplog: pytest.LogCaptureFixture) -> None:
    async def body(engine: EngineService) -> None:
        await ask(engine, tokens(5), tokens(40), tokens(40), tokens(40, 2))

    caplog.set_level("INFO", "streamglm.core.keeping")
    House("fake").run(body, cache=cache_of(slots=8))
    assert [record.message for record in caplog.records] == [
        "r: computed all 5 tokens: it ends before the first mark, at 8 tokens",
        "r: computed all 40 tokens: nothing is kept yet",
        "r: resumed 32 of 40 tokens from a shared state",
        "r: computed all 40 tokens: no mark lies in the 0 tokens that it shares with a kept prompt",
    ]


# -- stops


def test_a_reply_that_is_stopped_leaves_the_marks_it_passed_and_no_others(house: House) -> None:
    async def body(engine: EngineService) -> None:
        prompt = tokens(20) + turn(100, 2) + turn(90, 3)
        asked = request(prompt, max_tokens=3)
        reply = engine.submit(asked)
        while engine.pool().lanes[0].position < 32:  # noqa: ASYNC110 (rounds ring no bell)
            await asyncio.sleep(0.001)
        assert engine.rounds.keeping.kept.stats().pending == 2
        reply.stop()
        assert [event async for event in reply][-1] == Finished(FinishReason.CANCELLED)
        assert engine.rounds.keeping.kept.stats().pending == 0
        assert await ask(engine, asked) == [16]

    house.run(body, OF, cache=cache_of(slots=8))


def test_a_resumed_lane_that_is_stopped_before_the_ranks_heard_of_it_gives_back_what_it_borrowed(
    house: House,
) -> None:
    async def body(engine: EngineService) -> None:
        await ask(engine, tokens(40))
        reply = engine.submit(request(tokens(40), max_tokens=3))
        assert engine.rounds.keeping.kept.stats().borrowed == 1
        reply.stop()
        events = [event async for event in reply]
        assert not any(isinstance(event, Started) for event in events)
        assert engine.rounds.keeping.kept.stats().borrowed == 0
        assert await ask(engine, tokens(40)) == [32]

    house.run(body, cache=cache_of(slots=8))
