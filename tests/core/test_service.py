"""What a reply's reader sees, on fake ranks in virtual time and on a real rank process."""

from __future__ import annotations

import asyncio
import random

import pytest

from streamglm.core.service import EngineService
from streamglm.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    Overloaded,
    PoolTooSmall,
    ReplyFailed,
    ShuttingDown,
)
from streamglm.request import FinishReason, Started, Tokens
from support.fakes import shape
from support.house import House, read, request, rounds, tokens_of
from support.stub import NO_TOKEN, SLOW


@pytest.fixture(params=["fake", "process"])
def house(request: pytest.FixtureRequest) -> House:
    return House(request.param)


def test_a_reply_has_every_token_in_order_and_ends_by_length(house: House) -> None:
    async def body(engine: EngineService) -> None:
        asked = request(prompt=37, max_tokens=11)
        reply = engine.submit(asked)
        assert await anext(reply) == Started(cached_tokens=0)
        assert await read(reply) == (tokens_of(asked), FinishReason.LENGTH)

    house.run(body)


def test_a_reply_ends_with_its_end_token(house: House) -> None:
    async def body(engine: EngineService) -> None:
        whole = tokens_of(request(prompt=9, max_tokens=20))
        place = next(i for i in range(3, 20) if whole[i] not in whole[:i])
        asked = request(prompt=9, max_tokens=20, stop_ids=frozenset([whole[place]]))
        assert await read(engine.submit(asked)) == (whole[: place + 1], FinishReason.STOP)

    house.run(body)


def test_a_first_token_that_ends_the_reply_never_reaches_a_window(house: House) -> None:
    async def body(engine: EngineService) -> None:
        asked = request(max_tokens=1)
        reply = engine.submit(asked)
        assert await read(reply) == (tokens_of(asked), FinishReason.LENGTH)
        assert reply.timing().rounds == 0

    house.run(body)


def test_replies_beside_each_other_are_what_they_are_alone(house: House) -> None:
    async def body(engine: EngineService) -> None:
        asked = [request(prompt=1 + 17 * i, max_tokens=3 + i, seed=i) for i in range(9)]
        replies = await asyncio.gather(*(read(engine.submit(one)) for one in asked))
        assert [ids for ids, _ in replies] == [tokens_of(one) for one in asked]

    house.run(body)


def test_a_stop_while_waiting_leaves_the_queue_at_once(house: House) -> None:
    async def body(engine: EngineService) -> None:
        running = engine.submit(request(prompt=40, max_tokens=30))
        waiting = engine.submit(request(max_tokens=100))
        behind = engine.submit(request(max_tokens=2))
        assert engine.stats().waiting == {"lanes": 2, "pages": 0, "prefix": 0}
        waiting.stop()
        assert engine.stats().waiting == {"lanes": 1, "pages": 0, "prefix": 0}
        assert await read(waiting) == ((), FinishReason.CANCELLED)
        assert (await read(running))[1] is FinishReason.LENGTH
        assert (await read(behind))[0] == tokens_of(request(max_tokens=2))

    house.run(body, shape(lanes=1))


def test_a_stop_while_filling_gives_pages_back_within_one_chunk(house: House) -> None:
    async def body(engine: EngineService) -> None:
        neighbour = engine.submit(request(prompt=3, max_tokens=40))
        long = engine.submit(request(prompt=240, max_tokens=10, seed=SLOW))
        await rounds(engine, 2)
        assert engine.stats().prompts[0].done < 240
        before = engine.rounds.totals.prompt_tokens
        long.stop()
        await rounds(engine, 2)
        assert engine.stats().running == 1
        assert engine.rounds.totals.prompt_tokens - before <= engine.rounds.shape.chunk_rows
        assert (await read(long))[1] is FinishReason.CANCELLED
        assert (await read(neighbour))[0] == tokens_of(request(prompt=3, max_tokens=40))

    house.run(body)


