"""The round: take cancels, admit, choose, dispatch, commit, deliver.

Owns the queue, the live lanes, the book of pages and the order of a round; what is kept and
resumed is `keeping.py`. Knows the ranks only by the `Ranks` protocol declared here. Everything but
the dispatch happens without a suspension, so a round is atomic to submissions and cancels, which
come between its suspensions. Invariant, by `check()`: every lane number is idle or live, and the
book's leases are the live lanes' pages.

What the ranks are still to be told waits for the next step: a lane that ended here is free here
at once, because its end stands before any begin in the step that follows.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from streamglm.clock import Clock
from streamglm.core.admission import Wait, need_pages
from streamglm.core.drafting import Drafting, check_drawn
from streamglm.core.draws import draw_of, seen_of
from streamglm.core.engine import PromptProgress
from streamglm.core.keeping import Keeping, PromptCache
from streamglm.core.lane import State
from streamglm.core.reply import ReplyStream
from streamglm.core.scheduler import Scheduler, Work
from streamglm.core.shape import EngineShape
from streamglm.core.waiting import Waiting
from streamglm.drafts.replies import DraftLimits
from streamglm.errors import EngineFailed, ReplyFailed, StreamglmError
from streamglm.pool.pages import PageBook
from streamglm.request import Failed, Finished, FinishReason, Started
from streamglm.step import Begin, Chunk, Drawn, Restore, Step, StepResult


class Ranks(Protocol):
    """The ranks as one: they execute a step whole, or are lost."""

    async def run(self, step: Step, digest: int) -> StepResult:
        """Execute `step`; `digest` covers leases and kept states after its ends, moves and begins.
        Suspends at least once. Raises `EngineFailed` when a rank refuses, fails or does not
        answer, after which the ranks are of no more use. One step at a time."""
        ...

    async def failed(self) -> EngineFailed:
        """Return why, as soon as a rank is lost, also between steps; until then, wait."""
        ...


@dataclass(slots=True)
class Totals:
    """Counts since the start."""

    ended: Counter[str] = field(default_factory=Counter)
    """Requests by finish: 'stop', 'length', 'cancelled', 'failed', 'refused'."""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    rounds: int = 0
    prompt_seconds: float = 0.0
    window_seconds: float = 0.0
    draft_seconds: float = 0.0
    sent: Counter[str] = field(default_factory=Counter)
    """Bytes that ranks sent one another, by what."""


class Rounds:
    """Lanes from the queue to their end, one step of the ranks at a time.

    `checks` runs `check()` after every round, and not only when idle; `shuffle` is the book's.
    """

    def __init__(
        self,
        shape: EngineShape,
        ranks: Ranks,
        clock: Clock,
        cache: PromptCache,
        *,
        decode_share: float,
        drafts: DraftLimits | None = None,
        checks: bool = False,
        shuffle: int | None = None,
    ) -> None:
        self.shape = shape
        self.book = PageBook(shape.pages, classes=shape.classes, shuffle=shuffle)
        self.keeping = Keeping(shape, self.book, cache, clock)
        self.drafting = Drafting(drafts or DraftLimits(), shape.page_rows)
        self.queue = Waiting()
        self.live: dict[int, ReplyStream] = {}
        self.totals = Totals()
        self.idle = asyncio.Event()
        """Set while nothing is live and the ranks have been told so."""
        self.idle.set()
        self._ranks = ranks
        self._clock = clock
        self._moved = clock.now()
        self._scheduler = Scheduler(shape, decode_share)
        self._checks = checks
        self._idle_lanes = list(range(shape.lanes))
        self._begins: dict[int, Begin] = {}
        self._ends: list[int] = []
        self._stopped: list[ReplyStream] = []
        self._work = asyncio.Event()

    def enqueue(self, reply: ReplyStream) -> None:
        """Queue a request that was not refused; it starts here and now if it can."""
        self.queue.add(reply)
        self.queue.start(self._begin)

    def stop(self, reply: ReplyStream) -> None:
        """Nobody reads `reply` any more: out of the queue at once, out of its lane next round."""
        if reply.lane.state is State.WAITING:
            self.queue.remove(reply)
            self._end(reply, Finished(FinishReason.CANCELLED))
        else:
            self._stopped.append(reply)
            self.ring()

    def refuse_queue(self, error: StreamglmError) -> None:
        """Fail whatever waits."""
        while self.queue:
            self._end(self.queue.take(), Failed(error))

    def fail(self, error: StreamglmError) -> None:
        """Fail whatever waits or is live; the ranks are told nothing. `run` must have ended."""
        self.refuse_queue(error)
        for reply in list(self.live.values()):
            self._release(reply, Failed(error))
        self._begins.clear()
        self._ends.clear()
        self._stopped.clear()
        self.idle.set()

    @property
    def stalled(self) -> float:
        """Seconds for which something has been live and no round has ended; 0 with nothing live."""
        return self._clock.now() - self._moved if self.live else 0.0

    def prompts(self) -> Iterator[PromptProgress]:
        """The prompts that are being computed."""
        for reply in self.live.values():
            lane = reply.lane
            if lane.state is State.FILLING:
                yield PromptProgress(lane.request.id, lane.filled, len(lane.request.prompt))

    async def run(self) -> NoReturn:
        """Rounds for ever. Raises `EngineFailed`; cancelled, it leaves the lanes to `fail`."""
        while True:
            self._work.clear()
            if not await self.round():
                if not self.live:
                    self.check()
                    self.idle.set()
                await self._work.wait()

    def ring(self) -> None:
        """Something has changed that a round may have to act on: a record came, a reply stopped."""
        self._work.set()

    async def round(self) -> bool:
        """One round. False when there was nothing to tell the ranks."""
        for reply in self._stopped:
            if reply.lane.state is not State.DONE:
                self._release(reply, Finished(FinishReason.CANCELLED))
        self._stopped.clear()
        for lane in self.keeping.learning.failed():
            self._return(self.live[lane.index])
        self.queue.start(self._begin)
        lanes = {index: reply.lane for index, reply in self.live.items()}
        work = self.drafting.widen(self._scheduler.choose(lanes.values()), lanes)
        puts = self.keeping.learning.puts()
        step = Step(
            ends=tuple(self._ends),
            moves=self.keeping.kept.moves(),
            begins=tuple(self._begins.values()),
            carries=self.keeping.carries(),
            puts=puts,
            chunks=work.chunks,
            saves=self.keeping.saves(puts, work.chunks),
            writes=self.keeping.learning.writes(),
            rows=work.rows,
        )
        if step == Step():
            return False
        self._ends.clear()
        self._begins.clear()
        result = await self._ranks.run(step, self.book.digest() ^ self.keeping.kept.digest)
        self._moved = self._clock.now()
        self._commit(step, work, result)
        if self._checks:
            self.check()
        return True

    def check(self) -> None:
        """Prove the invariant, the book's and each lane's; AssertionError says what broke."""
        self.book.check()
        self.keeping.check(reply.lane for reply in (*self.queue, *self.live.values()))
        numbers = sorted([*self._idle_lanes, *self.live])
        assert numbers == list(range(self.shape.lanes)), f"lanes idle or live: {numbers}"
        for index, reply in self.live.items():
            assert reply.lane.index == index, f"lane {index} calls itself {reply.lane.index}"
            assert reply.lane.pages == self.book.pages(index), f"lane {index} has others' pages"
        for reply in (*self.queue, *self.live.values()):
            reply.lane.check(self.shape.page_rows)
        assert self.book.stats().leases == len(self.live), "a lane that is idle holds pages"

    def _begin(self, reply: ReplyStream) -> Wait | None:
        """Start a request that waits, or say what for it waits on."""
        if not self._idle_lanes:
            return Wait.LANES
        if self.keeping.waits(reply.lane):
            return Wait.PREFIX
        request, index = reply.lane.request, self._idle_lanes[0]
        pages = self.keeping.lease(reply.lane, index, need_pages(self.shape, request))
        if pages is None:
            return Wait.PAGES
        heapq.heappop(self._idle_lanes)
        if not self.live:
            self._moved = self._clock.now()
        restore = self.keeping.begin(reply.lane, index, pages)
        self.live[index] = reply
        self._begins[index] = Begin(
            index,
            pages,
            draw_of(request.sampling),
            restore,
            seen_of(request),
            self.drafting.begin(reply.lane),
        )
        self.idle.clear()
        self._work.set()
        if restore is None:
            reply.start(Started(cached_tokens=0))
        return None

    def _commit(self, step: Step, work: Work, result: StepResult) -> None:
        """Move the lanes by what the ranks computed, and deliver."""
        check_drawn(work, result.drawn, self.shape.vocab_size)
        self._count(work.chunks, result)
        running = result.window_seconds + result.draft_seconds
        self._scheduler.measured(work, result.prompt_seconds, running)
        self.drafting.measured(work, result)
        self.keeping.done(step)
        for begin in step.begins:
            if isinstance(begin.restore, Restore):
                self.live[begin.lane].start(Started(begin.restore.at))
        for put in step.puts:
            if put.seal:
                reply = self.live[put.lane]
                reply.start(Started(reply.lane.start))
        for chunk in work.chunks:
            self.live[chunk.lane].lane.fill(len(chunk.tokens))
        now = self._clock.now()
        windows = {row.lane for row in work.rows}
        for drawn in result.drawn:
            self._drawn(self.live[drawn.lane], drawn, drawn.lane in windows, now)

    def _count(self, chunks: tuple[Chunk, ...], result: StepResult) -> None:
        totals = self.totals
        totals.rounds += 1
        totals.prompt_tokens += sum(len(chunk.tokens) for chunk in chunks)
        totals.prompt_seconds += result.prompt_seconds
        totals.window_seconds += result.window_seconds
        totals.draft_seconds += result.draft_seconds
        totals.sent.update(result.sent)

    def _drawn(self, reply: ReplyStream, drawn: Drawn, window: bool, now: float) -> None:
        """The tokens of one lane, from a prompt's end or from a `window`: one by one, so that the
        reply ends where it would without drafts. A lane that gets no usable token fails alone."""
        lane = reply.lane
        wanted = lane.request.sampling.logprobs is not None
        usable = sum(0 <= token < self.shape.vocab_size for token in drawn.tokens)
        if len(drawn.logprobs[:usable]) != (usable if wanted else 0):
            raise EngineFailed(f"lane {drawn.lane} has {len(drawn.logprobs)} log-probabilities")
        reason, told = None, 0
        while told < usable and reason is None:
            token = drawn.tokens[told]
            reason = lane.draw(token, self.totals.rounds, now)
            reply.push(token, drawn.logprobs[told] if wanted else None)
            told += 1
        self.totals.generated_tokens += told
        if window:
            self.drafting.stood(lane, min(told, len(drawn.tokens) - 1))
        if reason is not None:
            self._release(reply, Finished(reason))
        elif usable < len(drawn.tokens):
            error = ReplyFailed(f"the model's logits gave no token at lane {lane.index}")
            self._release(reply, Failed(error))
        else:
            self.drafting.follow(drawn)

    def _return(self, reply: ReplyStream) -> None:
        """What a live lane waited for could not be read: it waits for its begin again, first of
        all; number and pages are free, and the ranks will be told."""
        self.keeping.returned(reply.lane)
        self._vacate(reply.lane.index)
        reply.lane.return_()
        self.queue.put_back(reply)

    def _release(self, reply: ReplyStream, end: Finished | Failed) -> None:
        """A live lane ends."""
        self._vacate(reply.lane.index)
        self._end(reply, end)

    def _vacate(self, index: int) -> None:
        """Number and pages of a lane are free, and the ranks will be told, if they knew of it."""
        self.book.release(index)
        self.drafting.end(index)
        del self.live[index]
        heapq.heappush(self._idle_lanes, index)
        if self._begins.pop(index, None) is None:
            self._ends.append(index)

    def _end(self, reply: ReplyStream, end: Finished | Failed) -> None:
        self.keeping.forget(reply.lane)
        reply.lane.end(self._clock.now())
        self.totals.ended[end.reason.value if isinstance(end, Finished) else "failed"] += 1
        reply.finish(end)
