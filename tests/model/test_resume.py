"""A reply that resumes from a kept state is a fresh one's, bit for bit: logits, tokens, states.

Pages are poisoned and shuffled, and every step passes a rank's own checks. That each piece of
keeping counts is shown at the end: without it the same comparison is red.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from streamglm.commands.check_streams import Store
from streamglm.model.kept import KeptTensors
from streamglm.model.state import FixedParts, LaneStates
from streamglm.pool.layout import RowFormat
from streamglm.pool.states import Tier
from streamglm.pool.tensors import PageCopies, PoolTensors
from streamglm.step import Demote, Move, Restore
from support.streams import Bench, Reply, ids
from support.tiny import Folder, TinyShape

PAGE, CHUNK, LIMIT = 64, 256, 131
LENGTHS = (
    *(PAGE + 1, 2 * PAGE - 1, 2 * PAGE, 2 * PAGE + 1),
    *(LIMIT - 1, LIMIT, LIMIT + 1),
    *(CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 1),
)
"""Both sides of every boundary: page, dense limit, chunk."""

GIB = 1 << 30
SHARED = Store(slots=4)
COPIED = Store(budget=GIB)
HOST = Store(slots=4, host=GIB)


@pytest.fixture
def folder(tiny: Folder) -> Path:
    return tiny(TinyShape(), 0)


async def resumed_and_fresh(bench: Bench, prompt: list[int], at: int) -> tuple[Reply, Reply]:
    """A donor computes the prompt and ends; an heir resumes at the mark, another starts afresh."""
    await bench.reply(0, prompt, tokens=2, keep=(at,), resume=False)
    return await bench.reply(1, prompt), await bench.reply(2, prompt, resume=False)


@pytest.mark.parametrize("rows", RowFormat)
@pytest.mark.parametrize("length", LENGTHS)
async def test_on_both_sides_of_every_boundary(folder: Path, rows: RowFormat, length: int) -> None:
    bench = Bench(folder, rows, store=SHARED)
    prompt = ids(length, length)
    mark = (length - 1) // PAGE * PAGE
    resumed, fresh = await resumed_and_fresh(bench, prompt, mark)
    assert (resumed.cached, fresh.cached) == (mark, 0)
    assert resumed.equals(fresh)
    await bench.streams.close()


@pytest.mark.parametrize("at", range(PAGE, 6 * PAGE, PAGE))
async def test_from_every_mark_of_a_prompt(folder: Path, at: int) -> None:
    bench = Bench(folder, store=SHARED)
    prompt = ids(5, 6 * PAGE - 7)
    resumed, fresh = await resumed_and_fresh(bench, prompt, at)
    assert resumed.cached == at
    assert resumed.equals(fresh)


@pytest.mark.parametrize("rows", [RowFormat.FP32, RowFormat.FP8])
@pytest.mark.parametrize("window", [None, 9], ids=["pages", "windows"])
async def test_from_a_copy(folder: Path, rows: RowFormat, window: int | None) -> None:
    """The rows of a copy land in pages of the heir's own, whatever the donor's are by then."""
    bench = Bench(folder, rows, store=COPIED, window=window)
    prompt = ids(6, 333)
    await bench.reply(0, prompt, tokens=2, keep=(128, 320), resume=False)
    await bench.reply(3, ids(7, 500), tokens=2, resume=False)  # on the donor's pages
    for at, tail in ((320, prompt[320:]), (128, ids(8, 40))):
        resumed = await bench.reply(1, prompt[:at] + tail)
        fresh = await bench.reply(2, prompt[:at] + tail, resume=False)
        assert resumed.cached == at
        assert resumed.equals(fresh)
    await bench.streams.close()


@pytest.mark.parametrize("rows", RowFormat)
async def test_after_demotion_to_host_memory(folder: Path, rows: RowFormat) -> None:
    """The state's own pages are another stream's, and poisoned, when it comes back."""
    bench = Bench(folder, rows, pages=20, store=HOST)
    prompt = ids(9, 270)
    await bench.reply(0, prompt, tokens=2, keep=(256,), resume=False)
    assert bench.streams.demote() == 1
    await bench.reply(3, ids(10, 20 * PAGE - 70), tokens=2, resume=False)  # takes every page
    resumed = await bench.reply(1, prompt)
    assert bench.streams.kept.counts.hits == {Tier.HOST: 1}
    assert resumed.cached == 256
    assert resumed.equals(await bench.reply(2, prompt, resume=False))
    await bench.streams.close()


async def test_a_copy_that_leaves_the_device_comes_back(folder: Path) -> None:
    """The budget holds one copy: the next one sends it to host memory."""
    shape = Bench(folder).shape
    bench = Bench(folder, store=Store(budget=shape.kept_bytes(128), host=GIB))
    prompt = ids(11, 140)
    await bench.reply(0, prompt, tokens=2, keep=(128,), resume=False)
    await bench.reply(0, ids(12, 140), tokens=2, keep=(128,), resume=False)
    states = bench.streams.kept.stats().states
    assert states == dict.fromkeys(Tier, 0) | {Tier.COPIED: 1, Tier.HOST: 1}
    resumed = await bench.reply(1, prompt)
    assert resumed.cached == 128
    assert resumed.equals(await bench.reply(2, prompt, resume=False))


@pytest.mark.parametrize("rows", [RowFormat.FP32, RowFormat.FP8])
async def test_three_heirs_of_one_state_while_the_donor_decodes(
    folder: Path, rows: RowFormat
) -> None:
    """They share pages, side by side in every window, until the state and the donor are gone and
    a stranger has their places."""
    bench = Bench(folder, rows, store=SHARED)
    streams, prefix = bench.streams, ids(13, 192)
    prompts = {lane: prefix + ids(20 + lane, 9 + 40 * lane) for lane in (1, 2, 3)}
    fresh = {lane: await bench.reply(0, prompt, resume=False) for lane, prompt in prompts.items()}
    _, token = await bench.start(0, [*prefix, 5], keep=(192,), resume=False)
    heirs = {lane: await bench.start(lane, prompt) for lane, prompt in prompts.items()}
    assert [cached for cached, _ in heirs.values()] == [192] * 3
    drawn = {lane: [first] for lane, (_, first) in heirs.items()}
    for round_ in range(23):
        rows_of = {lane: tokens[-1] for lane, tokens in drawn.items()}
        donor = {0: token} if round_ < 10 else {}
        found = await streams.step(rows=donor | rows_of)
        token = found.get(0, token)
        for lane in drawn:
            drawn[lane].append(found[lane])
        if round_ == 9:
            streams.end(0)
            streams.kept.clear()
            streams.begin(4, ids(14, 900), resume=False)
            await streams.fill(4)
    for lane, tokens in drawn.items():
        assert bench.taken(lane, 192, tokens).equals(fresh[lane]), f"lane {lane}"
        streams.end(lane)
    streams.end(4)
    await streams.close()


async def test_an_heir_keeps_and_its_heir_resumes(folder: Path) -> None:
    """A conversation: each turn resumes from the last mark of the one before."""
    bench = Bench(folder, store=SHARED)
    prompt = ids(15, 70)
    for turn in range(1, 6):
        mark = (len(prompt) - 1) // PAGE * PAGE
        resumed = await bench.reply(1, prompt, keep=(mark,))
        assert resumed.cached == (0 if turn == 1 else (len(prompt) - 78) // PAGE * PAGE)
        assert resumed.equals(await bench.reply(2, prompt, resume=False)), f"turn {turn}"
        prompt = prompt + ids(30 + turn, 77)


async def test_restored_rows_are_the_kept_ones_and_no_row_past_the_mark_is_read(
    folder: Path,
) -> None:
    """Every byte of the copy is back, and what lies behind it in the heir's pages is poison."""
    bench = Bench(folder, store=COPIED)
    prompt = ids(16, 200)
    _, first = await bench.start(0, prompt, keep=(128,), resume=False)
    pool, book = bench.executor.pool, bench.streams.book
    want = pool.copy_out(book.pages(0)[:2])
    bench.streams.begin(1, prompt)
    await bench.streams.step()
    mine = book.pages(1)
    found, behind = pool.copy_out(mine[:2]), pool.copy_out(mine[2:])
    assert torch.equal(found.latents, want.latents)
    assert torch.equal(found.keys, want.keys)
    assert (behind.latents == 0xFF).all()
    assert (behind.keys == 0xFF).all()
    assert (await bench.streams.fill(1))[1] == first
    assert np.isfinite(bench.taken(1, 128, ()).logits).all()