def test_a_stop_while_decoding_gives_lane_and_pages_back_within_one_round(house: House) -> None:
    async def body(engine: EngineService) -> None:
        neighbour = engine.submit(request(prompt=3, max_tokens=40))
        reply = engine.submit(request(prompt=5, max_tokens=200, seed=2))
        while not isinstance(await anext(reply), Tokens):
            pass
        reply.stop()
        reply.stop()
        await rounds(engine, 2)
        assert engine.stats().running == 1
        _, end = await read(reply)
        assert end is FinishReason.CANCELLED
        assert (await read(neighbour))[0] == tokens_of(request(prompt=3, max_tokens=40))

    house.run(body)


def test_a_stop_before_the_ranks_heard_of_the_lane(house: House) -> None:
    async def body(engine: EngineService) -> None:
        first = engine.submit(request())
        first.stop()
        again = engine.submit(request(prompt=12))
        assert (await read(first))[1] is FinishReason.CANCELLED
        assert (await read(again))[0] == tokens_of(request(prompt=12))

    house.run(body, shape(lanes=1))


def test_a_stop_after_the_end_changes_nothing(house: House) -> None:
    async def body(engine: EngineService) -> None:
        reply = engine.submit(request())
        await read(reply)
        reply.stop()
        assert engine.stats().requests_total == {"length": 1}

    house.run(body)


def test_one_request_more_than_the_queue_holds_is_refused(house: House) -> None:
    async def body(engine: EngineService) -> None:
        replies = [engine.submit(request(seed=i)) for i in range(2 + 3)]
        with pytest.raises(Overloaded, match=r"3 requests wait.*--max-queue"):
            engine.submit(request())
        assert [len((await read(reply))[0]) for reply in replies] == [5] * 5
        assert engine.stats().requests_total == {"length": 5, "refused": 1}

    house.run(body, shape(lanes=2), max_queue=3)


