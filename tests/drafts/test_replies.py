"""Drafts of live replies: limits that hold, sources that are chosen, counts that add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamglm.drafts.drafter import Chain, Drafter, Proposal, Source
from streamglm.drafts.lookup import Lookup
from streamglm.drafts.replies import NOTHING, DraftLimits, Plan, Replies, Stand

LIMITS = DraftLimits(window_rows=32, verify_rows=16, chain=True, fixed=6)
REPEATS = tuple(range(20)) * 2
NEW = tuple(range(100, 130))


def replies(prompt: tuple[int, ...] = NEW, **changed: Any) -> Replies:
    """One reply on lane 0, after a prompt."""
    made = Replies(replace(LIMITS, **changed))
    made.begin(0, prompt, 100)
    return made


def stand(left: int = 50, room: int = 60, lane: int = 0) -> Stand:
    return Stand(lane, left, room)


@pytest.mark.parametrize("made", [Chain(), Lookup(REPEATS, 10)], ids=["chain", "lookup"])
def test_every_drafter_keeps_the_protocol(made: Drafter) -> None:
    made.follow([7], [1, 2, 3])
    for most in (3, 1, 0):
        first, again = made.propose(most), made.propose(most)
        assert first == again, "a proposal changes nothing"
        assert first is None or 0 < len(first.tokens) <= most
    assert made.propose(0) is None


def test_a_plan_is_what_the_next_token_layer_drafted() -> None:
    made = replies()
    assert made.first(stand()) == 6
    made.follow(0, NOTHING, [1], (2, 3, 4))
    assert made.plan([stand()]) == [Plan((2, 3, 4), 6, Source.CHAIN)]


def test_a_quotation_is_worth_more_than_a_draft_of_two() -> None:
    made = replies(REPEATS)
    made.follow(0, NOTHING, [0], (2, 3))
    (plan,) = made.plan([stand()])
    assert plan.source is Source.QUOTE
    assert plan.drafts == (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("left", "room", "drafts", "ahead"),
    [(50, 60, 6, 6), (3, 60, 2, 1), (2, 60, 1, 0), (1, 60, 0, 0), (50, 8, 6, 1), (4, 5, 3, 1)],
)
def test_no_draft_passes_the_last_token_or_the_pages(
    left: int, room: int, drafts: int, ahead: int
) -> None:
    """A window of R rows gives R tokens at most; of the next-token layer's rows, the last token's
    and those of all drafts but the last need a place behind the window's."""
    made = replies()
    made.follow(0, NOTHING, [1], tuple(range(9)))
    (plan,) = made.plan([stand(left, room)])
    assert (len(plan.drafts), plan.ahead) == (drafts, ahead)
    assert 1 + len(plan.drafts) + max(1, plan.ahead) <= room


def test_a_window_of_many_lanes_is_not_overfull() -> None:
    made = Replies(LIMITS)
    for lane in range(12):
        made.begin(lane, NEW, 100)
        made.follow(lane, NOTHING, [1], tuple(range(9)))
    plans = made.plan([stand(lane=lane) for lane in range(12)])
    assert sum(1 + len(plan.drafts) for plan in plans) == 32


def test_a_reply_that_asked_for_none_has_none() -> None:
    made = replies()
    made.follow(0, NOTHING, [1], (2, 3))
    plans = made.plan([stand(), stand(lane=5)])
    assert plans[0].drafts
    assert plans[1] is NOTHING
    assert made.first(stand(lane=5)) == 0


def test_without_a_next_token_layer_there_are_copies() -> None:
    made = replies(REPEATS, chain=False)
    assert made.first(stand()) == 0
    made.follow(0, NOTHING, [0], ())
    (plan,) = made.plan([stand()])
    assert (plan.source, plan.ahead) == (Source.QUOTE, 0)


@pytest.mark.parametrize("changed", [{"fixed": 0}, {"verify_rows": 1}])
def test_off_is_off(changed: dict[str, Any]) -> None:
    assert replies(**changed).off


def test_while_a_reply_copies_the_layer_is_not_asked() -> None:
    """The policy's choice: a copy that is more likely needs no drafts for the next window."""
    made = replies(REPEATS, fixed=None)
    made.measured(1, 1, 0.004, [0], 0.0)
    made.follow(0, NOTHING, [0], (50, 51))
    (plan,) = made.plan([stand()])
    assert (plan.source, plan.ahead) == (Source.QUOTE, 0)


def test_counts_are_by_drafter() -> None:
    made = replies(REPEATS)
    made.count(Plan((1, 2, 3), 0, Source.CHAIN), 2)
    made.count(Plan((1, 2), 0, Source.HINT), 2)
    made.count(Plan((1,), 0, Source.QUOTE), 0)
    made.count(NOTHING, 0)
    assert made.totals.drafted == {"chain": 3, "lookup": 3}
    assert made.totals.accepted == {"chain": 2, "lookup": 2}


def test_a_reply_whose_drafts_are_false_stops_drafting_and_is_asked_again_later() -> None:
    """A hundred windows in which the layer is always wrong: drafts become rare."""
    made = Replies(replace(LIMITS, fixed=None))
    made.begin(0, NEW, 1000)
    made.measured(1, 1, 0.004, [0], 0.0)
    asked = made.first(stand())
    drafted = []
    for window in range(400):
        made.follow(0, NOTHING, [window % 97 + 200], tuple(range(asked)))
        (plan,) = made.plan([stand()])
        rows = 1 + len(plan.drafts)
        made.measured(1, rows, 0.004 + 0.0006 * (rows - 1), [plan.ahead], 0.0006 * plan.ahead)
        made.follow(0, plan, [7], tuple(range(plan.ahead)))
        drafted.append(len(plan.drafts))
        asked = 0
    assert sum(drafted[:20]) > 0
    assert 0 < sum(drafted[100:]) < 30


def test_proposals_are_values() -> None:
    assert Proposal((1,), Source.CHAIN).source.drafter == "chain"
    assert {Source.HINT.drafter, Source.QUOTE.drafter} == {"lookup"}
