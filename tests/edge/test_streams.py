"""A stream on its connection: first bytes, silence, clients that leave, clients that do not read.

Time is the test's own, and the test is the client's socket.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from streamglm.errors import ContextLengthExceeded, EngineFailed, Overloaded, PoolTooSmall
from streamglm.request import Failed, Finished, FinishReason, Started, Tokens
from support.asgi import Call, sse_data
from support.engine import FakeReply
from support.manual import settle
from support.world import CHAT, COMPLETIONS, Make, World

MODES = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


async def begun(world: World, **body: Any) -> tuple[Call, FakeReply]:
    """A chat that the engine has taken and not started."""
    call = world.call(**body)
    await settle()
    return call, world.engine.replies[-1]


async def test_status_headers_and_a_comment_come_at_once_while_queued(world: World) -> None:
    call, _ = await begun(world, stream=True)
    assert call.status == 200
    assert call.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert call.headers["cache-control"] == "no-cache"
    assert call.headers["x-accel-buffering"] == "no"
    assert call.writes == [b": \n\n"]
    call.close()
    await call.task


@pytest.mark.parametrize("started", [False, True], ids=["queued", "in its prompt"])
async def test_no_five_seconds_pass_without_bytes(world: World, started: bool) -> None:
    """CO-35: the beat is the clock's, not the engine's."""
    call, reply = await begun(world, stream=True)
    if started:
        reply.put(Started(0))
    for minute in range(1, 13):
        await world.clock.advance(5)
        comments = [data for data in call.writes if data.startswith(b":")]
        assert len(comments) > minute
    call.close()
    await call.task


async def test_a_stream_that_speaks_needs_no_comments(world: World) -> None:
    call, reply = await begun(world, stream=True)
    reply.put(Started(0))
    for _ in range(20):
        await world.clock.advance(3)
        reply.put(Tokens((40,)))
    await settle()
    assert [data for data in call.writes if data.startswith(b":")] == [b": \n\n"]
    call.close()
    await call.task


@MODES
@pytest.mark.parametrize("point", ["queued", "in its prompt", "mid-reply"])
async def test_a_client_that_leaves_stops_the_reply_at_once(
    world: World, stream: bool, point: str
) -> None:
    """CO-13: no token has to be written first."""
    call, reply = await begun(world, stream=stream)
    if point != "queued":
        reply.put(Started(0))
    if point == "mid-reply":
        reply.put(Tokens((40,)), Tokens((41,)))
    await settle()
    assert reply.stops == 0
    call.close()
    await settle()
    assert reply.stops > 0
    assert call.task.done()
    assert not call.complete
    await call.task
    assert b'finish="cancelled"} 1.0' in (await world.http.get("/metrics")).content


@MODES
async def test_leaving_after_the_last_token_changes_nothing(world: World, stream: bool) -> None:
    world.say("done")
    call = world.call(stream=stream)
    await call.task
    call.close()
    await settle()
    assert call.complete
    metrics = (await world.http.get("/metrics")).text
    assert 'streamglm_requests_total{finish="stop"} 1.0' in metrics
    assert 'streamglm_requests_total{finish="cancelled"} 0.0' in metrics


@MODES
async def test_a_client_that_leaves_before_its_body_is_there_costs_nothing(
    world: World, stream: bool
) -> None:
    call = Call(world.app, CHAT, b"")
    call._inbox.get_nowait()  # the body never comes
    call.close()
    await call.task
    assert call.sent == []
    assert world.engine.replies == []


async def test_a_client_that_reads_nothing_is_dropped_and_its_reply_stopped(world: World) -> None:
    """CO-15, second variant."""
    call, reply = await begun(world, stream=True)
    reply.put(Started(0))
    await settle()
    call.reading.clear()
    reply.put(*[Tokens((40,))] * 50)
    await world.clock.advance(59)
    assert not call.task.done()
    assert reply.stops == 0
    await world.clock.advance(6)
    assert call.task.done()
    assert reply.stops > 0


async def test_a_short_patience_does_not_drop_a_client_that_reads(make: Make) -> None:
    """Silence of the model is not the client's."""
    world = make(slow_client_seconds=0.5)
    call, reply = await begun(world, stream=True)
    reply.put(Started(0))
    await world.clock.advance(3.2)
    call.reading.clear()
    reply.put(Tokens((40,)))
    await world.clock.advance(0.4)
    call.reading.set()
    await world.clock.advance(3)
    assert not call.task.done()
    call.reading.clear()
    reply.put(Tokens((40,)))
    await world.clock.advance(1)
    assert call.task.done()
    assert reply.stops > 0


