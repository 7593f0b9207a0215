"""The order in which the room at start is carved: windows before the cache, a named cache before
all windows but one.

Owns the arithmetic of the start-up plan, as a pure function of byte counts: no torch, no flags,
no words beyond a refusal's sums. Knows no machine. Invariant: pages, the lanes' fixed parts and
the cache together never pass the room. With W = `window_pages` and P = a page's bytes:

    n     windows that fit when each takes W * P and each but the first its lane's fixed part
    one   W + lanes - 1: one window, and a page for every other lane
    base  one when the cache is named, else max(n * W, one)
    left  room - base * P - fixed parts
    cache min(named or 16 GiB, left); 1 GiB where ranks compute in the host's memory
    pages base, and what is left after the cache, up to lanes * W

Slots of kept states that share pages come out of the cache, and the rest of the cache becomes
pages. With the latent split, the cache is what the plan without the split would keep, and every
class of pages must hold a whole window and its trash page, however few lanes there are: a cache
that was not named gives way to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from streamglm.pool.layout import CacheShape, RowFormat, window_pages

GIB = 1 << 30
CACHE_DEFAULT = 16 * GIB
"""The most of a prompt cache that is not named."""
CACHE_DEFAULT_HOST = GIB
"""The same where ranks compute in the host's own memory, which is not theirs alone."""
SLOTS_MOST = 64
SLOTS_A_LANE = 4
"""Slots of kept states by default."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one rank holds, in bytes, for `world` ranks; `of` takes it from the caches' shape."""

    page_rows: int
    whole_page_bytes: int
    """A page with its latent rows and pooled keys."""
    pooled_page_bytes: int
    """Its pooled keys alone, which every rank holds."""
    fixed_bytes: int
    """A lane, besides its pages."""
    slot_bytes: int
    """A kept state, besides its pages."""
    slack: int
    """Rows past a committed end: one verify window."""
    max_context: int
    """The model's own window."""
    world: int = 1
    heads: int = 1
    """Heads that ranks divide."""
    rows: RowFormat = RowFormat.BF16

    @classmethod
    def of(cls, shape: CacheShape, *, world: int, heads: int, max_context: int) -> Sizes:
        return cls(
            page_rows=shape.page_rows,
            whole_page_bytes=shape.page_bytes,
            pooled_page_bytes=shape.page_rows * shape.pooled_token_bytes,
            fixed_bytes=shape.fixed_bytes,
            slot_bytes=shape.slot_bytes,
            slack=shape.verify_rows,
            max_context=max_context,
            world=world,
            heads=heads,
            rows=shape.rows,
        )

    @property
    def split_page_bytes(self) -> int:
        """A page of which the latent rows lie on their owner alone, on average, rounded up."""
        latent = self.whole_page_bytes - self.pooled_page_bytes
        return self.pooled_page_bytes + -(-latent // self.world)

    def pool_bytes(self, pages: int, split: bool) -> int:
        """What a rank allocates for `pages` pages: with the split, which they divide, pooled keys
        of all and latent rows of its class."""
        if not split:
            return pages * self.whole_page_bytes
        latent = self.whole_page_bytes - self.pooled_page_bytes
        return pages * self.pooled_page_bytes + pages // self.world * latent


@dataclass(frozen=True, slots=True)
class Wants:
    """The settings that the plan reads. `context` and `lanes` are settled: no auto is left."""

    context: int
    lanes: int
    cache: int | None = None
    """Bytes of the prompt cache; None: whatever is left, up to `cache_most`."""
    share: int | None = None
    """Slots of kept states that share pages; None: `SLOTS_A_LANE` a lane. 0: rows are copied."""
    paged: bool = True
    """False gives every lane a whole window of pages."""
    split: bool = False
    pool_tokens: int | None = None
    """The most tokens that the pool may hold."""
    prepaid: int = 0
    """Lanes (none, or one) that were made before the room was read: their fixed part and, without
    pages, their window, are not carved again."""
    cache_most: int = CACHE_DEFAULT
    """The most that the cache takes when it is not named."""

    @property
    def sharing(self) -> bool:
        """Kept states hold pages of the pool, and a slot each."""
        return self.paged and self.share != 0

    @property
    def slots_asked(self) -> int:
        if not self.sharing:
            return 0
        return min(SLOTS_MOST, SLOTS_A_LANE * self.lanes) if self.share is None else self.share

    @property
    def cache_wanted(self) -> int:
        """Bytes of the prompt cache, where there is room for them."""
        return self.cache_most if self.cache is None else self.cache

    @property
    def charged(self) -> int:
        """Lanes whose fixed part the room pays."""
        return self.lanes - self.prepaid


class Why(StrEnum):
    """Names of refusals."""

    NO_STREAM = "NoStream"
    TOO_MANY = "TooMany"
    CLASS_TOO_SMALL = "ClassTooSmall"
    CONTEXT_TOO_LONG = "ContextTooLong"
    POOL_TOO_SMALL = "PoolTooSmall"
    POOL_TOO_LARGE = "PoolTooLarge"
    TOO_MANY_SLOTS = "TooManySlots"
    TOO_MANY_RANKS = "TooManyRanks"
    SHARE_WITHOUT_PAGES = "ShareWithoutPages"
    SPLIT_WITHOUT_PAGES = "SplitWithoutPages"
    SPLIT_WITH_FP8 = "SplitWithFp8"
    SPLIT_NEEDS_RANKS = "SplitNeedsRanks"


@dataclass(frozen=True, slots=True)
class Short:
    """Nothing is carved: the name, and the sums that do not fit."""

    why: Why
    message: str


@dataclass(frozen=True, slots=True)
class Carved:
    """What the room pays for. `cache` is what was carved for kept states, slots included."""

    window_pages: int
    pages: int
    cache: int
    slots: int = 0
    lowered: bool = False
    """The cache gave way so that every class holds a window."""


def gib(size: float) -> str:
    """Bytes for a reader."""
    return f"{size / GIB:,.2f} GiB"


def window_of(sizes: Sizes, wants: Wants) -> int:
    """Pages of a whole window. Without pages a draft past the window's end is never written, so
    no slack is held."""
    return window_pages(wants.context, sizes.page_rows, sizes.slack if wants.paged else 0)


def carve(room: int, sizes: Sizes, wants: Wants) -> Carved | Short:
    """Divide `room` bytes of one rank, the smallest of all ranks' rooms."""
    clash = next(_clashes(sizes, wants), None) or _overfull(room, sizes, wants)
    if clash is not None:
        return clash
    if not wants.paged:
        return _whole_windows(room, sizes, wants)
    if wants.split:
        return _split(room, sizes, wants)
    carved = _pages(room, sizes, wants, sizes.whole_page_bytes)
    if isinstance(carved, Short):
        return carved
    return _slots(sizes, wants, carved, sizes.whole_page_bytes)


def _clashes(sizes: Sizes, wants: Wants) -> Iterator[Short]:
    """Settings that cannot be served, whatever the room."""
    if sizes.world > sizes.heads:
        message = f"{sizes.world} ranks cannot divide {sizes.heads} heads"
        yield Short(Why.TOO_MANY_RANKS, message)
    if wants.context > sizes.max_context:
        message = f"a window of {wants.context:,} tokens passes the model's {sizes.max_context:,}"
        yield Short(Why.CONTEXT_TOO_LONG, message)
    least = least_pool(sizes, wants)
    if wants.pool_tokens is not None and wants.pool_tokens < least:
        message = f"a pool of {wants.pool_tokens:,} tokens holds no page: the least is {least:,}"
        yield Short(Why.POOL_TOO_SMALL, message)
    yield from _share_clashes(wants)
    yield from _split_clashes(sizes, wants)


def _share_clashes(wants: Wants) -> Iterator[Short]:
    if not wants.share:
        return
    slots = f"{wants.share} slots of kept states"
    if wants.share > SLOTS_MOST:
        yield Short(Why.TOO_MANY_SLOTS, f"{slots} were asked for; {SLOTS_MOST} are the most")
    if not wants.paged:
        yield Short(Why.SHARE_WITHOUT_PAGES, f"{slots} share the pool's pages, and pages are off")


def _split_clashes(sizes: Sizes, wants: Wants) -> Iterator[Short]:
    if not wants.split:
        return
    if sizes.world < 2:
        message = "the latent split divides rows between ranks, and there is one rank"
        yield Short(Why.SPLIT_NEEDS_RANKS, message)
    if not wants.paged:
        message = "the latent split places pages on their owner, and pages are off"
        yield Short(Why.SPLIT_WITHOUT_PAGES, message)
    if sizes.rows is RowFormat.FP8:
        message = "the latent split moves bf16 or fp32 rows, and the cache holds fp8"
        yield Short(Why.SPLIT_WITH_FP8, message)


def least_pool(sizes: Sizes, wants: Wants) -> int:
    """Tokens of the smallest pool: a page, or with the split a page and a trash page a class."""
    return sizes.page_rows * (2 * sizes.world if wants.split else 1)


def _bound(sizes: Sizes, wants: Wants) -> int:
    """Pages that `pool_tokens` allows; far more than any room when it is not set."""
    if wants.pool_tokens is None:
        return 1 << 62
    pages = wants.pool_tokens // sizes.page_rows
    return pages - pages % sizes.world if wants.split else pages


def _overfull(room: int, sizes: Sizes, wants: Wants) -> Short | None:
    """A pool that was named in tokens and does not fit beside the lanes: it is not cut in
    silence."""
    left = room - wants.charged * sizes.fixed_bytes
    page_bytes = sizes.split_page_bytes if wants.split else sizes.whole_page_bytes
    need = 0 if wants.pool_tokens is None else _bound(sizes, wants) * page_bytes
    if need <= left or left < page_bytes:
        return None
    return Short(
        Why.POOL_TOO_LARGE,
        f"a pool of {wants.pool_tokens:,} tokens takes {gib(need)}, and {gib(left)} are left "
        f"beside {wants.lanes} lane{'' if wants.lanes == 1 else 's'}",
    )


def _pages(room: int, sizes: Sizes, wants: Wants, page_bytes: int) -> Carved | Short:
    """One paged pool and the cache beside it: the table at the head of this file."""
    window, lanes, bound = window_of(sizes, wants), wants.lanes, _bound(sizes, wants)
    full = window * page_bytes
    windows = min(lanes, 1 + max(0, (room - full) // (full + sizes.fixed_bytes)))
    one = window + lanes - 1
    base = min(bound, one if wants.cache is not None else max(windows * window, one))
    fixed = wants.charged * sizes.fixed_bytes
    left = room - base * page_bytes - fixed
    if left < 0:
        return Short(
            Why.NO_STREAM,
            f"{lanes} lanes with a window of {wants.context:,} tokens need {base:,} pages, "
            f"{gib(base * page_bytes)}, and {gib(fixed)} besides: {gib(room - left)}, and the "
            f"room is {gib(room)}",
        )
    cache = min(wants.cache_wanted, left)
    most = max(lanes * window, sizes.world * (window + 1) if wants.split else 0)
    pages = min(base + (left - cache) // page_bytes, most, bound)
    return Carved(window, pages, cache)


def _slots(sizes: Sizes, wants: Wants, carved: Carved, page_bytes: int) -> Carved:
    """Kept states that share pages take a slot each from the cache; the rest becomes pages."""
    if not wants.sharing:
        return carved
    slots = min(wants.slots_asked, carved.cache // sizes.slot_bytes)
    rest = carved.cache - slots * sizes.slot_bytes
    pages = carved.pages + rest // page_bytes
    return replace(carved, slots=slots, pages=min(pages, _bound(sizes, wants)))


def _whole_windows(room: int, sizes: Sizes, wants: Wants) -> Carved | Short:
    """A window of pages for every lane, in order; what is left goes to the cache."""
    window, lanes = window_of(sizes, wants), wants.charged
    pages, bound = lanes * window, _bound(sizes, wants)
    if pages > bound:
        return Short(
            Why.TOO_MANY,
            f"{lanes} windows of {wants.context:,} tokens are {pages:,} pages, and the pool may "
            f"hold {bound:,}",
        )
    each = window * sizes.whole_page_bytes + sizes.fixed_bytes
    left = room - lanes * each
    if left < 0:
        return Short(
            Why.TOO_MANY if lanes > 1 and each <= room else Why.NO_STREAM,
            f"{lanes} windows of {wants.context:,} tokens, {gib(each)} each, need "
            f"{gib(lanes * each)}, and the room is {gib(room)}",
        )
    return Carved(window, pages, min(wants.cache_wanted, left))


def _split(room: int, sizes: Sizes, wants: Wants) -> Carved | Short:
    """Pages of which a rank holds the latent rows of its own class; `pages` counts the classes'
    trash pages. The cache comes first: with smaller pages more windows would eat it."""
    asked = wants
    if wants.cache is None:
        whole = _pages(room, sizes, wants, sizes.whole_page_bytes)
        asked = replace(wants, cache=whole.cache if isinstance(whole, Carved) else 0)
    page_bytes = sizes.split_page_bytes
    carved = _pages(room, sizes, asked, page_bytes)
    if isinstance(carved, Short):
        return carved
    whole = _in_classes(sizes, _slots(sizes, wants, carved, page_bytes))
    floor = min(sizes.world * (carved.window_pages + 1), _bound(sizes, wants))
    if whole.pages >= floor:
        return whole
    left = room - wants.charged * sizes.fixed_bytes
    spare = left - floor * page_bytes
    if wants.cache is not None or spare < 0:
        kept = whole.slots * sizes.slot_bytes if wants.sharing else carved.cache
        return Short(
            Why.CLASS_TOO_SMALL,
            f"each of {sizes.world} classes must hold a window of {carved.window_pages:,} pages "
            f"and a trash page: {floor:,} pages, {gib(floor * page_bytes)}, and "
            f"{gib(left - (0 if wants.cache is None else kept))} are left beside lanes and cache",
        )
    lowered = replace(carved, pages=floor, cache=spare, lowered=True)
    return _in_classes(sizes, _slots(sizes, wants, lowered, page_bytes))


def _in_classes(sizes: Sizes, carved: Carved) -> Carved:
    """As many pages in every class."""
    return replace(carved, pages=carved.pages - carved.pages % sizes.world)
