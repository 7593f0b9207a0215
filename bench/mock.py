"""A server whose engine computes nothing: our edge, or a plain streaming response, fed alike.

Owns the mock engine and both applications. `python -m bench.mock ours|plain STREAMS RATE TOKENS`
listens on a free loopback port and says where. The rounds begin when STREAMS replies are there; a
round has TOKENS tokens for each. RATE is rounds a second; 0 starts the next round as soon as every
token of the one before was handed to its connection, so that neither server can save work by
saying two tokens at once.

`GET /bench` tells the process's CPU seconds and resident bytes, and the rounds so far.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import orjson
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from streamglm.clock import SystemClock
from streamglm.config import Settings
from streamglm.core.bell import Bell
from streamglm.core.engine import CacheStats, EngineStats, Health, PoolView
from streamglm.core.holders import PageHolders
from streamglm.core.lane import Lane
from streamglm.core.reply import ReplyStream
from streamglm.edge.app import build_app
from streamglm.edge.served import ServedModel
from streamglm.errors import EngineFailed
from streamglm.nano import folder
from streamglm.request import Failed, Finished, FinishReason, Request, SamplingParams, Started
from streamglm.text.tokenizer import Tokenizer

SAID = "the quick brown fox jumps over the lazy dog, and nobody minds; "
ROUTE = "/v1/completions"


class Feed(Protocol):
    """Who gets tokens: one reply of either server."""

    left: int

    def give(self, token: int) -> None: ...

    @property
    def waiting(self) -> bool:
        """Tokens were given that are not handed to the connection yet."""
        ...


class Rounds:
    """Gives every reply a token, round after round."""

    def __init__(self, ids: list[int], streams: int, rate: float, tokens: int) -> None:
        self.count = 0
        self._tokens = tokens
        self.live: set[Feed] = set()
        self._ids = ids
        self._streams = streams
        self._rate = rate
        self._enough = asyncio.Event()

    def add(self, feed: Feed) -> None:
        self.live.add(feed)
        if len(self.live) >= self._streams:
            self._enough.set()

    async def run(self) -> None:
        while True:
            await self._enough.wait()
            await asyncio.sleep(0.2)  # the headers are out, and the garbage of the start is gone
            due = time.monotonic()
            while self.live:
                self._round()
                due += 1 / self._rate if self._rate else 0.0
                await self._pause(due)
            self._enough.clear()

    def _round(self) -> None:
        start = self.count * self._tokens
        tokens = [self._ids[at % len(self._ids)] for at in range(start, start + self._tokens)]
        self.count += 1
        for feed in list(self.live):
            for token in tokens:
                feed.left -= 1
                feed.give(token)
            if not feed.left:
                self.live.discard(feed)

    async def _pause(self, due: float) -> None:
        if self._rate:
            await asyncio.sleep(max(0.0, due - time.monotonic()))  # late rounds follow at once
            return
        await asyncio.sleep(0)
        while any(feed.waiting for feed in self.live):  # noqa: ASYNC110 (handing over rings no bell)
            await asyncio.sleep(0)


class _Reply(ReplyStream):
    """A reply of the real core, its lane moved by the mock."""

    left = 0

    def give(self, token: int) -> None:
        self.push(token)
        if not self.left:
            self.lane.end(time.monotonic())
            self.finish(Finished(FinishReason.LENGTH))

    @property
    def waiting(self) -> bool:
        return bool(self._ids)


class MockEngine:
    """The `Engine` protocol over the rounds."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._clock = SystemClock()
        self._bell = Bell(self._clock.now)

    def submit(self, request: Request) -> _Reply:
        lane = Lane(request, self._clock.now(), 0)
        lane.begin(0, (0,), self._clock.now())
        reply = _Reply(lane, self._clock, self._stop, self._bell)
        reply.left = request.max_tokens
        reply.start(Started(0))
        self._rounds.add(reply)
        return reply

    def _stop(self, reply: ReplyStream) -> None:
        assert isinstance(reply, _Reply)
        self._rounds.live.discard(reply)
        reply.finish(Failed(EngineFailed("stopped")))

    def health(self) -> Health:
        return Health(True)

    def stats(self) -> EngineStats:
        cache = CacheStats({}, {}, 0, 0, {}, {}, {}, *[0] * 6)
        return EngineStats(
            0, 0, {}, 0, 0, 0, 0, 1, cache, (), {}, 0, 0, 0, 0.0, 0.0, 0.0, {}, {}, {}
        )

    def pool(self) -> PoolView:
        return PoolView(1, (), 0, 0, (), ())

    def holders(self) -> PageHolders:
        return PageHolders(0, 1, {}, ())


