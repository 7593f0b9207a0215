"""Remedies: settings that start what was refused.

Owns the search. Knows the arithmetic of `carve.py` and the flags' names. Invariant: what is named
was carved first, so each remedy starts by itself. Whoever follows all of them starts too, which
tests hold and nothing here relies on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from streamglm.pool.carve import (
    GIB,
    Short,
    Sizes,
    Wants,
    Why,
    carve,
    gib,
    least_pool,
    window_of,
)

Flags = tuple[tuple[str, str], ...]
"""Settings to change together, each a flag and its text."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting at one value: what a person types, and the wants that follow."""

    flag: str
    text: str
    wants: Wants


def remedies(room: int, sizes: Sizes, wants: Wants, why: Why) -> tuple[Flags, ...]:
    """Every setting that helps by itself, at its best value; else two that help together."""
    found: list[Flags] = []
    for values in _values(room, sizes, wants, why):
        best = next((one for one in values if _starts(room, sizes, one.wants, one.flag)), None)
        if best is not None:
            found.append(((best.flag, best.text),))
    return tuple(found) or _two(room, sizes, wants, why)


def otherwise(sizes: Sizes, wants: Wants, why: Why) -> str:
    """What helps when no setting of this rank's plan does."""
    if why is Why.TOO_MANY_RANKS:
        return f"Start with `--ranks {sizes.heads}`, or fewer."
    least = replace(wants, context=sizes.page_rows, lanes=1)
    pages = window_of(sizes, least)
    if wants.split:
        pages = sizes.world * (pages + 1)
    page_bytes = sizes.split_page_bytes if wants.split else sizes.whole_page_bytes
    return (
        "No setting makes it fit: one lane with a window of one page takes "
        f"{gib(pages * page_bytes + sizes.fixed_bytes)}. Free memory on the device, or use more "
        "ranks."
    )


def _starts(room: int, sizes: Sizes, wants: Wants, flag: str) -> bool:
    """Whether it is carved; and a cache that is named must be had whole."""
    carved = carve(room, sizes, wants)
    if isinstance(carved, Short):
        return False
    return flag != "--prompt-cache-gib" or carved.cache == wants.cache


def _two(room: int, sizes: Sizes, wants: Wants, why: Why) -> tuple[Flags, ...]:
    """A change that leaves another refusal, with the first remedy of that one; or fewer lanes
    with a shorter window, trading one for the other by halves."""
    fix = _fix(sizes, wants, why)
    if fix is not None:
        left = carve(room, sizes, fix.wants)
        assert isinstance(left, Short), "a fix that starts is a remedy by itself"
        rest = remedies(room, sizes, fix.wants, left.why)
        return (((fix.flag, fix.text), *rest[0]),) if rest else ()
    best: Flags = ()
    lanes = wants.lanes
    while lanes > 1:
        lanes //= 2
        fewer = replace(wants, lanes=lanes)
        for change in _contexts(sizes, fewer):
            if _starts(room, sizes, change.wants, change.flag):
                best = (("--parallel", str(lanes)), (change.flag, change.text))
                if change.wants.context * 8 >= wants.context:
                    return (best,)
                break
    return (best,) if best else ()


def _values(room: int, sizes: Sizes, wants: Wants, why: Why) -> Iterable[Iterable[Change]]:
    """For each setting that may help, its values, the best first."""
    fix = _fix(sizes, wants, why)
    if fix is not None:
        return ((fix,),)
    if why is Why.TOO_MANY_RANKS:
        return ()
    if why is Why.POOL_TOO_LARGE:
        return ((_smaller_pool(room, sizes, wants),),)
    lanes = (
        Change("--parallel", str(n), replace(wants, lanes=n)) for n in range(wants.lanes - 1, 0, -1)
    )
    contexts, caches = _contexts(sizes, wants), _caches(sizes, wants)
    if why is Why.CLASS_TOO_SMALL:
        return caches, contexts, lanes
    if wants.paged:
        return lanes, contexts, caches
    paged = replace(wants, paged=True)
    return lanes, contexts, (Change("--kv-pages", "auto", paged),), _pools(sizes, wants)


def _fix(sizes: Sizes, wants: Wants, why: Why) -> Change | None:
    """The one change that settles a clash of settings, or a value out of its range."""
    match why:
        case Why.TOO_MANY_SLOTS:
            return Change("--kv-share", "64", replace(wants, share=64))
        case Why.SHARE_WITHOUT_PAGES:
            return Change("--kv-share", "0", replace(wants, share=0))
        case Why.SPLIT_WITHOUT_PAGES:
            return Change("--kv-pages", "auto", replace(wants, paged=True))
        case Why.SPLIT_WITH_FP8 | Why.SPLIT_NEEDS_RANKS:
            return Change("--kv-split", "off", replace(wants, split=False))
        case Why.CONTEXT_TOO_LONG:
            longest = sizes.max_context
            return Change("--context", str(longest), replace(wants, context=longest))
        case Why.POOL_TOO_SMALL:
            least = least_pool(sizes, wants)
            return Change("--pool-tokens", str(least), replace(wants, pool_tokens=least))
        case _:
            return None


def _contexts(sizes: Sizes, wants: Wants) -> Iterator[Change]:
    """Windows of whole pages below the one asked."""
    for pages in range((wants.context - 1) // sizes.page_rows, 0, -1):
        context = pages * sizes.page_rows
        yield Change("--context", str(context), replace(wants, context=context))


def _caches(sizes: Sizes, wants: Wants) -> Iterator[Change]:
    """Caches to name, in whole GiB: what the slots need, or less than was named, down to none.

    A named cache comes before every window but one, so naming it may start what did not fit.
    """
    most = -(-wants.slots_asked * sizes.slot_bytes // GIB) or 16
    if wants.cache is not None:
        most = -(-wants.cache // GIB) - 1
    for whole in range(most, -1, -1):
        yield Change("--prompt-cache-gib", str(whole), replace(wants, cache=whole * GIB))


def _smaller_pool(room: int, sizes: Sizes, wants: Wants) -> Change:
    """The pool that fits beside the lanes, less a sixteenth, since free memory moves from one
    start to the next; in whole pages of every class."""
    left = room - wants.charged * sizes.fixed_bytes
    pages = left // (sizes.split_page_bytes if wants.split else sizes.whole_page_bytes)
    pages -= pages // 16
    tokens = (pages - pages % (sizes.world if wants.split else 1)) * sizes.page_rows
    return Change("--pool-tokens", str(tokens), replace(wants, pool_tokens=tokens))


def _pools(sizes: Sizes, wants: Wants) -> Iterator[Change]:
    """A pool of whole windows, where it was bounded below that."""
    if wants.pool_tokens is not None:
        tokens = wants.lanes * window_of(sizes, wants) * sizes.page_rows
        yield Change("--pool-tokens", str(tokens), replace(wants, pool_tokens=tokens))
