"""What a rank refuses of steps that speak of the disk, before anything changes."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from streamglm.disk.record import Kind, Label, decode
from streamglm.disk.system import System
from streamglm.errors import StepRefused
from streamglm.pool.pages import book_digest
from streamglm.ranks.mirror import Mirror
from streamglm.ranks.records import Records
from streamglm.ranks.wire import Fetch, Fetched, Learn, ToServer, Work, Wrote
from streamglm.ranks.worker import Worker
from streamglm.step import Arrive, Begin, Chunk, Draw, Put, Record, Restore, Save, Step, Write
from support.fakes import shape, spec_numbers
from support.house import settings
from support.stub import StubExecutor

DRAW = Draw(0.0, 0, 1.0, 0.0, 1)
PAGES = tuple(range(6))
RECORD = Record(1, 0, 1, b"k" * 16, b"p" * 16, b"t" * 32)


def begin(restore: Arrive | Restore | None = None) -> Begin:
    return Begin(0, PAGES, DRAW, restore)


def mirror(*steps: Step) -> Mirror:
    """One that has followed `steps`."""
    found = Mirror(spec_numbers(shape()), 64, 4, 2)
    for step in steps:
        check(found, step)
        found.apply(step)
    return found


def check(one: Mirror, step: Step) -> None:
    leases = [(0, PAGES)] if step.begins or one.live else []
    kept = 0
    for state in one.kept.values():
        kept ^= state.digest
    one.check(step, book_digest(leases) ^ kept)


ARRIVES = Step(begins=(begin(Arrive(7, 24)),))


def put(first: int, stop: int, *, job: int = 7, seal: bool = False) -> Step:
    return Step(puts=(Put(0, job, first, stop, seal),))


def test_a_lane_arrives_page_by_page_is_sealed_and_goes_on() -> None:
    one = mirror(ARRIVES, put(0, 1), put(1, 3, seal=True))
    step = Step(chunks=(Chunk(0, 24, (1, 2, 3, 4), last=False),))
    check(one, step)


def test_a_seal_may_come_with_a_save_and_the_first_chunk_not() -> None:
    save = Save(0, 0, 1, host=False, at=24)
    check(mirror(ARRIVES, put(0, 2)), Step(puts=(Put(0, 7, 2, 3, True),), saves=(save,)))


@pytest.mark.parametrize(
    ("before", "step", "said"),
    [
        ((), Step(begins=(begin(Arrive(7, 0)),)), "not a whole number of pages"),
        ((), Step(begins=(begin(Arrive(7, 20)),)), "not a whole number of pages"),
        ((), Step(begins=(begin(Arrive(7, 48)),)), "past its 6 pages"),
        ((), put(0, 1), "unknown"),
        ((Step(begins=(begin(),)),), put(0, 1), "does not wait"),
        ((ARRIVES,), put(0, 1, job=8), "does not wait"),
        ((ARRIVES,), put(1, 2), "it has 0 rows of 24"),
        ((ARRIVES,), put(0, 4), "it has 0 rows of 24"),
        ((ARRIVES,), put(0, 2, seal=True), "its mark is 24"),
        ((ARRIVES, put(0, 2)), put(1, 3), "it has 16 rows"),
        ((ARRIVES, put(0, 3, seal=True)), put(3, 3, seal=True), "does not wait"),
        ((ARRIVES,), Step(chunks=(Chunk(0, 0, (1,) * 4, last=False),)), "waits for the disk"),
        ((ARRIVES, put(0, 2)), Step(saves=(Save(0, 0, 1, host=False, at=16),)), "waits for the"),
        ((ARRIVES,), Step(writes=(Write(3, 0, (RECORD,)),)), "not kept here"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused(before: tuple[Step, ...], step: Step, said: str) -> None:
    one = mirror(*before)
    with pytest.raises(StepRefused, match=said):
        check(one, step)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (Write(0, 0, (RECORD,)), "from slot 0, but it is in 1"),
        (Write(0, 1, (Record(1, 5, 1, b"", b"", b""),)), "page 5, which it does not share"),
    ],
)
def test_a_write_of_something_else_is_refused(write: Write, said: str) -> None:
    save = Save(0, 0, 1, host=False, at=16)
    one = mirror(Step(begins=(begin(),), chunks=(Chunk(0, 0, (1,) * 16, False),), saves=(save,)))
    check(one, Step(writes=(Write(0, 1, (RECORD,)),)))
    with pytest.raises(StepRefused, match=said):
        check(one, Step(writes=(write,)))


def test_a_put_of_what_is_not_read_yet_is_refused() -> None:
    """The rank knows what it has verified; nothing else reaches a page."""
    of = shape()
    worker = Worker(settings(of), StubExecutor(of.vocab_size, of.page_rows), _records([]))
    digest = book_digest([(0, PAGES)])
    worker.answer(Work(digest, ARRIVES))
    answer = worker.answer(Work(digest, put(0, 1)))
    assert "1 records of job 7 are put, 0 are read" in str(answer)


def _records(told: list[ToServer], bell: threading.Event | None = None) -> Records:
    def tell(message: ToServer) -> None:
        told.append(message)
        if bell is not None:
            bell.set()

    found = Records(tell, 0, 1)
    found.shape([(64, 4)], [(32, 4)])
    return found


def test_a_step_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """A disk whose sync takes for ever: staging returns, and the next step runs."""
    hold, told = threading.Event(), []  # type: ignore[var-annotated]

    class Stuck(System):
        def sync(self, file: int) -> None:
            hold.wait(30)

    records = _records(told)
    records.system = Stuck()
    records.follow(Learn(str(tmp_path), str(tmp_path), b"i" * 16))
    for number in range(50):
        record = Record(number, 0, 1, number.to_bytes(16), b"p" * 16, b"t" * 32)
        records.stage(record, [np.zeros(64, np.uint8)])
    assert not told
    hold.set()
    records.close()
    assert sorted(message.number for message in told) == list(range(50))


def test_records_that_a_rank_wrote_it_reads(tmp_path: Path) -> None:
    """Through files: two pages and a fixed part, renamed as the server would."""
    told: list[ToServer] = []
    bell = threading.Event()
    records = _records(told, bell)
    records.follow(Learn(str(tmp_path), str(tmp_path), b"i" * 16))
    keys, root = (b"a" * 16, b"b" * 16), b"r" * 16
    pages = [np.arange(64, dtype=np.uint8), np.arange(64, 128, dtype=np.uint8)]
    fixed = np.arange(32, dtype=np.uint8)
    parts = [
        (Record(1, 0, 1, keys[0], root, b"1" * 32), pages[0]),
        (Record(2, 1, 2, keys[1], keys[0], b"2" * 32), pages[1]),
        (Record(3, -1, 2, keys[1], keys[0], b""), fixed),
    ]
    for record, section in parts:
        records.stage(record, [section])
    while sum(isinstance(one, Wrote) for one in told) < 3:
        bell.wait(10)
        bell.clear()
    for record, _ in parts:
        kind = Kind.FIXED if record.page < 0 else Kind.PAGE
        label = Label(kind, b"i" * 16, record.key, record.parent, record.depth, 0, 1)
        (tmp_path / label.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{record.number}.0").rename(tmp_path / label.path)
        assert decode(
            (tmp_path / label.path).read_bytes(),
            label,
            record.tokens,
            (records.page if record.page >= 0 else records.fixed),
        )
    records.follow(Fetch(9, root, keys, b"1" * 32 + b"2" * 32))
    while records.ready(9) < 3:
        bell.wait(10)
        bell.clear()
    found = records.take(9, 2) + records.take(9, 1)
    for (got,), want in zip(found, (*pages, fixed), strict=True):
        assert np.array_equal(got, want)
    assert any(isinstance(one, Fetched) and one.count == 3 for one in told)
    records.close()
