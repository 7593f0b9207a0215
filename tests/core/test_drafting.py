"""Drafts in the rounds: a reply is the one without them, in tokens, end and what it leaves behind.

The stub drafts behind every draw as it is asked, and of its drafts a place's own number is right,
so windows end at every place. Its tokens are a function of prompt, seed and position.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from streamglm.core.loop import Rounds
from streamglm.core.reply import ReplyStream
from streamglm.core.service import EngineService
from streamglm.drafts.replies import DraftLimits
from streamglm.errors import EngineFailed
from streamglm.request import Finished, FinishReason, Request, Tokens
from streamglm.step import Drawn, Step, StepResult
from support.busy import busy
from support.clock import LoopClock, run_virtual, virtual_time
from support.fakes import FakeRanks, shape
from support.house import House, assert_idle, cache_of, read, request, serving, tokens_of

OF = shape(lanes=8, pages=96, window_rows=16, slack=8)
FIXED = DraftLimits(window_rows=16, verify_rows=8, chain=True, fixed=5)
AUTO = replace(FIXED, fixed=None)
COPIES = replace(FIXED, chain=False)
LIMITS = {"fixed": FIXED, "auto": AUTO, "copies": COPIES}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_a_day_of_requests_is_what_it_is_without_drafts(limits: DraftLimits) -> None:
    """Cold and resumed, alone and beside others, left and read: `busy` holds each to its tokens,
    and the stub proves that every row is its own."""
    drafted = []

    async def body(engine: EngineService) -> None:
        await busy(engine, 400, seed=3)
        drafted.append(engine.stats())

    House("fake").run(body, OF, cache=cache_of(slots=6), drafts=limits)
    chain = drafted[0].drafted_total["chain"], drafted[0].accepted_total["chain"]
    assert (chain[0] > 400 and 0 < chain[1] < chain[0]) == limits.chain


async def asked(engine: EngineService, one: Request) -> tuple[tuple[int, ...], object, Any]:
    reply = engine.submit(one)
    ids, end = await read(reply)
    return ids, end, reply.timing()


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 9, 30])
def test_stops_and_limits_inside_a_run(most: int) -> None:
    """An end token at each place of a reply, and each limit: as in serial decoding."""

    async def body(engine: EngineService) -> None:
        for seed in range(4):
            plain = request(13 + seed, most, seed=seed)
            whole = tokens_of(plain)
            for place, token in enumerate(whole):
                stops = frozenset({token})
                first = whole.index(token)
                ids, end, timing = await asked(engine, replace(plain, stop_ids=stops))
                assert ids == whole[: first + 1], f"stop at {place}"
                assert end is FinishReason.STOP
                assert 1 + timing.rounds + timing.accepted >= len(ids)
            ids, end, timing = await asked(engine, plain)
            assert (ids, end) == (whole, FinishReason.LENGTH)
            assert 1 + timing.rounds + timing.accepted == most

    House("fake").run(body, OF, drafts=FIXED)


def test_a_request_without_drafts_stands_a_row_a_window() -> None:
    async def body(engine: EngineService) -> None:
        plain = request(20, 30, seed=4)
        ids, _, timing = await asked(engine, replace(plain, draft=False))
        assert ids == tokens_of(plain)
        assert (timing.rounds, timing.drafted, timing.accepted) == (29, 0, 0)
        ids, _, timing = await asked(engine, plain)
        assert ids == tokens_of(plain)
        assert timing.rounds < 29
        assert timing.drafted > timing.accepted > 0

    House("fake").run(body, OF, drafts=FIXED)


@pytest.mark.parametrize("limits", [FIXED, AUTO], ids=["fixed", "auto"])
def test_windows_hold_what_the_ranks_take(limits: DraftLimits) -> None:
    """Eight lanes and 16 rows: the mirror refuses a window of more, or more than 8 of a lane."""

    async def body(engine: EngineService) -> None:
        every = [request(10 + seed, 40, seed=seed) for seed in range(8)]
        found = await asyncio.gather(*(asked(engine, one) for one in every))
        assert [ids for ids, _, _ in found] == [tokens_of(one) for one in every]
        assert sum(timing.accepted for _, _, timing in found) > 0

    House("fake").run(body, OF, drafts=limits)


@pytest.mark.parametrize("paged", [True, False])
def test_a_reply_to_the_end_of_the_window_fits_its_pages(paged: bool) -> None:
    """Drafts behind the last rows have no pages: they are not asked for."""
    of = shape(lanes=2, pages=66 if paged else 64, window_rows=16, slack=8 if paged else 0)
    of = replace(of, paged=paged)
    limits = replace(FIXED, verify_rows=max(1, of.slack))

    async def body(engine: EngineService) -> None:
        for prompt in range(200, 256, 5):
            one = request(prompt, 256 - prompt, seed=prompt)
            assert (await asked(engine, one))[0] == tokens_of(one)

    House("fake").run(body, of, drafts=limits)


@virtual_time
async def test_a_reader_who_leaves_in_the_middle_of_a_run() -> None:
    ranks = FakeRanks(OF, LoopClock(), window_seconds=0.01)
    async with serving(OF, ranks, drafts=FIXED) as engine:
        for seed in range(12):
            reply = engine.submit(request(10, 60, seed=seed))
            seen = 0
            async for event in reply:
                if isinstance(event, Tokens):
                    seen += len(event.ids)
                    if seen > seed:
                        reply.stop()
                assert not isinstance(event, Finished) or event.reason is FinishReason.CANCELLED
        await asyncio.sleep(0.1)
        assert_idle(engine)


class Slow(FakeRanks):
    """A window takes a tenth of a millisecond a row, and drafts as much each."""

    async def run(self, step: Step, digest: int) -> StepResult:
        result = await super().run(step, digest)
        rows = sum(len(row.tokens) for row in step.rows)
        ahead = sum(row.ahead for row in step.rows) + sum(chunk.ahead for chunk in step.chunks)
        seconds = 0.0001 * rows, 0.0001 * ahead
        await asyncio.sleep(sum(seconds))
        return StepResult(result.drawn, result.prompt_seconds, *seconds)


@virtual_time
async def test_the_decode_share_counts_drafts_as_decoding() -> None:
    """While a long prompt fills, running replies have half of the time, and no more: prompt passes
    of 16 ms each are followed by as much of windows and drafts. Without the drafts in the count,
    the replies had 1.8 times their share."""
    of = replace(OF, context=16384, pages=2100)
    ranks = Slow(of, LoopClock(), row_seconds=0.001)
    async with serving(of, ranks, drafts=FIXED) as engine:
        running = engine.submit(request(10, 4000, seed=1))
        await asyncio.sleep(0.1)
        start = asyncio.get_running_loop().time()
        before = engine.stats()
        await read(engine.submit(request(480, 1, seed=2)))
        spent = asyncio.get_running_loop().time() - start
        after = engine.stats()
        decoding = (
            after.window_seconds_total
            + after.draft_seconds_total
            - before.window_seconds_total
            - before.draft_seconds_total
        )
        assert spent == pytest.approx(0.96, rel=0.1)
        assert decoding == pytest.approx(0.48, rel=0.1)
        running.stop()


class Liar(FakeRanks):
    """Answers with what `change` makes of each lane's tokens."""

    def __init__(self, change: str) -> None:
        super().__init__(OF, LoopClock())
        self._change = change

    async def run(self, step: Step, digest: int) -> StepResult:
        result = await super().run(step, digest)
        return msgspec.structs.replace(result, drawn=tuple(map(self._lie, result.drawn)))

    def _lie(self, one: Drawn) -> Drawn:
        if len(one.tokens) < 3:
            return one
        match self._change:
            case "none":
                return msgspec.structs.replace(one, tokens=())
            case "too many":
                return msgspec.structs.replace(one, tokens=one.tokens * 9)
            case "off the drafts":
                first = (one.tokens[0] + 1) % 50
                return msgspec.structs.replace(one, tokens=(first, *one.tokens[1:]))
        return msgspec.structs.replace(one, drafts=(50,))


