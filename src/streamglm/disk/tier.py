"""The disk behind the rounds: what is found, read back, written, evicted and forgotten.

Owns the tier of one server as a whole: it decides, the ranks write and read records, one thread
gives them their names and keeps the index. Knows no lanes and no HTTP. Invariant: what `find` tells
of is published, and whole as far as anyone knows; the folder never holds more than its limit, with
what is on its way counted at its most.

Nobody waits for a write, and what is not written is computed. When room is needed, states of other
identities go first, then the least recently used.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence

from streamglm.clock import Clock
from streamglm.disk.drafts import DROPS, Drafted, Drafts
from streamglm.disk.errands import Errands
from streamglm.disk.index import Index
from streamglm.disk.limits import BLOCK_BYTES, MARGIN, Limits
from streamglm.disk.nouns import Conversation, Gone, Stored
from streamglm.disk.reads import Courier, Reads
from streamglm.disk.record import Kind
from streamglm.disk.store import Store
from streamglm.pool.spill import DiskStats, Draft, Part

_log = logging.getLogger(__name__)


class DiskTier:
    """The `Disk` of `pool/spill.py` over an open store. `run` it; `close` it at the end.

    `moment` gives seconds since 1970, `wake` is called when a round has something to do.
    """

    def __init__(
        self,
        store: Store,
        index: Index,
        courier: Courier,
        limits: Limits,
        *,
        world: int,
        clock: Clock,
        moment: Callable[[], float],
    ) -> None:
        self.wake: Callable[[], None] = _nobody
        self.index = index
        self.limits = limits
        self._store = store
        self._clock = clock
        self._moment = moment
        self._errands = Errands()
        self._overhead = store.overhead()
        """Bytes beside records."""
        self._bare = store.overhead(names=False)
        """What of them stays when every record is gone."""
        self._removing = 0
        """Bytes that are forgotten, and whose files are still to be removed."""
        self._evicted = 0
        self._used: dict[bytes, float] = {}
        """Uses that the index on the disk does not know of."""
        self._told_limit = False
        self._reads = Reads(index, courier, world, remove=self._remove, touched=self._touch)
        self._drafts = Drafts(
            index,
            limits,
            world,
            now=clock.now,
            moment=moment,
            publish=lambda draft: self._errands.add(lambda: self._publish(draft)),
            discard=lambda names: self._errands.add(lambda: self._discard(names)),
            remove=self._remove,
        )

    # -- the protocol of the rounds

    @property
    def version(self) -> int:
        return self.index.version

    def find(self, keys: Sequence[bytes], most: int) -> int:
        stored = self.index.find(keys, most)
        return 0 if stored is None else stored.depth

    def fetch(self, keys: Sequence[bytes], root: bytes, tokens: bytes) -> int:
        return self._reads.fetch(keys, root, tokens)

    def arrived(self, job: int) -> int:
        return self._reads.arrived(job)

    def sealed(self, job: int) -> None:
        self._reads.sealed(job)

    def forget(self, job: int) -> None:
        self._reads.forget(job)

    def draft(self, keys: Sequence[bytes], root: bytes, tokens: bytes) -> Draft | None:
        if self._drafts.resting:
            self._drafts.totals.dropped["backoff"] += not self.index.knows(keys[-1])
            return None
        draft = self._drafts.make(keys, root, tokens)
        if draft is None:
            stored = self.index.find(keys, len(keys))
            if stored is not None and stored.depth == len(keys):
                self._touch(stored)
            return None
        if not self._can_fit():
            self._tell_limit(draft)
            self._drafts.drop(draft, "limit")
            return None
        self._make_room()
        return draft

    def room(self) -> int:
        return self._drafts.room()

    def sent(self, draft: Draft, parts: Sequence[Part]) -> None:
        self._drafts.sent(draft, parts)

    def drop(self, draft: Draft) -> None:
        self._drafts.drop(draft, "memory")

    # -- what the ranks say

    def wrote(self, number: int, size: int, raw: int, error: str) -> None:
        """A rank has written a record, or could not."""
        self._drafts.wrote(number, size, raw, error)
        self.wake()

    def fetched(self, rank: int, job: int, count: int, size: int, lost: int, error: str) -> None:
        """`rank` has read so much of a job, or could not use record `lost`."""
        self._reads.fetched(rank, job, count, size, lost, error)
        self.wake()

    # -- the life of the tier

    async def run(self) -> None:
        """Do what has to be done to the folder, for ever."""
        await self._errands.run()

    async def settled(self) -> None:
        """Return when nothing is on its way to the disk."""
        while self._drafts or self._errands:
            await self._clock.sleep(0.01)

    def close(self) -> None:
        """Save what was used. The store stays open."""
        self._errands.close()
        try:
            self._store.save_used(self._used)
        except (OSError, sqlite3.Error) as error:
            _log.warning("the last uses of conversations are not saved: %s", error)

    # -- for whoever owns what is learned

    def conversations(self) -> list[Conversation]:
        """Those that can be found, the most recently used first."""
        own = self.index.identity
        return [one for one in self.index.conversations() if one.identity == own]

    async def forget_conversations(self, names: Sequence[str]) -> set[bytes]:
        """Remove conversations; their files are gone when this returns. Returns the keys that they
        alone stood on, by which copies of them elsewhere are known. Raises `OSError` or
        `sqlite3.Error` when they cannot be removed."""
        done: asyncio.Future[set[bytes]] = asyncio.get_running_loop().create_future()
        self._errands.add(lambda: self._forget(names, done))
        return await done

    def stats(self) -> DiskStats:
        written, read = self._drafts.totals, self._reads.totals
        return DiskStats(
            states=self.index.own,
            bytes=self.index.bytes + self._removing + self._overhead,
            limit=self.limits.total,
            queue=len(self._drafts),
            queue_bytes=self._drafts.outstanding,
            reading=len(self._reads),
            learned_total=written.learned,
            written_bytes_total=written.bytes,
            raw_bytes_total=written.raw,
            read_bytes_total=read.bytes,
            evicted_total=self._evicted,
            dropped_total={why: written.dropped[why] for why in DROPS},
            lost_total={kind.name.lower(): read.lost[kind.name.lower()] for kind in Kind},
        )

    # -- inside

    def _touch(self, stored: Stored) -> None:
        if stored.node.state is stored:
            self.index.touch(stored, self._moment())
            self._used[stored.node.key] = stored.used

    def _can_fit(self) -> bool:
        """Whether all drafts fit once everything else that may go has gone."""
        need = self._drafts.coming + self.index.pinned() + self._bare
        return need + MARGIN <= self.limits.total

    def _make_room(self) -> None:
        """Evict for the drafts; they are ready when they fit, and nothing is left to be removed.
        What a removal really frees is measured before more is evicted."""
        if self._removing:
            return
        need = self._drafts.coming + self._overhead + MARGIN + self.index.bytes
        while need > self.limits.total and (stored := self.index.oldest()) is not None:
            gone = self.index.remove(stored)
            need -= sum(one.size + BLOCK_BYTES for one in gone)
            self._evicted += 1
            self._remove(gone)
        if not self._removing:
            for draft in self._drafts.waiting():
                draft.ready = True

    def _tell_limit(self, draft: Drafted) -> None:
        if not self._told_limit:
            self._told_limit = True
            _log.warning(
                "a conversation of %s bytes does not fit `--learn-gib`, %s bytes; such ones are "
                "not saved",
                f"{draft.need:,}",
                f"{self.limits.total:,}",
            )

    def _remove(self, gone: list[Gone]) -> None:
        if gone:
            self._removing += sum(one.size for one in gone)
            self._errands.add(lambda: self._take_off(gone))

    # -- errands

    async def _take_off(self, gone: list[Gone]) -> None:
        try:
            await self._errands.aside(self._store.remove, gone)
        except (OSError, sqlite3.Error) as error:
            self._drafts.back_off(f"records cannot be removed ({error})")
        self._removing -= sum(one.size for one in gone)
        await self._settle()

    async def _publish(self, draft: Drafted) -> None:
        if draft.over:
            return
        rows, names = self._drafts.rows(draft), self._drafts.names(draft)
        used, self._used = self._used, {}
        try:
            await self._errands.aside(self._store.publish, names, *rows, used)
        except (OSError, sqlite3.Error) as error:
            self._used = used | self._used
            self._drafts.back_off(f"the index cannot be written ({error})")
            self._drafts.drop(draft, "failed")
        else:
            self._drafts.published(draft, rows)
        await self._settle()

    async def _discard(self, names: list[str]) -> None:
        try:
            await self._errands.aside(self._store.discard, names)
        except OSError as error:
            _log.warning("%d files on their way to the disk stay there: %s", len(names), error)

    async def _forget(self, names: Sequence[str], done: asyncio.Future[set[bytes]]) -> None:
        keys: set[bytes] = set()
        gone: list[Gone] = []
        for name in names:
            conversation = self.index.conversation(name)
            if conversation is None:
                continue
            tops = {stored.node.key for stored in conversation.states}
            keys |= tops
            self._drafts.drop_above({conversation.tip.node.key})
            for stored in reversed(conversation.states):
                gone += self.index.remove(stored)
        try:
            await self._errands.aside(self._store.remove, gone)
        except (OSError, sqlite3.Error) as error:
            if not done.cancelled():
                done.set_exception(error)
        else:
            if not done.cancelled():
                done.set_result(keys | {one.key for one in gone})
        await self._settle()

    async def _settle(self) -> None:
        """After something was done to the folder: measure it, and let whoever waits go on."""
        try:
            self._overhead = await self._errands.aside(self._store.overhead)
            self._bare = await self._errands.aside(self._store.overhead, names=False)
        except OSError as error:
            _log.warning("the folder of conversations cannot be measured: %s", error)
        self._make_room()
        self.wake()


def _nobody() -> None:
    """Nothing waits for this disk."""