async def test_a_client_that_pauses_gets_every_byte(world: World) -> None:
    """CO-15, first variant."""
    ids = world.tokenizer.encode("</think>one two three four")
    call, reply = await begun(world, stream=True)
    reply.put(Started(0), Tokens((ids[0],)))
    await settle()
    call.reading.clear()
    reply.put(*[Tokens((token,)) for token in ids[1:]], Finished(FinishReason.LENGTH))
    await world.clock.advance(40)
    call.reading.set()
    await call.task
    objects = sse_data(call.text)
    assert objects[-1] == "[DONE]"
    deltas = [json.loads(one)["choices"][0]["delta"] for one in objects[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == "one two three four"


async def test_a_client_that_is_slow_to_take_the_headers_is_dropped_too(world: World) -> None:
    call = world.call(stream=True)
    call.reading.clear()
    await settle()
    await world.clock.advance(70)
    assert call.task.done()
    assert world.engine.replies[-1].stops > 0


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_failure_after_the_start_is_an_error_event(world: World, path: str) -> None:
    body = {"prompt": "x"} if path == COMPLETIONS else {}
    call = world.call(path, stream=True, **body)
    await settle()
    error = EngineFailed("rank 0 is gone")
    world.engine.replies[-1].put(Started(0), Tokens((40,)), Failed(error))
    await call.task
    *_, event, done = sse_data(call.text)
    assert json.loads(event)["error"]["message"] == "rank 0 is gone"
    assert json.loads(event)["error"]["code"] == "engine_failed"
    assert done == "[DONE]"
    assert call.complete


async def test_a_failure_of_a_whole_reply_is_a_plain_error(world: World) -> None:
    call, reply = await begun(world)
    reply.put(Started(0), Tokens((40,)), Failed(EngineFailed("rank 0 is gone")))
    await call.task
    assert call.status == 500
    assert json.loads(call.text)["error"]["code"] == "engine_failed"


@MODES
async def test_a_bug_is_logged_and_tells_nothing(
    world: World, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    call, reply = await begun(world, stream=stream)
    reply.put(Started(0))
    reply.fault = RuntimeError("secret /path")
    with caplog.at_level(logging.ERROR):
        await call.task
    assert "secret" not in call.text
    assert "internal_error" in call.text
    assert "secret" in caplog.text
    assert call.complete
    assert reply.stops > 0


@MODES
async def test_a_reply_that_the_engine_cancels_is_not_a_success(world: World, stream: bool) -> None:
    call, reply = await begun(world, stream=stream)
    reply.put(Started(0), Finished(FinishReason.CANCELLED))
    await call.task
    assert "stopped this reply" in call.text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Overloaded("256 requests wait"), 503),
        (ContextLengthExceeded("too long", param="prompt"), 400),
        (PoolTooSmall("3 pages of 2"), 400),
        (EngineFailed("rank 0 is gone"), 500),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_the_engine_refuses_is_a_plain_error(
    world: World, error: Overloaded, status: int
) -> None:
    world.engine.refusal = error
    refusal = await world.refused(status)
    assert refusal["message"] == error.message
    answer = await world.ask(stream=True)
    assert answer.headers["content-type"] == "application/json"
    assert ("retry-after" in answer.headers) == (status == 503)


async def test_a_server_that_is_shut_down_stops_its_replies(world: World) -> None:
    call, reply = await begun(world, stream=True)
    call.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.task
    assert reply.stops > 0


async def test_a_connection_that_breaks_while_writing_is_a_cancel(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    call, reply = await begun(world, stream=True)

    async def broken() -> None:
        raise ConnectionResetError

    call.reading.wait = broken  # type: ignore[method-assign, assignment]
    reply.put(Started(0))
    await call.task
    assert reply.stops > 0
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_stop_string_stops_the_reply_before_its_last_bytes_are_taken(world: World) -> None:
    """A slow reader must not hold the lane of a reply that is complete."""
    call, reply = await begun(world, stream=True, stop="halt")
    reply.put(Started(0))
    await settle()
    call.reading.clear()
    reply.put(Tokens(tuple(world.tokenizer.encode("</think>so halt"))))
    await settle()
    assert reply.stops == 1
    assert not call.task.done()
    call.reading.set()
    await call.task
    assert call.complete


async def test_nothing_is_left_behind_by_a_stream(world: World) -> None:
    before = asyncio.all_tasks()
    world.say("a</think>b")
    for _ in range(3):
        await world.stream()
    call, _ = await begun(world, stream=True)
    call.close()
    await call.task
    await settle()
    assert asyncio.all_tasks() == before