@pytest.mark.parametrize("change", ["none", "too many", "off the drafts", "no such draft"])
def test_ranks_that_draw_what_was_not_asked_are_of_no_more_use(change: str) -> None:
    run_virtual(_lied(change))


async def _lied(change: str) -> None:
    engine = EngineService(OF, Liar(change), LoopClock(), drafts=FIXED)
    async with asyncio.TaskGroup() as group:
        group.create_task(engine.run())
        _, end = await read(engine.submit(request(10, 40, seed=1)))
    assert isinstance(end, EngineFailed)
    assert "lane 0" in end.message


# -- without a piece of it


def only_at_window_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a reply is looked for at the last token of a run alone."""
    honest = Rounds._drawn

    def drawn(rounds: Rounds, reply: ReplyStream, one: Drawn, window: bool, now: float) -> None:
        for token in one.tokens[:-1]:
            reply.lane.token = token
            reply.lane.drawn += 1
            reply.push(token)
        last = msgspec.structs.replace(one, tokens=one.tokens[-1:])
        honest(rounds, reply, last, window, now)

    monkeypatch.setattr(Rounds, "_drawn", drawn)


def without_the_bonus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run, the token that comes for free is not told."""
    honest = Rounds._drawn

    def drawn(rounds: Rounds, reply: ReplyStream, one: Drawn, window: bool, now: float) -> None:
        tokens = one.tokens[:-1] or one.tokens
        honest(rounds, reply, msgspec.structs.replace(one, tokens=tokens), window, now)

    monkeypatch.setattr(Rounds, "_drawn", drawn)


@pytest.mark.parametrize("fault", [only_at_window_ends, without_the_bonus])
def test_each_piece_of_a_run_counts(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        test_stops_and_limits_inside_a_run(9)
