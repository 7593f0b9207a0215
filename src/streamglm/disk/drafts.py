"""States on their way to the disk: from what is missing to what is published.

Owns the drafts, and the back-off after a failure. Knows files only through the ranks, who write
them, and the store, who gives them their names. Invariant: a draft holds its path in the index, so
that nothing it stands on is evicted, until it is published or given up; the files of one that was
given up are removed once no rank writes them any more.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from streamglm.disk.index import Index
from streamglm.disk.limits import Limits
from streamglm.disk.nouns import Gone, Missing, PageRow, StateRow
from streamglm.disk.record import Kind, Label, temporary_name
from streamglm.pool.spill import Draft, Part

BACKOFF_MOST = 60.0
"""Seconds after a failed write in which nothing is written, at most; 1 after the first."""
DROPS = ("backoff", "limit", "failed", "memory", "forgotten")
"""Why a state is not written: a write failed not long ago; it does not fit; its own write failed;
its memory was needed; its conversation was forgotten."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Drafted:
    """One state: a `Draft`."""

    missing: Missing
    parts: tuple[Part, ...]
    need: int
    """Bytes that it may come to, on all ranks."""
    ready: bool = False
    over: bool = False
    sent: int = 0
    """Parts that the ranks have copied."""
    waiting: dict[int, int] = field(default_factory=dict)
    """Of those, by number, the ranks that have not written them yet."""
    sizes: Counter[int] = field(default_factory=Counter)
    """Bytes of all ranks' files, by number."""

    @property
    def whole(self) -> bool:
        return self.sent == len(self.parts) and not self.waiting


@dataclass(slots=True)
class WriteTotals:
    """Since the start."""

    learned: int = 0
    """States that were published."""
    bytes: int = 0
    """Of the files of these."""
    raw: int = 0
    """What they were copied from."""
    dropped: Counter[str] = field(default_factory=Counter)
    """States that were not written, by `DROPS`."""


