"""The engine as the edge sees it: three methods and a stream of events.

Owns the contract between HTTP and the rounds; the implementation is `core/service.py`, and
a fake behind the same contract drives every HTTP test. Knows no HTTP and no ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from streamglm.request import Event, Request, Timing


class Reply(Protocol):
    """One reply as it comes: an asynchronous iterator of events.

    The order is `Started` once, `Tokens` any number of times, then `Finished` or `Failed` once,
    after which iteration ends; a reply that ends while it waits has no `Started`. Events wait for
    their reader without holding up a round; an unread reply costs its token ids. Cancelling a
    waiting `__anext__` loses no event.
    """

    def __aiter__(self) -> Reply: ...

    async def __anext__(self) -> Event: ...

    def timing(self) -> Timing:
        """Seconds and counts up to now; final once the last event was delivered."""
        ...

    def stop(self) -> None:
        """Nobody wants more: the lane and its pages are back within one round, a waiting request
        leaves the queue at once. Safe to call at any time, and twice. Never awaits."""
        ...


@dataclass(frozen=True, slots=True)
class Health:
    """`ok` only while every rank answers. `reason` names the rank and what is wrong."""

    ok: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """A prompt that is being computed: rows done, of how many."""

    request_id: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counts at this moment, and totals since the start."""

    lanes: int
    running: int
    waiting: Mapping[str, int]
    """Waiting requests by reason: 'lanes' or 'pages'."""
    pages_total: int
    pages_free: int
    pages_leased: int
    page_rows: int
    prompts: tuple[PromptProgress, ...]
    requests_total: Mapping[str, int]
    """Ended requests by finish: 'stop', 'length', 'cancelled', 'failed', 'refused'."""
    prompt_tokens_total: int
    generated_tokens_total: int
    rounds_total: int
    prompt_seconds_total: float
    window_seconds_total: float


class Engine(Protocol):
    """What the edge may do."""

    def submit(self, request: Request) -> Reply:
        """Take a request. Raises `ContextLengthExceeded` or `PoolTooSmall` when it can never run,
        `Overloaded` when the queue is full and `EngineFailed` when a rank is gone; nothing has
        changed then."""
        ...

    def health(self) -> Health: ...

    def stats(self) -> EngineStats: ...
