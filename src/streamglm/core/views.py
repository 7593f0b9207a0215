"""What others may know of the rounds: counts for `/metrics` and `/health`, the pool for `/v1/pool`.

Owns the reading alone; nothing here changes anything. Knows no HTTP. Every label is there from the
first moment on, at 0, so that a rate can be taken of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamglm.core.engine import (
    CacheStats,
    EngineStats,
    KeptView,
    LaneView,
    PagesView,
    PoolView,
)
from streamglm.core.holders import PageHolders
from streamglm.core.lane import Lane
from streamglm.core.loop import Rounds
from streamglm.drafts.drafter import Source
from streamglm.pool.states import Miss, Tier

_SENT = ("add", "join", "exchange", "fetch", "carry")


def stats_of(rounds: Rounds) -> EngineStats:
    """Counts at this moment."""
    totals, pages = rounds.totals, rounds.book.stats()
    return EngineStats(
        lanes=rounds.shape.lanes,
        running=len(rounds.live),
        waiting=rounds.queue.reasons(),
        pages_total=pages.total,
        pages_free=pages.free,
        pages_leased=pages.leased,
        pages_kept=pages.kept,
        page_rows=rounds.shape.page_rows,
        cache=_cache_of(rounds),
        prompts=tuple(rounds.prompts()),
        requests_total=dict(totals.ended),
        prompt_tokens_total=totals.prompt_tokens,
        generated_tokens_total=totals.generated_tokens,
        rounds_total=totals.rounds,
        prompt_seconds_total=totals.prompt_seconds,
        window_seconds_total=totals.window_seconds,
        draft_seconds_total=totals.draft_seconds,
        sent_total={what: totals.sent[what] for what in _SENT},
        drafted_total=_by_drafter(rounds.drafting.totals.drafted),
        accepted_total=_by_drafter(rounds.drafting.totals.accepted),
        disk=rounds.keeping.learning.stats(),
    )


def pool_of(rounds: Rounds) -> PoolView:
    """The pool at this moment: pages, kept states, lanes."""
    kept = rounds.keeping.kept
    stats = kept.stats()
    lanes = sorted(rounds.live.items())
    return PoolView(
        page_rows=rounds.shape.page_rows,
        pages=tuple(
            PagesView(one.total, one.free, one.leased, one.kept)
            for one in rounds.book.stats().classes
        ),
        slots=stats.slots,
        slots_free=stats.slots_free,
        kept=tuple(
            KeptView(
                tokens=one.tokens,
                bytes=one.bytes,
                tier=one.tier.value,
                borrowed=one.borrowed,
                age_seconds=one.age_seconds,
                idle_seconds=one.idle_seconds,
                home=one.home,
            )
            for one in kept.show()
        ),
        lanes=tuple(_lane_of(index, reply.lane, rounds.book.classes) for index, reply in lanes),
    )


def holders_of(rounds: Rounds) -> PageHolders:
    """Who holds which page at this moment."""
    leases, kept = rounds.book.holders()
    return PageHolders(rounds.book.funded, rounds.book.classes, leases, kept)


def _cache_of(rounds: Rounds) -> CacheStats:
    kept = rounds.keeping.kept
    stats, counts = kept.stats(), kept.counts
    disk = rounds.keeping.learning.stats()
    return CacheStats(
        states=_by_tier(stats.states) | {Tier.DISK.value: disk.states if disk else 0},
        bytes=_by_tier(stats.bytes) | {Tier.DISK.value: disk.bytes if disk else 0},
        slots=stats.slots,
        slots_free=stats.slots_free,
        hits_total=_by_tier(counts.hits),
        misses_total={reason.value: counts.misses[reason] for reason in Miss},
        evicted_total=_by_tier(counts.evicted),
        cached_tokens_total=counts.hit_tokens,
        kept_total=counts.kept,
        known_total=counts.known,
        refused_total=counts.refused,
        abandoned_total=counts.abandoned,
        demoted_total=counts.demoted,
        carried_total=counts.carried,
    )


def _by_tier(values: Mapping[str, int]) -> dict[str, int]:
    return {tier.value: values.get(tier, 0) for tier in Tier}


def _by_drafter(values: Mapping[str, int]) -> dict[str, int]:
    return {source.drafter: values.get(source.drafter, 0) for source in Source}


def _lane_of(index: int, lane: Lane, classes: int) -> LaneView:
    return LaneView(
        lane=index,
        request_id=lane.request.id,
        state=lane.state.value,
        background=lane.request.background,
        position=lane.position,
        prompt_tokens=len(lane.request.prompt),
        cached_tokens=lane.start,
        pages=len(lane.pages),
        owner=lane.pages[0] % classes,
    )
