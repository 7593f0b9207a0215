"""Drafts of all live replies: what each may take, what it takes this round, and what came of it.

Owns the drafters of each reply and the one policy of the engine. Knows replies by their lane's
number, and rounds only as `plan` before and `follow` after. Invariant: a plan fits its lane: no
draft passes the last token that the reply may have, or the rows of its pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from streamglm.drafts.drafter import Chain, Drafter, Proposal, Source
from streamglm.drafts.lookup import Lookup
from streamglm.drafts.policy import Chances, Offer, Policy


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """What drafts may take. `verify_rows` 1 is none at all."""

    window_rows: int = 1
    """Rows of a window at most."""
    verify_rows: int = 1
    """Rows of one lane in it at most."""
    chain: bool = False
    """The ranks have a next-token layer."""
    fixed: int | None = None
    """Drafts of every window, as far as there are any; None: the policy's choice."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a lane stands before a window."""

    lane: int
    left: int
    """Tokens that the reply may still have, at least 1."""
    room: int
    """Rows of the lane's pages from its next row on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a lane does in a window."""

    drafts: tuple[int, ...] = ()
    ahead: int = 0
    source: Source | None = None


NOTHING = Plan()


@dataclass(slots=True)
class _Reply:
    """The drafters of one reply."""

    chain: bool
    drafters: tuple[Drafter, ...]
    chances: Chances


@dataclass(slots=True)
class DraftTotals:
    """Counts since the start, by drafter."""

    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)


class Replies:
    """Drafts of one engine's lanes."""

    def __init__(self, limits: DraftLimits) -> None:
        self.limits = limits
        self.totals = DraftTotals()
        self._policy = Policy(limits.window_rows)
        self._replies: dict[int, _Reply] = {}

    @property
    def off(self) -> bool:
        """Nothing is ever drafted."""
        return self.limits.verify_rows < 2 or self.limits.fixed == 0

    def begin(self, lane: int, prompt: Sequence[int], room: int) -> bool:
        """A reply of at most `room` tokens begins. Returns whether the next-token layer is to
        follow it."""
        drafters: list[Drafter] = [Lookup(prompt, room)]
        if self.limits.chain:
            drafters.append(Chain())
        self._replies[lane] = _Reply(
            self.limits.chain, tuple(drafters), Chances(self._policy.chances)
        )
        return self.limits.chain

    def end(self, lane: int) -> None:
        """Its reply ended, if one began."""
        self._replies.pop(lane, None)

    def first(self, stand: Stand) -> int:
        """How many drafts to ask for with the reply's first token."""
        reply = self._replies.get(stand.lane)
        if reply is None or not reply.chain:
            return 0
        most = self._most_ahead(stand, 0)
        return self._asked([reply.chances.of(Source.CHAIN).offer(most)])[0]

    def plan(self, stands: Sequence[Stand]) -> list[Plan]:
        """What each lane of a window does; a lane that does not draft has nothing."""
        proposals = [self._proposal(stand) for stand in stands]
        taken = self._taken(proposals, stands)
        asked = self._ahead(proposals, taken, stands)
        return [
            NOTHING
            if stand.lane not in self._replies
            else Plan(
                proposal[0].tokens[:count] if proposal else (),
                ahead,
                proposal[0].source if proposal and count else None,
            )
            for stand, proposal, count, ahead in zip(stands, proposals, taken, asked, strict=True)
        ]

    def follow(self, lane: int, plan: Plan, tokens: Sequence[int], drafts: Sequence[int]) -> None:
        """A lane with `plan` drew `tokens`, and the ranks drafted `drafts` behind them."""
        reply = self._replies.get(lane)
        if reply is None:
            return
        count, accepted = len(plan.drafts), len(tokens) - 1
        for chances in (reply.chances, self._policy.chances):
            if plan.source is None:
                chances.idle()
            else:
                chances.add(plan.source, count, accepted)
        for drafter in reply.drafters:
            drafter.follow(tokens, drafts)

    def count(self, plan: Plan, accepted: int) -> None:
        """Of a plan's drafts, `accepted` stand in the reply."""
        if plan.source is not None:
            self.totals.drafted[plan.source.drafter] += len(plan.drafts)
            self.totals.accepted[plan.source.drafter] += accepted

    def measured(
        self, lanes: int, rows: int, window_seconds: float, depth: Sequence[int], seconds: float
    ) -> None:
        """A round's window of `rows` rows of `lanes` lanes, and the drafting of `depth` tokens
        behind each lane, took so long."""
        if lanes:
            self._policy.measured(lanes, rows, window_seconds)
        behind = [count for count in depth if count]
        if behind:
            self._policy.drafted(len(behind), max(behind), seconds)

    def _proposal(self, stand: Stand) -> tuple[Proposal, Offer] | None:
        """The drafter's proposal that is expected to bring the most, and its chances."""
        reply = self._replies.get(stand.lane)
        if reply is None:
            return None
        most = min(self.limits.verify_rows, stand.left, stand.room) - 1
        found = None
        for drafter in reply.drafters:
            proposal = drafter.propose(most)
            if proposal is None:
                continue
            offer = reply.chances.of(proposal.source).offer(len(proposal.tokens))
            if found is None or sum(offer) > sum(found[1]):
                found = proposal, offer
        return found

    def _taken(
        self, proposals: Sequence[tuple[Proposal, Offer] | None], stands: Sequence[Stand]
    ) -> list[int]:
        offers: list[Offer] = [one[1] if one else () for one in proposals]
        if self.limits.fixed is None:
            return self._policy.take(offers)
        rest = self.limits.window_rows - len(stands)
        taken = []
        for offer in offers:
            taken.append(min(len(offer), self.limits.fixed, rest))
            rest -= taken[-1]
        return taken

    def _ahead(
        self,
        proposals: Sequence[tuple[Proposal, Offer] | None],
        taken: Sequence[int],
        stands: Sequence[Stand],
    ) -> list[int]:
        """What to ask of the next-token layer; nothing where the lane goes on copying."""
        offers: list[Offer] = []
        for stand, proposal, count in zip(stands, proposals, taken, strict=True):
            reply = self._replies.get(stand.lane)
            if reply is None or not reply.chain:
                offers.append(())
                continue
            chain = reply.chances.of(Source.CHAIN).offer(self._most_ahead(stand, 1 + count))
            copies = count and proposal and proposal[0].source is not Source.CHAIN
            better = copies and proposal and sum(proposal[1][:count]) >= sum(chain)
            offers.append(() if better else chain)
        return self._asked(offers)

    def _most_ahead(self, stand: Stand, rows: int) -> int:
        """Drafts that the next window can take, and that the pages have rows for."""
        of_reply = stand.left - 2
        return max(0, min(self.limits.verify_rows - 1, of_reply, stand.room - rows))

    def _asked(self, offers: Sequence[Offer]) -> list[int]:
        if self.limits.fixed is None:
            return self._policy.ask(offers)
        return [min(len(offer), self.limits.fixed) for offer in offers]
