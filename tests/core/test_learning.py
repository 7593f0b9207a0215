"""Kept states that went to a disk and come back, on ranks that check every row.

The fake ranks hold pages and slots; the disk in memory holds what they copied, and gives it back
after a delay. A row that was not restored, or is another's, fails the reply. "Eviction" here is a
new engine over the same disk, or `kept.clear`. Each `cached_tokens` is exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from streamglm.core.keeping import PromptCache
from streamglm.core.service import EngineService
from streamglm.request import Finished, FinishReason, Request, Started, Tokens
from support.disk import MemoryDisk
from support.fakes import shape
from support.house import House, cache_of, request
from support.resumed import PAGE, ask, cached, last, tokens


def with_disk(disk: MemoryDisk, slots: int = 8, **options: Any) -> PromptCache:
    return replace(cache_of(slots=slots, **options), disk=disk)


def run(
    disk: MemoryDisk, body: Callable[[EngineService], Coroutine[Any, Any, None]], **options: Any
) -> None:
    """One life of a server over `disk`."""
    cache = options.pop("cache", None) or with_disk(disk)
    House("fake").run(body, options.pop("of", None), cache=cache, **options)


def learned(disk: MemoryDisk, *prompts: tuple[int, ...], **options: Any) -> None:
    """A life in which these prompts are asked, and everything is written."""

    async def body(engine: EngineService) -> None:
        await ask(engine, *prompts)
        await disk.settled()

    run(disk, body, **options)


def test_a_prompt_is_read_back_after_a_restart() -> None:
    disk = MemoryDisk()
    learned(disk, tokens(40))
    assert (len(disk.pages), len(disk.fixed)) == (4, 1)

    async def body(engine: EngineService) -> None:
        assert await ask(engine, (*tokens(40), 48, 48)) == [last(40)]
        assert engine.stats().cache.hits_total["disk"] == 1

    run(disk, body)


@pytest.mark.parametrize(
    "cache",
    [{"slots": 8}, {"slots": 0, "budget": 10_000}, {"slots": 0, "host": 10_000}],
    ids=["shared", "copied", "host"],
)
def test_every_tier_is_written_and_filled(cache: dict[str, int]) -> None:
    disk = MemoryDisk()
    learned(disk, tokens(41), cache=with_disk(disk, **cache))

    async def body(engine: EngineService) -> None:
        assert await ask(engine, tokens(41), tokens(41)) == [40, 40]
        hits = engine.stats().cache.hits_total
        assert (hits["disk"], sum(hits.values())) == (1, 2)

    run(disk, body, cache=with_disk(disk, **cache))


def test_what_was_evicted_from_memory_comes_from_the_disk() -> None:
    disk = MemoryDisk()

    async def body(engine: EngineService) -> None:
        await ask(engine, tokens(40))
        await disk.settled()
        engine.rounds.keeping.kept.clear()
        assert await ask(engine, tokens(40)) == [32]
        assert engine.stats().cache.hits_total["disk"] == 1

    run(disk, body)


def test_nothing_is_written_twice() -> None:
    """A turn writes its new pages and one fixed part."""
    disk = MemoryDisk()

    async def body(engine: EngineService) -> None:
        prompt, pages, before = tokens(41), 0, 0
        for turn in range(5):
            await ask(engine, prompt)
            await disk.settled()
            assert disk.written - before == last(len(prompt)) // PAGE - pages + 1
            before, pages = disk.written, last(len(prompt)) // PAGE
            prompt += tokens(22, turn + 2)

    run(disk, body)


def test_the_longer_state_wins_wherever_it_lies() -> None:
    disk = MemoryDisk()
    long = tokens(60)
    learned(disk, long)

    async def body(engine: EngineService) -> None:
        assert await ask(engine, long[:20]) == [0]
        assert await ask(engine, (*long, 48), (*long, 49)) == [56, 56]
        hits = engine.stats().cache.hits_total
        assert (hits["disk"], hits["shared"]) == (1, 1)

    run(disk, body)


def test_others_run_while_a_lane_waits_for_the_disk() -> None:
    disk = MemoryDisk(read_seconds=5.0)
    learned(disk, tokens(40))

    async def body(engine: EngineService) -> None:
        slow = engine.submit(request(tokens(40), max_tokens=3))
        quick = request(tokens(9, 2), max_tokens=20)
        assert engine.pool().lanes[0].state == "restoring"
        assert await cached(engine.submit(quick), quick) == 0
        assert engine.pool().lanes[0].state == "restoring"
        assert await cached(slow, request(tokens(40), max_tokens=3)) == 32

    run(disk, body)


def test_several_who_want_one_state_read_it_once() -> None:
    disk = MemoryDisk(read_seconds=1.0)
    learned(disk, tokens(40))

    async def body(engine: EngineService) -> None:
        asked = [request((*tokens(40), 45 + i), max_tokens=3) for i in range(4)]
        replies = [engine.submit(one) for one in asked]
        found = [await cached(reply, one) for reply, one in zip(replies, asked, strict=True)]
        assert found == [32, 40, 40, 40]
        assert engine.stats().cache.hits_total["disk"] == 1

    run(disk, body)


# -- what cannot be read


@pytest.mark.parametrize("kind", ["page", "fixed"])
def test_a_state_that_cannot_be_read_gives_way_to_a_shorter_one(kind: str) -> None:
    """J33: the lease comes back, one shorter state is tried, and the reply is the same."""
    disk = MemoryDisk()
    long = tokens(60)
    learned(disk, long[:20], long)
    disk.bad = {(kind, list(disk.pages if kind == "page" else disk.fixed)[-1])}

    async def body(engine: EngineService) -> None:
        assert await ask(engine, (*long, 48)) == [16]
        await disk.settled()

    run(disk, body)
    assert not disk.bad

    async def again(engine: EngineService) -> None:
        assert await ask(engine, (*long, 48)) == [56]

    run(disk, again)


def test_after_two_bad_states_the_prompt_is_computed() -> None:
    disk = MemoryDisk()
    long = tokens(60)
    learned(disk, long[:20], long[:40], long)
    disk.bad = {("fixed", key) for key in disk.fixed}
    bad = len(disk.bad)

    async def body(engine: EngineService) -> None:
        assert await ask(engine, (*long, 48)) == [0]
        assert len(disk.bad) == bad - 2

    run(disk, body)


def test_a_lane_that_could_not_be_restored_is_still_the_first() -> None:
    disk = MemoryDisk(read_seconds=0.5)
    learned(disk, tokens(40))
    disk.bad = {("fixed", key) for key in disk.fixed}

    async def body(engine: EngineService) -> None:
        ended = []

        async def whole(prompt: tuple[int, ...]) -> None:
            assert await ask(engine, prompt) == [0]
            ended.append(prompt)

        async with asyncio.TaskGroup() as group:
            for prompt in (tokens(40), tokens(30, 5)):
                group.create_task(whole(prompt))
        assert ended == [tokens(40), tokens(30, 5)]

    run(disk, body, of=shape(lanes=1))


# -- who leaves


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_lane_that_is_stopped_while_it_waits_leaves_nothing(rounds: int) -> None:
    """J42: lease, borrow and job all return."""
    disk = MemoryDisk(read_seconds=1.0)
    learned(disk, tokens(40))

    async def body(engine: EngineService) -> None:
        reply = engine.submit(request(tokens(40), max_tokens=3))
        await asyncio.sleep(rounds * 0.9)
        reply.stop()
        events = [event async for event in reply]
        assert events == [Finished(FinishReason.CANCELLED)]
        await asyncio.sleep(10.0)
        assert not disk.jobs
        assert await ask(engine, tokens(40)) == [32]

    run(disk, body)


def test_a_server_that_drains_while_a_lane_waits_ends() -> None:
    disk = MemoryDisk(read_seconds=1.0)
    learned(disk, tokens(40))

    async def body(engine: EngineService) -> None:
        reply = engine.submit(request(tokens(40), max_tokens=3))
        await engine.drain(600.0, 10.0)
        kinds = [type(event) for event in [event async for event in reply]]
        assert (kinds[0], kinds[-1]) == (Started, Finished)
        assert Tokens in kinds

    run(disk, body)


# -- what must not wait


def test_no_request_waits_for_a_copy() -> None:
    """The pool is too small for two prompts: what could not be copied yet gives way."""
    disk = MemoryDisk()

    async def body(engine: EngineService) -> None:
        disk.full = True
        for seed in range(4):
            assert await ask(engine, tokens(40, seed)) == [0]
        assert len(disk.dropped) == 3
        disk.full = False
        assert await ask(engine, tokens(40, 3)) == [32]
        await disk.settled()
        assert len(disk.fixed) == 1

    run(disk, body, of=shape(pages=8, context=56))


def test_a_full_disk_holds_only_so_many_states() -> None:
    disk = MemoryDisk()

    async def body(engine: EngineService) -> None:
        disk.full = True
        await ask(engine, *(tokens(17, seed) for seed in range(70)))
        assert engine.rounds.keeping.learning.borrowed == 8
        disk.full = False
        engine.rounds.ring()
        await disk.settled()
        assert len(disk.fixed) == 8

    run(disk, body)


@pytest.mark.parametrize("seconds", [0.0, 2.0, 1000.0])
def test_a_slow_disk_changes_no_moment_of_a_running_reply(seconds: float) -> None:
    """In virtual time: every round comes when it would without a disk."""

    def moments(disk: MemoryDisk | None) -> list[float]:
        found: list[float] = []

        async def body(engine: EngineService) -> None:
            reply = engine.submit(request(tokens(9, 3), max_tokens=60))
            for seed in (1, 2):
                engine.submit(request(tokens(40, seed), max_tokens=2))
            found.extend([asyncio.get_running_loop().time() async for _ in reply])

        cache = replace(cache_of(slots=8), disk=disk)
        House("fake").run(body, cache=cache)
        return found

    assert moments(MemoryDisk(write_seconds=seconds)) == moments(None)


# -- what is not for the disk


def test_a_request_that_is_not_to_be_learned_is_not() -> None:
    disk = MemoryDisk()

    async def body(engine: EngineService) -> None:
        asked = request(tokens(40), max_tokens=3)
        private = Request("p", asked.prompt, 3, asked.sampling, learn=False)
        assert await ask(engine, private, private) == [0, 32]
        await disk.settled()
        assert not disk.pages
        assert not disk.fixed
        assert await ask(engine, asked) == [32]
        await disk.settled()
        assert len(disk.fixed) == 1

    run(disk, body)


def test_another_salt_reads_nothing() -> None:
    disk = MemoryDisk()
    learned(disk, tokens(40))

    async def body(engine: EngineService) -> None:
        plain = request(tokens(40), max_tokens=3)
        salted = Request("s", plain.prompt, 3, plain.sampling, salt="mine")
        assert await ask(engine, salted, plain) == [0, 32]

    run(disk, body)


def test_the_mark_of_a_turn_that_moves_is_not_written() -> None:
    """The last mark is, and the first turn's, which other conversations share."""
    turn = 49
    disk = MemoryDisk()
    system, first, second = tokens(21, 9), (turn, *tokens(30, 1)), (turn, *tokens(30, 2))

    async def body(engine: EngineService) -> None:
        await ask(engine, system + first + tokens(9, 3) + second)
        await disk.settled()

    run(disk, body, of=shape(turn_ids=frozenset({turn})), cache=with_disk(disk, slots=16))
    length = 21 + 31 + 9 + 31
    assert sorted(len(rows) for rows in disk.fixed.values()) == [16, last(length)]
