"""The queue: who waits, in which order, and for what.

Owns the order: foreground requests as they came, then background requests as they came. Knows no
lanes and no pages; whoever tries to start a request says why it cannot. Nobody passes a request
that waits for lanes or pages: a large one would wait for ever behind a stream of small ones. A
request that waits for a prefix needs nothing that others could take from it, and lets them pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from streamglm.core.admission import Wait
from streamglm.core.reply import ReplyStream

MOST_ASIDE = 32
"""Requests that wait for a prefix and let others pass. Each costs a look at what is kept when the
prefix comes, so behind so many of them everyone waits."""


class Waiting:
    """Replies that wait for their start."""

    def __init__(self) -> None:
        self._replies: deque[ReplyStream] = deque()
        self._aside: set[ReplyStream] = set()
        """Those that wait for a prefix."""
        self._reason = Wait.LANES
        """Why the others wait."""

    def __len__(self) -> int:
        return len(self._replies)

    def __iter__(self) -> Iterator[ReplyStream]:
        return iter(self._replies)

    def add(self, reply: ReplyStream) -> None:
        """Last of its kind; before every background request if it is none."""
        place = len(self._replies)
        if not _background(reply):
            while place and _background(self._replies[place - 1]):
                place -= 1
        self._replies.insert(place, reply)

    def put_back(self, reply: ReplyStream) -> None:
        """First of its kind: it had begun, and has to begin again."""
        place = 0
        if _background(reply):
            while place < len(self._replies) and not _background(self._replies[place]):
                place += 1
        self._replies.insert(place, reply)

    def remove(self, reply: ReplyStream) -> None:
        """It waits no more. It must be waiting."""
        self._replies.remove(reply)
        self._aside.discard(reply)

    def take(self) -> ReplyStream:
        """The first. There must be one."""
        reply = self._replies.popleft()
        self._aside.discard(reply)
        return reply

    def start(self, begin: Callable[[ReplyStream], Wait | None]) -> None:
        """Offer each to `begin`, in order, until one holds up the others; those that began are out
        of the queue."""
        passed: list[ReplyStream] = []
        while self._replies:
            reason = begin(self._replies[0])
            if reason is None:
                self.take()
            elif reason is Wait.PREFIX and len(passed) < MOST_ASIDE:
                passed.append(self._replies.popleft())
            else:
                self._reason = reason
                break
        self._aside = set(passed)
        self._replies.extendleft(reversed(passed))

    def reasons(self) -> dict[str, int]:
        """How many wait, by what they wait for."""
        counts = dict.fromkeys(map(str, Wait), 0)
        counts[Wait.PREFIX] = len(self._aside)
        counts[self._reason] += len(self._replies) - len(self._aside)
        return counts


def _background(reply: ReplyStream) -> bool:
    return reply.lane.request.background
