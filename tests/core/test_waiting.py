"""The queue alone: its order, who lets whom pass, and the reasons it tells."""

from __future__ import annotations

from dataclasses import replace

from streamglm.core.admission import Wait
from streamglm.core.bell import Bell
from streamglm.core.lane import Lane
from streamglm.core.reply import ReplyStream
from streamglm.core.waiting import MOST_ASIDE, Waiting
from support.house import request
from support.manual import ManualClock


def reply_of(name: str) -> ReplyStream:
    """One that is in the background if its name begins with b."""
    asked = replace(request(id=name), background=name.startswith("b"))
    return ReplyStream(Lane(asked, 0.0, 0), ManualClock(), lambda reply: None, Bell(lambda: 0.0))


def queue_of(*names: str) -> Waiting:
    queue = Waiting()
    for name in names:
        queue.add(reply_of(name))
    return queue


def names(queue: Waiting) -> list[str]:
    return [reply.lane.request.id for reply in queue]


def start(queue: Waiting, **reasons: Wait) -> list[str]:
    """Start all but those with a reason; who was asked."""
    asked = []

    def begin(reply: ReplyStream) -> Wait | None:
        asked.append(reply.lane.request.id)
        return reasons.get(asked[-1])

    queue.start(begin)
    return asked


def test_background_is_behind_all_others() -> None:
    assert names(queue_of("b1", "a1", "b2", "a2")) == ["a1", "a2", "b1", "b2"]


def test_nobody_passes_who_waits_for_pages() -> None:
    queue = queue_of("a1", "a2", "a3", "b1")
    assert start(queue, a2=Wait.PAGES) == ["a1", "a2"]
    assert names(queue) == ["a2", "a3", "b1"]
    assert queue.reasons() == {"lanes": 0, "pages": 3, "prefix": 0}


def test_everybody_passes_who_waits_for_a_prefix_and_nobody_loses_a_place() -> None:
    queue = queue_of("a1", "a2", "a3", "a4", "b1")
    assert start(queue, a1=Wait.PREFIX, a3=Wait.PREFIX, a4=Wait.LANES) == ["a1", "a2", "a3", "a4"]
    assert names(queue) == ["a1", "a3", "a4", "b1"]
    assert queue.reasons() == {"lanes": 2, "pages": 0, "prefix": 2}


def test_behind_many_that_wait_for_a_prefix_everyone_waits() -> None:
    waiting = [f"a{number}" for number in range(MOST_ASIDE + 2)]
    queue = queue_of(*waiting, "z")
    asked = start(queue, **dict.fromkeys(waiting, Wait.PREFIX))
    assert asked == waiting[: MOST_ASIDE + 1]
    assert names(queue) == [*waiting, "z"]
    assert queue.reasons() == {"lanes": 0, "pages": 0, "prefix": MOST_ASIDE + 3}


def test_a_reason_goes_with_the_request() -> None:
    queue = queue_of("a1", "a2")
    start(queue, a1=Wait.PREFIX, a2=Wait.PREFIX)
    queue.remove(next(iter(queue)))
    assert queue.reasons()["prefix"] == 1
    assert queue.take().lane.request.id == "a2"
    assert not any(queue.reasons().values())
