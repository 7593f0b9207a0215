"""Lanes and the disk: what of the kept states is copied for it, and who waits for it.

Owns the states that wait to be copied, and the lanes that wait for records. Knows the disk only as
the `Disk` of `pool/spill.py`, and the ranks only as parts of a step. Invariant, by `check()`:
a state is borrowed here only while records of it are still to be copied, and gives way to any
request; a lane that waits has a job of its own, which ends with it.

Nothing here waits: a round takes what the disk has ready, and copies what the disk has room for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamglm.core.lane import Lane
from streamglm.pool.kept import KeptStates
from streamglm.pool.spill import Disk, DiskStats, Draft, Part
from streamglm.step import Arrive, Put, Record, Write

MOST_PENDING = 64
"""States that wait to be copied; each keeps its place in memory meanwhile."""
STEP_BYTES = 8 << 20
"""Copied in one step, either way: a step with more would be felt by running replies."""


@dataclass(eq=False, slots=True)
class _Copying:
    """A state that waits to be copied."""

    state: int
    draft: Draft
    sent: int = 0


@dataclass(eq=False, slots=True)
class _Arriving:
    """A lane that waits for the disk. `put` of its pages are filled."""

    lane: Lane
    job: int
    pages: int
    page_bytes: int
    put: int = 0


class Learning:
    """The disk behind one engine's kept states; without a disk, nothing is ever found or copied."""

    def __init__(self, disk: Disk | None, kept: KeptStates, page_bytes: int) -> None:
        self._disk = disk
        self._kept = kept
        self._page_bytes = max(1, page_bytes)
        self._copying: deque[_Copying] = deque()
        self._arriving: dict[int, _Arriving] = {}
        """By lane number."""
        self._writes: list[tuple[_Copying, Sequence[Part]]] = []
        """Of the step that the ranks execute."""

    @property
    def on(self) -> bool:
        return self._disk is not None

    @property
    def version(self) -> int:
        return 0 if self._disk is None else self._disk.version

    @property
    def borrowed(self) -> int:
        """States that wait to be copied."""
        return len(self._copying)

    # -- reading

    def find(self, keys: Sequence[bytes], most: int) -> int:
        """Pages of the longest state on the disk, of at most `most`; 0 for none."""
        return 0 if self._disk is None else self._disk.find(keys, most)

    def fetch(
        self, lane: Lane, index: int, keys: Sequence[bytes], root: bytes, tokens: bytes
    ) -> Arrive:
        """`lane` waits for the state with the chain `keys`: what its begin has to say."""
        assert self._disk is not None, "a lane waits for no disk"
        job = self._disk.fetch(keys, root, tokens)
        self._arriving[index] = _Arriving(lane, job, len(keys), self._page_bytes)
        return Arrive(job, len(tokens) // 4)

    def failed(self) -> list[Lane]:
        """The lanes whose state could not be read; they wait no more."""
        found = []
        for index, one in list(self._arriving.items()):
            if self._records(one) < 0:
                found.append(one.lane)
                del self._arriving[index]
        return found

    def puts(self) -> tuple[Put, ...]:
        """What has arrived, for the lanes that wait, as much as a step may carry."""
        room, puts = STEP_BYTES, []
        for index, one in self._arriving.items():
            records = self._records(one)
            most = max(1, room // one.page_bytes)
            stop = min(records, one.pages, one.put + most)
            seal = stop == one.pages and records > one.pages
            if room <= 0 or (stop == one.put and not seal):
                continue
            puts.append(Put(index, one.job, one.put, stop, seal))
            room -= (stop - one.put) * one.page_bytes
        return tuple(puts)

    def taken(self, puts: Iterable[Put]) -> None:
        """The ranks have executed these; sealed lanes wait no more."""
        for put in puts:
            one = self._arriving.get(put.lane)
            if one is None or one.job != put.job:
                continue
            one.put = put.stop
            if put.seal:
                del self._arriving[put.lane]
                self._known.sealed(put.job)

    def forget(self, index: int) -> None:
        """Lane `index` ends; it may be waiting."""
        one = self._arriving.pop(index, None)
        if one is not None:
            self._known.forget(one.job)

    # -- writing

    def learn(self, state: int, keys: Sequence[bytes], root: bytes, tokens: bytes) -> None:
        """A kept state, whose chain is `keys`, is worth writing, if it is not on the disk."""
        if self._disk is None or len(self._copying) >= MOST_PENDING:
            return
        draft = self._disk.draft(keys, root, tokens)
        if draft is not None:
            self._kept.borrow(state)
            self._copying.append(_Copying(state, draft))

    def writes(self) -> tuple[Write, ...]:
        """What the next step copies, as much as a step may and the disk has room for."""
        self._writes.clear()
        if not self._copying:
            return ()
        room = min(STEP_BYTES, self._known.room())
        for one in list(self._copying):
            if one.draft.over:
                self._finish(one)
            elif not one.draft.ready or room <= 0:
                break
            else:
                parts = _first(one.draft.parts[one.sent :], room)
                room -= sum(part.bytes for part in parts)
                self._known.sent(one.draft, parts)
                self._writes.append((one, parts))
        return tuple(self._write(one.state, parts) for one, parts in self._writes)

    def copied(self) -> None:
        """The ranks have executed the step with `writes`."""
        for one, parts in self._writes:
            one.sent += len(parts)
            if one.sent == len(one.draft.parts):
                self._finish(one)
        self._writes.clear()

    def give_way(self) -> bool:
        """A request needs the memory of what waits to be copied: it is not written then. False
        when nothing waits."""
        waiting = [one for one in self._copying if all(one is not two for two, _ in self._writes)]
        for one in waiting:
            self._known.drop(one.draft)
            self._finish(one)
        return bool(waiting)

    async def settled(self) -> None:
        """Return when everything that was kept is on the disk, or given up."""
        if self._disk is not None:
            await self._disk.settled()

    def stats(self) -> DiskStats | None:
        """None without a disk."""
        return None if self._disk is None else self._disk.stats()

    def check(self) -> None:
        """Prove the invariant; AssertionError says what broke."""
        for one in self._copying:
            assert one.sent < len(one.draft.parts), "a state that was copied is still borrowed"
        for index, arriving in self._arriving.items():
            assert arriving.lane.index == index, f"lane {index} waits as {arriving.lane.index}"
            assert arriving.put <= arriving.pages, f"{arriving.put} of {arriving.pages} pages"

    # -- inside

    @property
    def _known(self) -> Disk:
        assert self._disk is not None, "there is no disk"
        return self._disk

    def _records(self, one: _Arriving) -> int:
        return self._known.arrived(one.job)

    def _finish(self, one: _Copying) -> None:
        self._copying.remove(one)
        self._kept.unborrow(one.state)

    def _write(self, state: int, parts: Sequence[Part]) -> Write:
        slot, pages = self._kept.place(state)
        records = (
            Record(
                number=part.number,
                page=pages[part.page] if part.page >= 0 and pages else part.page,
                depth=part.depth,
                key=part.key,
                parent=part.parent,
                tokens=part.tokens,
            )
            for part in parts
        )
        return Write(state, slot, tuple(records))


def _first(parts: Sequence[Part], room: int) -> Sequence[Part]:
    """At least one, and as many as there is room for."""
    count, size = 0, 0
    for part in parts:
        size += part.bytes
        if count and size > room:
            break
        count += 1
    return parts[:count]