class _Queue:
    """A reply of the plain server."""

    def __init__(self, tokens: int) -> None:
        self.left = tokens
        self.queue: asyncio.Queue[int] = asyncio.Queue()
        self.busy = 0

    def give(self, token: int) -> None:
        self.busy += 1
        self.queue.put_nowait(token)

    @property
    def waiting(self) -> bool:
        return self.busy > 0


def plain(rounds: Rounds, texts: dict[int, str], lifespan: Any) -> Starlette:
    """A streaming response a request: a queue, a generator, and orjson for each chunk."""

    async def completions(request: HTTPRequest) -> StreamingResponse:
        body = orjson.loads(await request.body())
        feed = _Queue(body["max_tokens"])
        name, created = f"cmpl-{id(feed):024x}", int(time.time())

        async def events() -> AsyncIterator[bytes]:
            for _ in range(body["max_tokens"]):
                token = await feed.queue.get()
                choice = {
                    "index": 0,
                    "text": texts[token],
                    "logprobs": None,
                    "finish_reason": None,
                }
                chunk = {
                    "id": name,
                    "object": "text_completion",
                    "created": created,
                    "model": "mock",
                    "choices": [choice],
                }
                yield b"data: " + orjson.dumps(chunk) + b"\n\n"
                feed.busy -= 1
            yield b"data: [DONE]\n\n"

        rounds.add(feed)
        return StreamingResponse(events(), media_type="text/event-stream")

    return Starlette(routes=[Route(ROUTE, completions, methods=["POST"])], lifespan=lifespan)


def ours(rounds: Rounds, tokenizer: Tokenizer, lifespan: Any) -> Starlette:
    """Our application, with nothing left out of it."""
    model = ServedModel(
        name="mock",
        context=1_000_000,
        vocab_size=tokenizer.size,
        tokenizer=tokenizer,
        template=None,
        eos_ids=frozenset(),
        defaults=SamplingParams(temperature=0.0),
        created=0,
    )
    return build_app(MockEngine(rounds), model, Settings(), SystemClock(), lifespan=lifespan)


def application(kind: str, streams: int, rate: float, tokens: int) -> Starlette:
    """`ours` or `plain`, with `GET /bench` beside it."""
    tokenizer = Tokenizer.from_folder(folder())
    assert tokenizer is not None
    ids = tokenizer.encode(SAID)
    rounds = Rounds(ids, streams, rate, tokens)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        gc.collect()
        gc.freeze()
        task = asyncio.create_task(rounds.run())
        yield
        task.cancel()

    async def figures(request: HTTPRequest) -> Response:
        return Response(orjson.dumps(_figures(rounds)))

    make: Callable[..., Starlette] = ours if kind == "ours" else plain
    texts = {token: tokenizer.decode([token]) for token in ids}
    app = make(rounds, tokenizer if kind == "ours" else texts, lifespan)
    app.router.routes.append(Route("/bench", figures))
    return app


def _figures(rounds: Rounds) -> dict[str, Any]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"cpu": used.ru_utime + used.ru_stime, "resident": resident, "rounds": rounds.count}


class _Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets=sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"listening on http://127.0.0.1:{port}", flush=True)


async def _serve(kind: str, streams: int, rate: float, tokens: int) -> None:
    app = application(kind, streams, rate, tokens)
    config = uvicorn.Config(
        app, port=0, http="httptools", ws="none", log_level="error", backlog=4096
    )
    await _Server(config).serve()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        kind, *numbers = sys.argv[1:]
        runner.run(_serve(kind, int(numbers[0]), float(numbers[1]), int(numbers[2])))