@pytest.mark.parametrize("rows", RowFormat)
async def test_kept_bytes_follow_the_position(folder: Path, rows: RowFormat) -> None:
    """Measured on the executor: a slope of a page's bytes and a constant fixed part."""
    bench = Bench(folder, rows, store=COPIED)
    shape, sizes = bench.shape, []
    for pages in (1, 2, 5, 9):
        before = bench.executor.bytes.buffers
        prompt = ids(40 + pages, pages * PAGE + 3)
        await bench.reply(0, prompt, tokens=1, keep=(pages * PAGE,), resume=False)
        sizes.append(bench.executor.bytes.buffers - before)
    assert sizes == [shape.slot_bytes + n * shape.page_bytes for n in (1, 2, 5, 9)]
    assert bench.executor.bytes.slots == 0
    await bench.streams.close()
    assert bench.executor.bytes.buffers == 0


async def test_a_state_that_shares_pages_costs_nothing_but_its_slot(folder: Path) -> None:
    bench = Bench(folder, store=HOST)
    before = bench.executor.bytes
    assert before.slots == 4 * bench.shape.slot_bytes
    prompt = ids(50, 9 * PAGE + 3)
    await bench.reply(0, prompt, tokens=1, keep=(2 * PAGE, 9 * PAGE), resume=False)
    assert bench.executor.bytes == before
    bench.streams.demote()
    await bench.streams.step()
    host = bench.executor.bytes.host
    assert host == bench.shape.kept_bytes(2 * PAGE) + bench.shape.kept_bytes(9 * PAGE)