class Drafts:
    """The drafts of one tier. `now` gives seconds of the server's clock, `moment` seconds since
    1970. `publish` is called with one that is whole, `discard` with names of
    temporary files, `remove` with records."""

    def __init__(
        self,
        index: Index,
        limits: Limits,
        world: int,
        *,
        now: Callable[[], float],
        moment: Callable[[], float],
        publish: Callable[[Drafted], None],
        discard: Callable[[list[str]], None],
        remove: Callable[[list[Gone]], None],
    ) -> None:
        self.totals = WriteTotals()
        self.outstanding = 0
        """Bytes that ranks have copied and not written."""
        self._index = index
        self._limits = limits
        self._world = world
        self._now = now
        self._moment = moment
        self._publish = publish
        self._discard = discard
        self._remove = remove
        self._open: list[Drafted] = []
        self._by_number: dict[int, Drafted] = {}
        self._last = 0
        self._until = 0.0
        self._backoff = 0.0

    def __len__(self) -> int:
        """Drafts that are not published and whose files are not all gone."""
        return len({id(one) for one in self._by_number.values()})

    @property
    def coming(self) -> int:
        """Bytes that the drafts may come to."""
        return sum(one.need for one in self._open)

    @property
    def resting(self) -> bool:
        """A write failed not long ago."""
        return self._now() < self._until

    def make(self, keys: Sequence[bytes], root: bytes, tokens: bytes) -> Drafted | None:
        """What the state with the chain `keys` misses on the disk; None when it misses nothing."""
        missing = self._index.plan(keys, root)
        if missing is None:
            return None
        parts = tuple(self._parts(missing, keys, root, tokens))
        record = self._limits.record
        need = sum(record(fixed=one.page < 0, tokens=len(one.tokens)) for one in parts)
        draft = Drafted(missing, parts, need * self._world)
        self._open.append(draft)
        self._by_number.update((part.number, draft) for part in parts)
        return draft

    def waiting(self) -> Iterator[Drafted]:
        """Those that have no room yet."""
        return (one for one in self._open if not one.ready and not one.over)

    def room(self) -> int:
        """Bytes that may be copied now; something always, when nothing is on its way."""
        free = self._limits.queue - self.outstanding
        return free if self.outstanding else max(1, free)

    def sent(self, draft: Draft, parts: Sequence[Part]) -> None:
        """The ranks copy these parts, and write them."""
        drafted = self._by_number[parts[0].number]
        assert drafted is draft, "parts of another draft"
        for part in parts:
            drafted.waiting[part.number] = self._world
            self.outstanding += part.bytes * self._world
        drafted.sent += len(parts)

    def wrote(self, number: int, size: int, raw: int, error: str) -> None:
        """A rank has written a record, or could not."""
        draft = self._by_number[number]
        self.outstanding -= raw
        draft.sizes[number] += size
        draft.waiting[number] -= 1
        if not draft.waiting[number]:
            del draft.waiting[number]
        if error:
            self.back_off(error)
            self.drop(draft, "failed")
        elif draft.over:
            self._clean(draft)
        elif draft.whole:
            self._publish(draft)

    def drop(self, draft: Draft, why: str) -> None:
        """`draft` is not written after all. Safe for one that is given up already."""
        drafted = self._by_number.get(draft.parts[0].number)
        if drafted is None:
            return
        if not drafted.over:
            drafted.over = True
            self.totals.dropped[why] += 1
            self._open.remove(drafted)
            self._remove(self._index.fail(drafted.missing))
        self._clean(drafted)

    def drop_above(self, keys: set[bytes]) -> None:
        """Give up whatever stands on one of `keys`."""
        for draft in list(self._open):
            if any(node.key in keys for node in draft.missing.tip.path()):
                self.drop(draft, "forgotten")

    def rows(self, draft: Drafted) -> tuple[list[PageRow], StateRow | None]:
        """What is to be committed with the records of a draft that is whole."""
        sizes = [draft.sizes[part.number] for part in draft.parts]
        fixed = sizes.pop() if draft.missing.fixed else 0
        return self._index.rows(draft.missing, sizes, fixed, self._moment())

    def names(self, draft: Drafted) -> list[tuple[str, Label]]:
        """Temporary file and place of each record of a draft, on all ranks."""
        return [
            (temporary_name(part.number, rank), self._label(part, rank))
            for part in draft.parts
            for rank in range(self._world)
        ]

    def published(self, draft: Drafted, rows: tuple[list[PageRow], StateRow | None]) -> None:
        """The records of a draft are in place and committed."""
        self._remove(self._index.arrive(draft.missing, *rows))
        self._open.remove(draft)
        self._forget(draft)
        self._backoff = 0.0
        self.totals.learned += 1
        self.totals.bytes += sum(draft.sizes.values())
        self.totals.raw += sum(part.bytes for part in draft.parts) * self._world

    def back_off(self, error: str) -> None:
        """A write failed: nothing is written for a while."""
        if self.resting:
            return
        self._backoff = min(BACKOFF_MOST, 2 * self._backoff or 1.0)
        self._until = self._now() + self._backoff
        _log.warning(
            "conversations are not written for %g s: %s; requests go on", self._backoff, error
        )

    def _parts(
        self, missing: Missing, keys: Sequence[bytes], root: bytes, tokens: bytes
    ) -> Iterator[Part]:
        size = len(tokens) // len(keys)
        above = (root, *keys)
        for page in missing.pages:
            mine = tokens[page * size : (page + 1) * size]
            yield self._part(page, page, keys, above, mine, self._limits.page)
        if missing.fixed:
            yield self._part(-1, len(keys) - 1, keys, above, b"", self._limits.fixed)

    def _part(
        self,
        page: int,
        place: int,
        keys: Sequence[bytes],
        above: Sequence[bytes],
        tokens: bytes,
        size: int,
    ) -> Part:
        self._last += 1
        return Part(self._last, page, place + 1, keys[place], above[place], tokens, size)

    def _label(self, part: Part, rank: int) -> Label:
        kind = Kind.FIXED if part.page < 0 else Kind.PAGE
        own, world = self._index.identity, self._world
        return Label(kind, own, part.key, part.parent, part.depth, rank, world)

    def _clean(self, draft: Drafted) -> None:
        """Remove what was written of a draft that is over, once nothing of it is being written."""
        if draft.waiting:
            return
        names = [name for name, _ in self.names(draft)]
        self._forget(draft)
        if draft.sent:
            self._discard(names)

    def _forget(self, draft: Drafted) -> None:
        for part in draft.parts:
            self._by_number.pop(part.number, None)
