"""An engine in memory behind the edge's protocol: a test says which events come, and when.

It computes nothing. `script` answers every request at once; without one a test feeds each
`FakeReply` by hand and reads what the edge did to it.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from streamglm.core.engine import (
    CacheStats,
    EngineStats,
    Health,
    KeptView,
    LaneView,
    PagesView,
    PoolView,
    PromptProgress,
)
from streamglm.core.holders import PageHolders
from streamglm.errors import InvalidRequest, StreamglmError
from streamglm.request import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Request,
    Started,
    Timing,
    Tokens,
)
from streamglm.step import LogProbs
from streamglm.text.constraint import Constraint

Script = Callable[[Request], Iterable[Event]]


class FakeReply:
    """A reply that a test feeds with `put`. `stops` counts calls of `stop()`."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.stops = 0
        self.delivered: list[Event] = []
        self.figures = Timing(0.25, 0.5, 1.5, rounds=7)
        self.fault: Exception | None = None
        """Raised in place of the event behind those that wait, as a bug would be. Set it before the
        last of them is put."""
        self._events: deque[Event] = deque()
        self._more = asyncio.Event()
        self._call: Callable[[], None] | None = None
        self._rung = 0

    def put(self, *events: Event) -> None:
        """Deliver `events`, one after the other. A reader that listens is called for each, as after
        a round of its own, and can take no more than it was called for."""
        self._events += events
        self._more.set()
        self._ring(len(events))

    def listen(self, call: Callable[[], None]) -> None:
        self._call = call
        self._ring(len(self._events))

    def take(self) -> list[Event]:
        taken: list[Event] = []
        while self._rung and not (self.delivered and _last(self.delivered[-1])):
            self._rung -= 1
            taken.append(self._events.popleft())
            self.delivered.append(taken[-1])
        if self.fault is not None and not self._events:
            raise self.fault
        return taken

    def _ring(self, count: int) -> None:
        if self._call is not None:
            for _ in range(count):
                asyncio.get_running_loop().call_soon(self._heard)

    def _heard(self) -> None:
        assert self._call is not None
        self._rung += 1
        self._call()

    def __aiter__(self) -> FakeReply:
        return self

    async def __anext__(self) -> Event:
        if self.delivered and _last(self.delivered[-1]):
            raise StopAsyncIteration
        await asyncio.sleep(0)
        while not self._events:
            if self.fault is not None:
                raise self.fault
            self._more.clear()
            await self._more.wait()
        self.delivered.append(self._events.popleft())
        return self.delivered[-1]

    def timing(self) -> Timing:
        return self.figures

    def stop(self) -> None:
        self.stops += 1


def _last(event: Event) -> bool:
    return isinstance(event, Finished | Failed)


@dataclass
class FakeEngine:
    """Requests end up in `replies`. `refusal` is raised by `submit` while it is set."""

    script: Script | None = None
    refusal: StreamglmError | None = None
    state: Health = field(default_factory=lambda: Health(ok=True))
    replies: list[FakeReply] = field(default_factory=list)

    def submit(self, request: Request) -> FakeReply:
        if self.refusal is not None:
            raise self.refusal
        reply = FakeReply(request)
        if self.script is not None:
            reply.put(*self.script(request))
        self.replies.append(reply)
        return reply

    def health(self) -> Health:
        return self.state

    def stats(self) -> EngineStats:
        return EngineStats(
            lanes=4,
            running=3,
            waiting={"lanes": 0, "pages": 2, "prefix": 0},
            pages_total=40,
            pages_free=11,
            pages_leased=22,
            pages_kept=7,
            page_rows=64,
            cache=CacheStats(
                states={"shared": 3, "copied": 0, "host": 1},
                bytes={"shared": 300, "copied": 0, "host": 1000},
                slots=8,
                slots_free=5,
                hits_total={"shared": 21, "copied": 0, "host": 2},
                misses_total={"empty": 1, "evicted": 4},
                evicted_total={"shared": 6, "copied": 0, "host": 3},
                cached_tokens_total=4321,
                kept_total=31,
                known_total=32,
                refused_total=33,
                abandoned_total=34,
                demoted_total=35,
                carried_total=36,
            ),
            prompts=(PromptProgress("a", 128, 300), PromptProgress("b", 0, 77)),
            requests_total={"stop": 5},
            prompt_tokens_total=1234,
            generated_tokens_total=567,
            rounds_total=89,
            prompt_seconds_total=1.5,
            window_seconds_total=2.5,
            draft_seconds_total=0.5,
            sent_total={"add": 7},
            drafted_total={"chain": 60, "lookup": 7},
            accepted_total={"chain": 50, "lookup": 6},
        )

    def pool(self) -> PoolView:
        return PoolView(
            page_rows=64,
            pages=(PagesView(total=40, free=11, leased=22, kept=7),),
            slots=8,
            slots_free=5,
            kept=(KeptView(192, 100, "shared", False, 9.5, 2.25),),
            lanes=(LaneView(2, "chatcmpl-1", "filling", True, 128, 300, 64, 6),),
        )

    def holders(self) -> PageHolders:
        return PageHolders(40, 1, {2: tuple(range(10, 32))}, (tuple(range(4, 12)),))


class FakeCompiler:
    """Compiles a constraint to its own words, so that a test reads what was asked. A source that
    holds `BAD` is refused."""

    async def compile(self, constraint: Constraint) -> bytes:
        content = constraint.content
        if content is not None and "BAD" in content.source:
            raise InvalidRequest("it is bad")
        asked = {"calls": json.loads(constraint.calls or "null")}
        if content is not None:
            asked |= {"form": content.form, "source": content.source}
        return json.dumps(asked).encode()


def logprobs_at(place: int, token: int, count: int) -> LogProbs:
    """What `says` tells of its token at `place`: no two places alike, the token itself first, with
    every third one none of the alternatives."""
    first = token + (place % 3 == 2)
    top = tuple((first + i, -0.5 - 0.125 * place - i) for i in range(count))
    return LogProbs(-0.5 - 0.125 * place - (place % 3 == 2) * 7, top)


def says(ids: Sequence[int], *, cached: int = 0, a_round: int = 1) -> Script:
    """A script that draws `ids`, `a_round` at a time, as the engine would: up to `max_tokens`,
    and up to and including an end token."""

    def script(request: Request) -> list[Event]:
        drawn, reason = list(ids[: request.max_tokens]), FinishReason.LENGTH
        for place, token in enumerate(drawn):
            if token in request.stop_ids:
                drawn, reason = drawn[: place + 1], FinishReason.STOP
                break
        count = request.sampling.logprobs
        places = enumerate(drawn)
        told = [] if count is None else [logprobs_at(at, token, count) for at, token in places]
        rounds = [
            Tokens(tuple(drawn[start : start + a_round]), tuple(told[start : start + a_round]))
            for start in range(0, len(drawn), a_round)
        ]
        return [Started(cached), *rounds, Finished(reason)]

    return script
