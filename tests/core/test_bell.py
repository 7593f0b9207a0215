"""Readers that listen: called in slices after a round, none lost, none in another's way."""

from __future__ import annotations

import asyncio
import logging

import pytest

from streamglm.core.bell import SLICE_SECONDS, Bell
from streamglm.request import Event, Finished, FinishReason, Started, Tokens
from support.clock import LoopClock, virtual_time
from support.fakes import FakeRanks, shape
from support.house import request, serving, tokens_of

OF = shape(lanes=4)


async def test_calls_are_made_soon_in_order_in_one_callback() -> None:
    bell, made = Bell(lambda: 0.0), list[str]()
    loop = asyncio.get_running_loop()
    bell.ring(lambda: made.append("a"))
    bell.ring(lambda: made.append("b"))
    loop.call_soon(made.append, "next")
    assert made == []
    await asyncio.sleep(0)
    assert made == ["a", "b", "next"]


async def test_a_call_that_raises_silences_nobody(caplog: pytest.LogCaptureFixture) -> None:
    bell, made = Bell(lambda: 0.0), list[str]()

    def raises() -> None:
        raise RuntimeError("of one reader")

    bell.ring(raises)
    bell.ring(lambda: made.append("other"))
    with caplog.at_level(logging.ERROR):
        await asyncio.sleep(0)
    assert made == ["other"]
    assert "of one reader" in caplog.text


async def test_a_call_that_rings_is_heard_in_the_next_callback() -> None:
    bell, made = Bell(lambda: 0.0), list[str]()
    bell.ring(lambda: bell.ring(lambda: made.append("again")))
    await asyncio.sleep(0)
    assert made == []
    await asyncio.sleep(0)
    assert made == ["again"]


async def test_after_a_slice_others_have_their_turn_and_nobody_is_lost_or_called_twice() -> None:
    """Red with all calls in one callback: `between` then comes behind them all."""
    worked = 0.0
    bell, made = Bell(lambda: worked), list[str]()
    loop = asyncio.get_running_loop()

    def works(name: str, slices: float) -> None:
        nonlocal worked
        worked += slices * SLICE_SECONDS
        made.append(name)

    bell.ring(lambda: works("a", 0.5))
    bell.ring(lambda: works("b", 0.75))
    bell.ring(lambda: works("c", 0.25))
    loop.call_soon(lambda: bell.ring(lambda: works("e", 0.25)))
    loop.call_soon(made.append, "between")
    bell.ring(lambda: works("d", 0.25))
    for _ in range(4):
        await asyncio.sleep(0)
    assert made == ["a", "b", "between", "c", "d", "e"]


@virtual_time
async def test_a_reader_that_listens_is_called_once_a_round_and_gets_everything() -> None:
    ranks = FakeRanks(OF, LoopClock(), row_seconds=0.001, window_seconds=0.01)
    async with serving(OF, ranks) as engine:
        replies = [engine.submit(request(max_tokens=6, seed=seed)) for seed in range(3)]
        heard: list[list[list[Event]]] = [[] for _ in replies]
        for reply, mine in zip(replies, heard, strict=True):
            reply.listen(lambda reply=reply, mine=mine: mine.append(reply.take()))  # type: ignore[misc]
        await asyncio.sleep(1)
        for seed, mine in enumerate(heard):
            (started,), *rounds = mine
            assert started == Started(0)
            assert len(rounds) == 6
            ids = [one for events in rounds for one in events if isinstance(one, Tokens)]
            assert sum((one.ids for one in ids), ()) == tokens_of(request(max_tokens=6, seed=seed))
            assert rounds[-1][-1] == Finished(FinishReason.LENGTH)


@virtual_time
async def test_what_is_not_taken_waits_without_more_calls() -> None:
    """A reader whose client is slow is not called again until it has taken what there is."""
    ranks = FakeRanks(OF, LoopClock(), row_seconds=0.001, window_seconds=0.01)
    async with serving(OF, ranks) as engine:
        asked = request(max_tokens=20)
        reply = engine.submit(asked)
        calls = list[float]()
        await asyncio.sleep(0.005)
        reply.listen(lambda: calls.append(0.0))
        await asyncio.sleep(1)
        assert len(calls) == 1
        started, tokens, end = reply.take()
        assert started == Started(0)
        assert isinstance(tokens, Tokens)
        assert tokens.ids == tokens_of(asked)
        assert end == Finished(FinishReason.LENGTH)
        assert reply.take() == []
