"""Drafts in the rounds: a round's work with drafts in it, and what came of them.

Owns the plans of the round in flight. Knows lanes and steps, and leaves every choice to `drafts/`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from streamglm.core.lane import Lane
from streamglm.core.scheduler import Work
from streamglm.drafts.replies import NOTHING, DraftLimits, DraftTotals, Plan, Replies, Stand
from streamglm.errors import EngineFailed
from streamglm.step import Chunk, Drawn, Row, StepResult


class Drafting:
    """The drafts of one engine, over pages of `page_rows` rows."""

    def __init__(self, limits: DraftLimits, page_rows: int) -> None:
        self._replies = Replies(limits)
        self._page_rows = page_rows
        self._plans: dict[int, Plan] = {}

    @property
    def totals(self) -> DraftTotals:
        return self._replies.totals

    def begin(self, lane: Lane) -> bool:
        """`lane` begins; whether the next-token layer is to follow its reply."""
        request = lane.request
        if self._replies.off or not request.draft:
            return False
        return self._replies.begin(lane.index, request.prompt, request.max_tokens)

    def end(self, index: int) -> None:
        """The lane of that number ends."""
        self._replies.end(index)

    def widen(self, work: Work, lanes: Mapping[int, Lane]) -> Work:
        """`work` with drafts in its rows, and drafts asked for behind its rows and prompts."""
        self._plans = {}
        if self._replies.off:
            return work
        plans = self._replies.plan([self._stand(lanes[row.lane]) for row in work.rows])
        self._plans = {row.lane: plan for row, plan in zip(work.rows, plans, strict=True)}
        rows = (_with(row, plan) for row, plan in zip(work.rows, plans, strict=True))
        chunks = (self._opening(chunk, lanes[chunk.lane]) for chunk in work.chunks)
        return Work(tuple(chunks), tuple(rows))

    def measured(self, work: Work, result: StepResult) -> None:
        """What the round took."""
        if self._replies.off:
            return
        ahead = [row.ahead for row in work.rows] + [chunk.ahead for chunk in work.chunks]
        rows = sum(len(row.tokens) for row in work.rows)
        self._replies.measured(
            len(work.rows), rows, result.window_seconds, ahead, result.draft_seconds
        )

    def stood(self, lane: Lane, accepted: int) -> None:
        """`lane` stood in the window in flight; `accepted` drafts of it are in its reply."""
        plan = self._plans.get(lane.index, NOTHING)
        lane.stood(len(plan.drafts), accepted)
        self._replies.count(plan, accepted)

    def follow(self, drawn: Drawn) -> None:
        """A lane that goes on has drawn."""
        plan = self._plans.get(drawn.lane, NOTHING)
        self._replies.follow(drawn.lane, plan, drawn.tokens, drawn.drafts)

    def _stand(self, lane: Lane) -> Stand:
        rows = len(lane.pages) * self._page_rows
        return Stand(lane.index, lane.left, rows - lane.position)

    def _opening(self, chunk: Chunk, lane: Lane) -> Chunk:
        if not chunk.last:
            return chunk
        rows = len(lane.pages) * self._page_rows
        stand = Stand(chunk.lane, lane.left, rows - len(lane.request.prompt))
        ahead = self._replies.first(stand)
        return msgspec.structs.replace(chunk, ahead=ahead) if ahead else chunk


def _with(row: Row, plan: Plan) -> Row:
    if plan is NOTHING:
        return row
    return msgspec.structs.replace(row, drafts=plan.drafts, ahead=plan.ahead)


def check_drawn(work: Work, drawn: tuple[Drawn, ...], vocab: int) -> None:
    """Raise `EngineFailed` unless the ranks drew what `work` asks for: for its lanes, in its order,
    along its drafts."""
    rows: dict[int, Row | None] = {chunk.lane: None for chunk in work.chunks if chunk.last}
    rows |= {row.lane: row for row in work.rows}
    answered = [one.lane for one in drawn]
    if answered != list(rows):
        raise EngineFailed(f"the ranks drew for lanes {answered}, asked for {list(rows)}")
    for one in drawn:
        row = rows[one.lane]
        drafts = () if row is None else row.drafts
        count = len(one.tokens)
        if not 1 <= count <= 1 + len(drafts) or one.tokens[:-1] != drafts[: count - 1]:
            raise EngineFailed(f"lane {one.lane} drew {one.tokens} along the drafts {drafts}")
        if one.drafts and not 0 <= min(one.drafts) <= max(one.drafts) < vocab:
            raise EngineFailed(f"lane {one.lane} has drafts {one.drafts}, not all below {vocab}")
