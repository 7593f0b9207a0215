"""The start-up plan: room and settings in; lanes, window, pages, cache and slots out, or a refusal
with settings that work.

Owns what `auto` means and what a plan says of itself; `carve.py` has the arithmetic, `remedies.py`
the search for settings that work.
Pure: the same plan is computed by the server, by every test and by `streamglm plan`. Invariant:
what a plan takes never passes its room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from streamglm.pool.carve import GIB, Carved, Short, Sizes, Wants, Why, carve, window_of
from streamglm.pool.remedies import Flags, otherwise, remedies

LANES_AUTO = 16
"""The most lanes unless they are asked for: one tile of rows, which a window pass computes
anyway."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing starts. Each of `remedies` does."""

    name: Why
    message: str
    remedies: tuple[Flags, ...]
    otherwise: str
    """What helps when no setting does."""

    @property
    def line(self) -> str:
        """The whole of it, for a log."""
        return f"{self.name}: {self.message}. {self.remedy}"

    @property
    def remedy(self) -> str:
        """One sentence."""
        if not self.remedies:
            return self.otherwise
        ways = (" and ".join(f"`{flag} {text}`" for flag, text in way) for way in self.remedies)
        return f"Start with {', or with '.join(ways)}."


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rank allocates, and what the server admits by. Bytes are one rank's."""

    room: int
    sizes: Sizes
    wants: Wants
    carved: Carved
    """All zero when refused."""
    refused: Refusal | None = None

    @property
    def context(self) -> int:
        """Tokens of a window."""
        return self.wants.context

    @property
    def lanes(self) -> int:
        return self.wants.lanes

    @property
    def page_bytes(self) -> int:
        return self.sizes.split_page_bytes if self.wants.split else self.sizes.whole_page_bytes

    @property
    def pages(self) -> int:
        """Page ids; with the split, one of each class is its trash page."""
        return self.carved.pages

    @property
    def classes(self) -> int:
        return self.sizes.world if self.wants.split else 1

    @property
    def class_pages(self) -> int:
        return self.pages // self.classes

    @property
    def funded(self) -> int:
        """Pages that leases may take."""
        return self.pages - (self.classes if self.wants.split and self.pages else 0)

    @property
    def windows(self) -> int:
        """Full windows that the pool holds at once; a window lies in one class."""
        per_class = self.funded // self.classes
        return self.classes * (per_class // max(1, self.carved.window_pages))

    @property
    def pool_tokens(self) -> int:
        return self.pages * self.sizes.page_rows

    @property
    def pool_bytes(self) -> int:
        return self.sizes.pool_bytes(self.pages, self.wants.split)

    @property
    def lane_bytes(self) -> int:
        """The fixed parts of the lanes that the room pays."""
        return 0 if self.refused else self.wants.charged * self.sizes.fixed_bytes

    @property
    def kept_bytes(self) -> int:
        """Memory of kept states besides shared pages: slots, or the budget of copies."""
        if self.wants.sharing:
            return self.carved.slots * self.sizes.slot_bytes
        return self.carved.cache

    @property
    def taken(self) -> int:
        """What is allocated in all."""
        return self.pool_bytes + self.lane_bytes + self.kept_bytes


def plan(
    room: int,
    sizes: Sizes,
    wants: Wants,
    *,
    auto_context: bool = False,
    auto_lanes: bool = False,
) -> Plan:
    """The plan for `room` bytes. A plan that does not fit carries its refusal.

    With an auto, what `wants` says is the most, and less is taken where that does not fit: the
    longest window first, halving it, and then the most lanes.
    """
    settled, carved = _settle(room, sizes, wants, auto_context, auto_lanes)
    if isinstance(carved, Carved):
        return Plan(room, sizes, settled, carved)
    refusal = Refusal(
        carved.why,
        carved.message,
        remedies(room, sizes, settled, carved.why),
        otherwise(sizes, settled, carved.why),
    )
    return Plan(room, sizes, settled, Carved(window_of(sizes, settled), 0, 0), refusal)


def reserve(total: int, *, unified: bool) -> int:
    """Bytes of a device of `total` that are left alone: more where the host lives in them too."""
    return max(4 * GIB, total // 10) if unified else max(GIB, total // 32)


def room_of(free: int, total: int, *, unified: bool, cap: int | None = None, held: int = 0) -> int:
    """Room of one rank: free memory less the reserve, and no more than `cap` less what the
    process already holds of it. The plan takes the smallest of all ranks' rooms."""
    room = free - reserve(total, unified=unified)
    return max(0, room if cap is None else min(room, cap - held))


def _settle(
    room: int, sizes: Sizes, wants: Wants, auto_context: bool, auto_lanes: bool
) -> tuple[Wants, Carved | Short]:
    """Memory goes to the window first, and then to lanes. When nothing fits, the least of both."""
    contexts = tuple(_halved(wants.context, sizes.page_rows)) if auto_context else (wants.context,)
    counts = range(wants.lanes, 0, -1) if auto_lanes else (wants.lanes,)
    for context in contexts:
        least = replace(wants, context=context, lanes=counts[-1])
        if isinstance(carve(room, sizes, least), Carved):
            break
    for lanes in counts:
        settled = replace(least, lanes=lanes)
        carved = carve(room, sizes, settled)
        if isinstance(carved, Carved):
            break
    return settled, carved


def _halved(context: int, page_rows: int) -> Iterator[int]:
    """A window, its half, and so on down to a page."""
    while context > page_rows:
        yield context
        context //= 2
    yield context
