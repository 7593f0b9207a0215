"""What a server says of its plan at start: one line of sums, and a line for each warning.

Owns the words. Knows nothing but a plan. Invariant: the bytes in the line are the plan's own,
whole, so that a test can hold them to what was allocated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from streamglm.pool.carve import GIB, SLOTS_A_LANE, Carved, carve, gib
from streamglm.pool.plan import Plan


def start_line(plan: Plan, host_bytes: int = 0) -> str:
    """What was taken, of how much, and what that holds. The plan must not be refused."""
    assert plan.refused is None, "a refused plan has taken nothing"
    parts = [
        f"memory: {gib(plan.taken)} of {gib(plan.room)}",
        f"pool {_bytes(plan.pool_bytes)}: {_pool(plan)}",
        f"lanes {_bytes(plan.lane_bytes)}: {plan.wants.lanes}",
        f"kept states {_bytes(plan.kept_bytes)}: {_kept(plan)}",
    ]
    if host_bytes:
        parts.append(f"host cache {_bytes(host_bytes)}")
    return "; ".join(parts)


def warnings(plan: Plan, host_bytes: int = 0) -> tuple[str, ...]:
    """What a person should know before they wonder, a line each."""
    return (*_pool_warnings(plan), *_cache_warnings(plan, host_bytes))


def cache_for_slots(plan: Plan) -> int | None:
    """The smallest whole `--prompt-cache-gib` that holds every slot asked for, if one does."""
    whole = -(-plan.wants.slots_asked * plan.sizes.slot_bytes // GIB)
    carved = carve(plan.room, plan.sizes, replace(plan.wants, cache=whole * GIB))
    fits = isinstance(carved, Carved) and carved.slots == plan.wants.slots_asked
    return whole if fits else None


def _bytes(size: int) -> str:
    return f"{gib(size)} ({size:,} bytes)"


def _pool(plan: Plan) -> str:
    text = f"{plan.pages:,} pages of {plan.sizes.page_rows} rows, {plan.pool_tokens:,} tokens"
    if plan.classes > 1:
        text += (
            f", {plan.classes} classes of {plan.class_pages - 1:,} pages and a trash page, "
            f"{plan.page_bytes // plan.sizes.page_rows:,} bytes a token"
        )
    lanes = plan.wants.lanes
    holds = f"{plan.windows:,} full window{'' if plan.windows == 1 else 's'}"
    few = f" for {lanes} lanes" if plan.windows < lanes else ""
    return f"{text}, {holds} of {plan.wants.context:,} tokens{few}"


def _kept(plan: Plan) -> str:
    if plan.wants.sharing:
        asked = plan.wants.slots_asked
        text = f"{plan.carved.slots} of {asked} slots over the pool's pages"
        more = cache_for_slots(plan) if plan.carved.slots < asked else None
        return text if more is None else f"{text}, `--prompt-cache-gib {more}` holds {asked}"
    if not plan.carved.cache:
        return "none"
    row = plan.sizes.whole_page_bytes // plan.sizes.page_rows
    where = " on its home" if plan.classes > 1 else ""
    return f"copies of {row:,} bytes a token{where} and {gib(plan.sizes.slot_bytes)} each"


def _pool_warnings(plan: Plan) -> Iterator[str]:
    if not plan.windows:
        yield (
            f"the pool holds {plan.pool_tokens:,} tokens, less than a window of "
            f"{plan.wants.context:,}: a longer request is refused"
        )
    if plan.carved.lowered:
        yield (
            f"the prompt cache gave way to {gib(plan.carved.cache)}, so that each class of pages "
            "holds a window"
        )


def _cache_warnings(plan: Plan, host_bytes: int) -> Iterator[str]:
    slots, lanes = plan.carved.slots, plan.wants.lanes
    asked = plan.wants.cache
    if asked is not None and plan.carved.cache < asked:
        yield (
            f"{gib(asked)} of prompt cache were asked for, and {gib(plan.carved.cache)} are left "
            "beside a window"
        )
    if plan.wants.sharing and 0 < slots < SLOTS_A_LANE * lanes:
        yield (
            f"slots of kept states: {slots}, fewer than {SLOTS_A_LANE} a lane, so conversations "
            "will push each other out"
        )
    if not host_bytes and keeps_none(plan):
        yield "no prompt is kept, so every turn computes its whole conversation again"


def keeps_none(plan: Plan) -> bool:
    """The device has no place for any state."""
    if plan.wants.sharing:
        return not plan.carved.slots
    return plan.carved.cache < plan.sizes.slot_bytes + plan.sizes.whole_page_bytes