# -- each piece counts


def _nothing(*arguments: object, **options: object) -> None:
    """A piece that is gone."""


def _kda_alone(self: FixedParts, place: int, source: FixedParts, at: int) -> None:
    self.kda[:, place] = source.kda[:, at]


def _conv_alone(self: FixedParts, place: int, source: FixedParts, at: int) -> None:
    self.conv[:, place] = source.conv[:, at]


def _beside(self: LaneStates, lane: int, parts: FixedParts, place: int) -> None:
    _resume(self, lane, parts, (place + 1) % parts.kda.shape[1])


def _backwards(self: PoolTensors, pages: tuple[int, ...], copies: PageCopies) -> None:
    _copy_in(self, pages[::-1], copies)


def _taken_anew(self: KeptTensors, restore: Restore, lane: int, pages: list[int]) -> None:
    _restore(self, restore, lane, pages)
    self._pool.take(pages)


def _too_late(self: KeptTensors, move: Move) -> None:
    if isinstance(move, Demote):
        self._pool.take(move.pages)
    _move(self, move)


_resume, _copy_in = LaneStates.resume, PoolTensors.copy_in
_restore, _move = KeptTensors.restore, KeptTensors.move

PIECES = {
    "nothing is saved": (SHARED, KeptTensors, "save", _nothing),
    "no convolution rows are kept": (SHARED, FixedParts, "copy", _kda_alone),
    "no KDA state is kept": (SHARED, FixedParts, "copy", _conv_alone),
    "nothing is restored": (SHARED, KeptTensors, "restore", _nothing),
    "another slot is restored": (SHARED, LaneStates, "resume", _beside),
    "tails are left as they were": (SHARED, LaneStates, "resume", FixedParts.copy),
    "shared pages are poisoned": (SHARED, KeptTensors, "restore", _taken_anew),
    "a copy's rows are not restored": (COPIED, PoolTensors, "copy_in", _nothing),
    "a copy's pages change places": (COPIED, PoolTensors, "copy_in", _backwards),
    "a demotion comes after the pages went": (HOST, KeptTensors, "move", _too_late),
}


@pytest.mark.parametrize("name", PIECES)
async def test_without_a_piece_the_comparison_is_red(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store, owner, piece, broken = PIECES[name]

    async def resumed() -> tuple[Reply, Reply]:
        bench, prompt = Bench(folder, store=store), ids(60, 129)
        await bench.reply(0, ids(61, 150), tokens=2, keep=(128,), resume=False)  # the slot beside
        await bench.reply(0, prompt, tokens=2, keep=(128,), resume=False)
        if store is HOST:
            bench.streams.demote()
        found = await bench.reply(1, prompt, tokens=2)
        assert found.cached == 128
        return found, await bench.reply(0, prompt, tokens=2, resume=False)

    good, fresh = await resumed()
    assert good.equals(fresh)
    monkeypatch.setattr(owner, piece, broken)
    bad, fresh = await resumed()
    assert not bad.equals(fresh)
