"""A rank's side of the disk: the records that it writes and reads itself.

Owns the rank's writer and reader, and the way from messages to records and from files to pages.
Knows no index and no names but those it is told: the server decides what is written, puts it in
its place and removes it. Records never cross the wire, so that every rank reads and writes its own.
Invariant: a lane takes only what was verified, and a step that writes copies and does not wait.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from streamglm.disk.reader import Progress, Reader, Wanted
from streamglm.disk.record import Kind, Label, Layout, Raw, Section, temporary_name
from streamglm.disk.system import SYSTEM, System
from streamglm.disk.writer import Job, Writer
from streamglm.errors import FrameMalformed, StreamEnded
from streamglm.ranks.wire import Fetch, Fetched, Forget, Learn, ToServer, Wrote
from streamglm.step import Record


class Records:
    """Until a `Learn` comes, a rank has no disk. `close` it."""

    def __init__(self, tell: Callable[[ToServer], None], rank: int, world: int) -> None:
        self.system: System = SYSTEM
        self.page: Layout = ()
        self.fixed: Layout = ()
        self._tell = tell
        self._rank = rank
        self._world = world
        self._learn: Learn | None = None
        self._writer: Writer | None = None
        self._reader: Reader | None = None

    def shape(
        self,
        page: Sequence[tuple[int, int]],
        fixed: Sequence[tuple[int, int]],
        *,
        split: bool = False,
    ) -> None:
        """What a page and a fixed part hold: (bytes, bytes of an item) of each section. With
        `split` the first of a page is there on the rank that has its latent rows."""
        self.page = tuple(
            Section(size, item, optional=split and not place)
            for place, (size, item) in enumerate(page)
        )
        self.fixed = tuple(Section(size, item) for size, item in fixed)

    @property
    def layout(self) -> str:
        """`shape` as text, for what must be equal before a record can be read."""
        return " | ".join(
            " ".join(f"{one.size}/{one.item}{'?' * one.optional}" for one in layout)
            for layout in (self.page, self.fixed)
        )

    def follow(self, message: Learn | Fetch | Forget) -> None:
        """Do a message that has no answer."""
        match message:
            case Learn():
                self._learn = message
                folder = Path(message.temporary)
                self._writer = Writer(folder, self._wrote, system=self.system)
                self._reader = Reader(self._fetched)
            case Fetch():
                self._reading().fetch(message.job, list(self._wanted(message)))
            case Forget(job):
                self._reading().forget(job)

    def stage(self, record: Record, sections: Sequence[Raw]) -> None:
        """Write `sections`, copies that are nobody else's, as `record`; returns at once."""
        if self._writer is None or self._learn is None:
            raise FrameMalformed("a step writes to the disk, and this rank was told of none")
        kind = Kind.FIXED if record.page < 0 else Kind.PAGE
        layout = self.fixed if record.page < 0 else self.page
        for one, section in zip(layout, sections, strict=True):
            assert one.fits(section.nbytes, one.item), f"a section of {section.nbytes} bytes"
        label = Label(
            kind,
            self._learn.identity,
            record.key,
            record.parent,
            record.depth,
            self._rank,
            self._world,
        )
        items = [one.item for one in layout]
        name = temporary_name(record.number, self._rank)
        self._writer.submit(Job(record.number, name, label, record.tokens, sections, items))

    def ready(self, job: int) -> int:
        """Records of `job`, from its first page on, that can be taken or were."""
        return 0 if self._reader is None else self._reader.ready(job)

    def take(self, job: int, count: int) -> list[list[Raw]]:
        """The next `count` records of `job`, which are ready."""
        return self._reading().take(job, count)

    def close(self) -> None:
        """Return when everything that was staged is on the disk."""
        if self._writer is not None and self._reader is not None:
            self._reader.close()
            self._writer.close()

    def _reading(self) -> Reader:
        if self._reader is None:
            raise FrameMalformed("a message about the disk, and this rank was told of none")
        return self._reader

    def _wanted(self, fetch: Fetch) -> Iterator[Wanted]:
        """The pages of a chain, then the fixed part at its end."""
        assert self._learn is not None, "a fetch before the folder is known"
        folder, identity = Path(self._learn.folder), self._learn.identity
        page = len(fetch.tokens) // len(fetch.keys)
        parents = (fetch.root, *fetch.keys)
        for number, key in enumerate(fetch.keys):
            depth = number + 1
            label = Label(Kind.PAGE, identity, key, parents[number], depth, self._rank, self._world)
            tokens = fetch.tokens[number * page : depth * page]
            yield Wanted(folder / label.path, label, tokens, self.page)
        last = Label(
            Kind.FIXED, identity, parents[-1], parents[-2], len(fetch.keys), self._rank, self._world
        )
        yield Wanted(folder / last.path, last, b"", self.fixed)

    def _wrote(self, job: Job, size: int, error: str) -> None:
        self._say(Wrote(job.number, size, job.raw, error))

    def _fetched(self, now: Progress) -> None:
        self._say(Fetched(now.job, now.count, now.size, now.lost, now.error))

    def _say(self, message: ToServer) -> None:
        with contextlib.suppress(StreamEnded):  # the rank's main thread meets it too
            self._tell(message)
