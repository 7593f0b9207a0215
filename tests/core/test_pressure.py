"""A pool that is full of kept prompts: it gives way to requests, the oldest first, and only then.

All on fake ranks, which refuse a page that somebody else holds and read every row that a lane has.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from streamglm.core.keeping import PromptCache
from streamglm.core.service import EngineService
from streamglm.errors import PoolTooSmall
from streamglm.pool.kept import KeptStates
from streamglm.request import Request, Started
from support.fakes import shape
from support.house import House, cache_of, read, request, rounds, tokens_of


def tokens(count: int, seed: int) -> tuple[int, ...]:
    draw = random.Random(seed)
    return tuple(draw.randrange(50) for _ in range(count))


async def cached(engine: EngineService, asked: Request) -> int:
    reply = engine.submit(asked)
    started = await anext(reply)
    assert isinstance(started, Started)
    assert (await read(reply))[0] == tokens_of(asked)
    return started.cached_tokens


def kept(engine: EngineService, prompts: Sequence[tuple[int, ...]]) -> list[int]:
    """The kept tokens of each prompt, asked of the store itself: nothing is touched."""
    keeping = engine.rounds.keeping
    identity = keeping._cache.identity.key()
    return [keeping.kept.look(prompt, identity).at for prompt in prompts]


def test_a_pool_full_of_kept_prompts_makes_nobody_wait() -> None:
    """CO-11: 40 prompts one after another, then 4 large ones at once, then the first again."""
    of = shape(page_rows=64, chunk_rows=256, kda_chunk=64, context=4096, pages=64)

    async def body(engine: EngineService) -> None:
        prompts = [tokens(500, seed) for seed in range(40)]
        replies = []
        for number, prompt in enumerate(prompts):
            reply = engine.submit(request(prompt, max_tokens=16))
            assert engine.stats().running == 1, "a lone request waits"
            replies.append((await read(reply))[0])
            alive = kept(engine, prompts[: number + 1])
            oldest = alive.index(448)
            assert alive == [0] * oldest + [448] * (number + 1 - oldest)
        assert engine.stats().cache.evicted_total["shared"] > 30
        large = [request(tokens(500, 100 + seed), max_tokens=300) for seed in range(4)]
        streams = [engine.submit(one) for one in large]
        assert (engine.stats().running, sum(engine.stats().waiting.values())) == (4, 0)
        for one, stream in zip(large, streams, strict=True):
            assert (await read(stream))[0] == tokens_of(one)
        again = engine.submit(request(prompts[0], max_tokens=16))
        assert (await read(again))[0] == replies[0]
        assert engine.stats().cache.misses_total["evicted"] == 1

    House("fake").run(body, of, cache=cache_of(slots=16))


@pytest.mark.parametrize("slots", [2, 16])
def test_whoever_waits_for_pages_would_not_fit_with_everything_evicted(slots: int) -> None:
    """A mix under a pool of ten pages: whenever the head waits for pages, evicting all that may
    go would not be enough."""
    waited = 0

    async def body(engine: EngineService) -> None:
        nonlocal waited
        draw = random.Random(3)
        prompts = [tokens(draw.randrange(9, 60), seed) for seed in range(8)]
        open_: list[asyncio.Task[object]] = []
        for seed in range(200):
            asked = request(draw.choice(prompts), draw.randrange(1, 12), seed)
            open_.append(asyncio.create_task(read(engine.submit(asked))))
            await asyncio.sleep(draw.choice([0, 0.01, 0.05]))
            if engine.stats().waiting["pages"]:
                waited += 1
                head = next(iter(engine.rounds.queue)).lane.request
                need = -(-(len(head.prompt) + head.max_tokens) // 8)
                assert need > 10 - engine.stats().pages_leased
        await asyncio.gather(*open_)

    House("fake").run(body, shape(pages=10), cache=cache_of(slots=slots))
    assert waited > 10


def test_eviction_takes_the_oldest_and_never_what_is_being_resumed() -> None:
    """J37: the oldest state of a full pool is the one that the request resumes from."""

    async def body(engine: EngineService) -> None:
        prompts = [tokens(25, seed) for seed in range(3)]
        for prompt in prompts:
            await cached(engine, request(prompt, max_tokens=7))
        assert kept(engine, prompts) == [24, 24, 24]
        assert engine.stats().pages_free == 3
        assert await cached(engine, request(prompts[0] + (1,) * 8, max_tokens=16)) == 24
        assert kept(engine, prompts) == [24, 0, 24]
        assert engine.stats().cache.evicted_total["shared"] == 1

    House("fake").run(body, shape(pages=12), cache=cache_of(slots=8))


def test_the_ranks_hear_of_an_eviction_whose_request_left_before_its_first_step() -> None:
    """`House` asks at the end: without a step for it, the rank would hold the state for ever."""

    async def body(engine: EngineService) -> None:
        await cached(engine, request(tokens(60, 1), max_tokens=3))
        await engine.rounds.idle.wait()
        reply = engine.submit(request(tokens(60, 2), max_tokens=3))
        assert engine.stats().cache.evicted_total["shared"] == 1
        reply.stop()
        await read(reply)
        await asyncio.sleep(1.0)

    House("fake").run(body, shape(pages=10), cache=cache_of(slots=4))


def test_whoever_waits_for_pages_looks_again_only_when_something_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    real = KeptStates.make_room

    def make_room(self: KeptStates, count: int, near: int | None = None) -> bool:
        calls.append(count)
        return real(self, count, near)

    async def body(engine: EngineService) -> None:
        running = engine.submit(request(tokens(10, 1), max_tokens=60))
        waiting = engine.submit(request(tokens(10, 2), max_tokens=60))
        await rounds(engine, 20)
        monkeypatch.setattr(KeptStates, "make_room", make_room)
        await rounds(engine, 20)
        assert engine.stats().waiting["pages"] == 1
        assert calls == []
        for reply in (running, waiting):
            await read(reply)

    House("fake").run(body, shape(pages=12), cache=cache_of(slots=4))


def test_use_makes_a_state_young() -> None:
    async def body(engine: EngineService) -> None:
        prompts = [tokens(20, seed) for seed in range(4)]
        for prompt in (prompts[0], prompts[1], prompts[0], prompts[2], prompts[3]):
            await cached(engine, request(prompt, max_tokens=3))
        assert kept(engine, prompts) == [16, 0, 16, 16]

    House("fake").run(body, cache=cache_of(slots=3))


def test_two_heirs_outlive_the_state_they_came_from() -> None:
    """J39: both run on while the state is evicted and its slot and pages are wanted."""

    async def body(engine: EngineService) -> None:
        prompt = tokens(40, 1)
        await cached(engine, request(prompt, max_tokens=3))
        heirs = [request((*prompt, seed), max_tokens=40, seed=seed) for seed in (1, 2)]
        streams = [engine.submit(one) for one in heirs]
        await rounds(engine, 3)
        assert engine.rounds.book.stats().shared == 5
        engine.rounds.keeping.kept.clear()
        stranger = request(tokens(100, 2), max_tokens=20)
        assert await cached(engine, stranger) == 0
        for one, stream in zip(heirs, streams, strict=True):
            assert (await read(stream))[0] == tokens_of(one)
        assert kept(engine, [prompt]) == [0]

    House("fake").run(body, cache=cache_of(slots=2))


@pytest.mark.parametrize(
    ("kind", "cache", "bytes_"),
    [
        ("shared", cache_of(slots=4), 100),
        ("copied", cache_of(budget=10_000), 100 + 10 * 128),
    ],
    ids=["shared", "copied"],
)
def test_a_kept_prompt_costs_its_slot_when_shared_and_its_rows_when_copied(
    kind: str, cache: PromptCache, bytes_: int
) -> None:
    """Sixteen pages, while their lane lives: they are leased either way, and none is held more."""

    async def body(engine: EngineService) -> None:
        reply = engine.submit(request(tokens(129, 1), max_tokens=20))
        await rounds(engine, 12)
        stats = engine.stats()
        assert stats.cache.states[kind] == 1
        found = (stats.cache.bytes[kind], stats.pages_kept, stats.pages_leased)
        assert found == (bytes_, 0, 19)
        await read(reply)

    House("fake").run(body, cache=cache)


def test_a_request_that_never_fits_is_refused_whatever_is_kept() -> None:
    """CO-12 at this level, with a pool that kept prompts fill: the sums are those of the pool."""

    async def body(engine: EngineService) -> None:
        await cached(engine, request(tokens(70, 1), max_tokens=3))
        assert engine.stats().pages_kept == 8
        with pytest.raises(PoolTooSmall, match="11 pages of 8 tokens, but the pool holds 10 pages"):
            engine.submit(request(tokens(80, 2), max_tokens=1))
        assert await cached(engine, request(tokens(70, 2), max_tokens=10)) == 0

    House("fake").run(body, shape(pages=10), cache=cache_of(slots=4))