@pytest.mark.parametrize(("prompt", "max_tokens"), [(200, 10), (100, 100)])
def test_what_never_fits_the_pool_is_refused_at_once_beside_a_stream(
    house: House, prompt: int, max_tokens: int
) -> None:
    async def body(engine: EngineService) -> None:
        stream = engine.submit(request(max_tokens=40))
        with pytest.raises(PoolTooSmall) as caught:
            engine.submit(request(prompt=prompt, max_tokens=max_tokens))
        need = -(-(prompt + max_tokens) // 8)
        assert f"{need} pages" in caught.value.message
        assert "10 pages, 80 tokens" in caught.value.message
        assert f"--pool-tokens {need * 8}" in caught.value.message
        assert (await read(engine.submit(request(prompt=20))))[0] == tokens_of(request(prompt=20))
        assert (await read(stream))[0] == tokens_of(request(max_tokens=40))

    house.run(body, shape(pages=10))


def test_a_request_that_is_none_is_refused_by_name(house: House) -> None:
    async def body(engine: EngineService) -> None:
        with pytest.raises(ContextLengthExceeded, match=r"257.*256"):
            engine.submit(request(prompt=250, max_tokens=7))
        with pytest.raises(InvalidRequest, match="no token"):
            engine.submit(request(prompt=()))
        with pytest.raises(InvalidRequest, match="max_tokens is 0"):
            engine.submit(request(max_tokens=0))
        for token in (-1, 50):
            with pytest.raises(InvalidRequest, match=rf"token id {token} .*50"):
                engine.submit(request(prompt=(3, token, 4)))
        for seed in (2**64, -(2**63) - 1):
            with pytest.raises(InvalidRequest, match="64 bits"):
                engine.submit(request(prompt=(3, 4), seed=seed))
        for seed in (2**64 - 1, -(2**63)):
            await read(engine.submit(request(prompt=(3, 4), seed=seed)))
        assert engine.stats().requests_total == {"refused": 7, "length": 2}

    house.run(body)


def test_a_request_waits_for_pages_and_takes_them_when_they_come(house: House) -> None:
    async def body(engine: EngineService) -> None:
        large = request(prompt=40, max_tokens=24)
        first = engine.submit(large)
        second = engine.submit(large)
        third = engine.submit(request(prompt=2, max_tokens=2))
        assert engine.stats().waiting == {"lanes": 0, "pages": 2, "prefix": 0}
        for reply in (first, second):
            assert (await read(reply))[0] == tokens_of(large)
        assert (await read(third))[0] == tokens_of(request(prompt=2, max_tokens=2))

    house.run(body, shape(pages=10))


def test_a_lane_without_a_token_fails_alone(house: House) -> None:
    async def body(engine: EngineService) -> None:
        neighbour = engine.submit(request(max_tokens=9))
        _, end = await read(engine.submit(request(seed=NO_TOKEN)))
        assert isinstance(end, ReplyFailed)
        assert (await read(neighbour))[0] == tokens_of(request(max_tokens=9))
        assert engine.stats().requests_total == {"failed": 1, "length": 1}

    house.run(body)


def test_a_slow_reader_gets_everything_and_holds_up_nobody(house: House) -> None:
    async def body(engine: EngineService) -> None:
        slow = engine.submit(request(max_tokens=50))
        other = request(max_tokens=60, seed=2)
        assert (await read(engine.submit(other)))[0] == tokens_of(other)
        assert await anext(slow) == Started(0)
        assert await anext(slow) == Tokens(tokens_of(request(max_tokens=50)))

    house.run(body)


def test_a_cancelled_wait_for_an_event_loses_none(house: House) -> None:
    async def body(engine: EngineService) -> None:
        asked = request(prompt=64, max_tokens=30)
        reply = engine.submit(asked)
        ids: tuple[int, ...] = ()
        done = False
        while not done:
            try:
                async with asyncio.timeout(0.0002):
                    event = await anext(reply)
            except TimeoutError:
                continue
            except StopAsyncIteration:
                done = True
                continue
            ids += event.ids if isinstance(event, Tokens) else ()
        assert ids == tokens_of(asked)

    house.run(body)


def test_timing_adds_up_and_stands_still_after_the_end(house: House) -> None:
    async def body(engine: EngineService) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        replies = [engine.submit(request(prompt=20, max_tokens=3, seed=SLOW)) for _ in range(2)]
        for reply in replies:
            await read(reply)
        final = replies[1].timing()
        total = final.queue_seconds + final.prefill_seconds + final.decode_seconds
        assert min(final.queue_seconds, final.prefill_seconds, final.decode_seconds) > 0
        assert total == pytest.approx(loop.time() - start, abs=0.05)
        assert final.rounds == 2
        await asyncio.sleep(0.01)
        assert replies[1].timing() == final

    house.run(body, shape(lanes=1))


def test_a_thousand_requests_with_random_stops_leave_the_book_idle(house: House) -> None:
    async def one(engine: EngineService, draw: random.Random) -> None:
        asked = request(
            prompt=draw.randrange(1, 60), max_tokens=draw.randrange(1, 30), seed=draw.randrange(99)
        )
        reply = engine.submit(asked)
        patience = draw.randrange(12)
        ids: tuple[int, ...] = ()
        async for event in reply:
            if isinstance(event, Tokens):
                ids += event.ids
            patience -= 1
            if patience == 0:
                reply.stop()
            elif patience < -3:
                await asyncio.sleep(0)
        assert ids == tokens_of(asked)[: len(ids)]

    async def body(engine: EngineService) -> None:
        draw = random.Random(11)
        for batch in range(10):
            await asyncio.gather(*(one(engine, draw) for _ in range(100)))
            assert sum(engine.stats().requests_total.values()) == 100 * (batch + 1)
        assert engine.stats().requests_total["cancelled"] > 100

    house.run(body, shape(pages=30))


def test_a_drain_finishes_what_runs_and_refuses_the_rest(house: House) -> None:
    async def body(engine: EngineService) -> None:
        running = engine.submit(request(max_tokens=20))
        waiting = engine.submit(request())
        drained = asyncio.create_task(engine.drain(60.0))
        await asyncio.sleep(0)
        with pytest.raises(ShuttingDown):
            engine.submit(request())
        assert isinstance((await read(waiting))[1], ShuttingDown)
        assert (await read(running))[0] == tokens_of(request(max_tokens=20))
        await drained
        assert engine.health().reason == "the server is shutting down"

    house.run(body, shape(lanes=1))
