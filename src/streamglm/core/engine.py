"""The engine as the edge sees it: five methods and a stream of events.

Owns the contract between HTTP and the rounds; the implementation is `core/service.py`, and
a fake behind the same contract drives every HTTP test. Knows no HTTP and no ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamglm.core.holders import PageHolders
from streamglm.pool.spill import DiskStats as DiskStats  # the edge reads it here
from streamglm.request import Event, Request, Timing


class Reply(Protocol):
    """One reply as it comes: an asynchronous iterator of events, or for a reader that wants no
    task woken for each of them, `listen` and `take`. A reader does one or the other.

    The order is `Started` once, `Tokens` any number of times, then `Finished` or `Failed` once,
    after which iteration ends; a reply that ends while it waits has no `Started`. Events wait for
    their reader without holding up a round; an unread reply costs its token ids and what it asked
    for beside them. Cancelling a waiting `__anext__` loses no event.
    """

    def __aiter__(self) -> Reply: ...

    async def __anext__(self) -> Event: ...

    def listen(self, call: Callable[[], None]) -> None:
        """Have `call` made on the event loop when there is something to take, once until it is
        taken; soon when there is something now. `call` must not wait."""
        ...

    def take(self) -> list[Event]:
        """Every event that waits, in order; none when there is none."""
        ...

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
class CacheStats:
    """Kept prompt states at this moment, and totals since the start. A tier is 'shared', 'copied',
    'host' or 'disk'."""

    states: Mapping[str, int]
    """By tier."""
    bytes: Mapping[str, int]
    """By tier; shared states have their slots, and the pages that nobody else holds."""
    slots: int
    slots_free: int
    hits_total: Mapping[str, int]
    """Prompts that resumed, by tier."""
    misses_total: Mapping[str, int]
    """Prompts that did not, by reason."""
    evicted_total: Mapping[str, int]
    """States that went to make room, by the tier they left."""
    cached_tokens_total: int
    """Prompt tokens that were not computed again."""
    kept_total: int
    known_total: int
    """Marks whose state was kept or pending already."""
    refused_total: int
    """Marks that found no place."""
    abandoned_total: int
    """States that were never filled, because their request ended before the mark."""
    demoted_total: int
    carried_total: int = 0
    """Prompts whose kept rows went to another rank first, with the latent split."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counts at this moment, and totals since the start."""

    lanes: int
    running: int
    waiting: Mapping[str, int]
    """Waiting requests by reason: 'lanes', 'pages' or 'prefix'."""
    pages_total: int
    pages_free: int
    pages_leased: int
    pages_kept: int
    """Held by kept states alone: they give way to any request."""
    page_rows: int
    cache: CacheStats
    prompts: tuple[PromptProgress, ...]
    requests_total: Mapping[str, int]
    """Ended requests by finish: 'stop', 'length', 'cancelled', 'failed', 'refused'."""
    prompt_tokens_total: int
    generated_tokens_total: int
    rounds_total: int
    prompt_seconds_total: float
    window_seconds_total: float
    draft_seconds_total: float
    sent_total: Mapping[str, int]
    """Bytes that ranks sent one another: 'add', 'join', 'exchange', 'fetch', 'carry'."""
    drafted_total: Mapping[str, int]
    """Draft tokens that windows had, by drafter: 'chain' or 'lookup'."""
    accepted_total: Mapping[str, int]
    """Of these, the ones that came true."""
    disk: DiskStats | None = None
    """None without `--learn-conversations`."""


@dataclass(frozen=True, slots=True)
class StateView:
    """One kept state of a conversation on the disk. Moments are seconds since 1970."""

    tokens: int
    bytes: int
    """Of its fixed part."""
    created: float
    used: float


@dataclass(frozen=True, slots=True)
class ConversationView:
    """One conversation on the disk: the prompts of its turns, each beginning like the one before.
    `bytes` counts pages that other conversations begin with too."""

    id: str
    tokens: int
    bytes: int
    pages: int
    created: float
    used: float
    states: tuple[StateView, ...]


class Library(Protocol):
    """What was learned, for those who it was learned from."""

    def conversations(self) -> Sequence[ConversationView]:
        """The most recently used first."""
        ...

    async def forget(self, ids: Sequence[str]) -> None:
        """Remove conversations from disk and memory; when this returns, their files are gone.
        Raises `DiskError` when they cannot be removed."""
        ...


@dataclass(frozen=True, slots=True)
class PagesView:
    """Pages of one class; `total` is the sum of the others."""

    total: int
    free: int
    leased: int
    kept: int


@dataclass(frozen=True, slots=True)
class KeptView:
    """One kept state. `bytes` are its slot's, or those of its copy."""

    tokens: int
    bytes: int
    tier: str
    borrowed: bool
    age_seconds: float
    idle_seconds: float
    """Since it was last used; the one with the most goes first."""
    home: int = 0
    """The class of the pages that it was computed in."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """One live lane: `position` rows of it are computed or restored, `cached_tokens` restored."""

    lane: int
    request_id: str
    state: str
    background: bool
    position: int
    prompt_tokens: int
    cached_tokens: int
    pages: int
    owner: int = 0
    """The class of its pages, and with the latent split the rank that has its latent rows."""


@dataclass(frozen=True, slots=True)
class PoolView:
    """The pool at this moment."""

    page_rows: int
    pages: tuple[PagesView, ...]
    """By class."""
    slots: int
    slots_free: int
    kept: tuple[KeptView, ...]
    """The least recently used first."""
    lanes: tuple[LaneView, ...]


class Engine(Protocol):
    """What the edge may do."""

    def submit(self, request: Request) -> Reply:
        """Take a request. Raises `ContextLengthExceeded` or `PoolTooSmall` when it can never run,
        `Overloaded` when the queue is full and `EngineFailed` when a rank is gone; nothing has
        changed then."""
        ...

    def health(self) -> Health: ...

    def stats(self) -> EngineStats: ...

    def pool(self) -> PoolView: ...

    def holders(self) -> PageHolders:
        """Who holds which page at this moment; to be drawn in another thread."""
        ...
