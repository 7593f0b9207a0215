"""Pages change nothing: shuffled pages equal whole windows in order, in every format.

Both are poisoned, and run chunk by chunk and row by row as lanes send them. A table that is wrong
turns the comparison red, and so does a write that is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamglm.commands.check_streams import Store
from streamglm.kernels import page_write
from streamglm.model import latent
from streamglm.model.tables import PageTables
from streamglm.pool.layout import RowFormat
from support.streams import Bench, Reply, ids
from support.tiny import ODD, Folder, TinyShape

PAGE, LIMIT = 64, 131
LENGTHS = (1, PAGE - 1, PAGE, PAGE + 1, LIMIT - 1, LIMIT, LIMIT + 1, 4 * PAGE, 6 * PAGE + 5)
WINDOW = 8


@pytest.fixture
def folder(tiny: Folder) -> Path:
    return tiny(TinyShape(), 0)


@pytest.mark.parametrize("rows", RowFormat)
@pytest.mark.parametrize("shape", [TinyShape(), ODD], ids=["default", "odd"])
async def test_pages_equal_windows(tiny: Folder, shape: TinyShape, rows: RowFormat) -> None:
    windows = Bench(tiny(shape, 0), rows, window=WINDOW)
    paged = Bench(tiny(shape, 0), rows, seed=5)
    for length in LENGTHS:
        prompt = ids(length, length)
        want = await windows.reply(2, prompt)
        assert (await paged.reply(1, prompt, sizes=(64, 128))).equals(want), f"{length} rows"
    await windows.streams.close()
    await paged.streams.close()


@pytest.mark.parametrize("rows", [RowFormat.BF16, RowFormat.FP8])
async def test_neighbours_and_chunks_change_nothing(folder: Path, rows: RowFormat) -> None:
    """What `test_exactness.py` shows at length, in the narrow formats."""
    bench = Bench(folder, rows)
    prompts = {lane: ids(70 + lane, LENGTHS[3 + lane]) for lane in range(5)}
    alone = {lane: await bench.reply(0, prompt) for lane, prompt in prompts.items()}
    tokens: dict[int, list[int]] = {}
    for lane, prompt in prompts.items():
        _, first = await bench.start(lane, prompt, sizes=((64,), (192, 64), ())[lane % 3])
        tokens[lane] = [first]
    for _ in range(23):
        drawn = await bench.streams.step(rows={lane: mine[-1] for lane, mine in tokens.items()})
        for lane, token in drawn.items():
            tokens[lane].append(token)
    for lane, want in alone.items():
        assert bench.taken(lane, 0, tokens[lane]).equals(want), f"lane {lane}"


async def two(folder: Path, pages: int, **options: Any) -> tuple[Reply, Reply]:
    """A long stream on pages that were another's, and beside it one on that one's old lane."""
    bench = Bench(folder, pages=pages, lanes=2, **options)
    await bench.reply(0, ids(80, 400))
    bench.streams.begin(1, ids(81, 440), resume=False)
    await bench.streams.step(fill=(1,))
    beside = await bench.reply(0, ids(82, 200))
    drawn = [(await bench.streams.fill(1))[1]]
    for _ in range(5):
        rows = {1: max(drawn[-1], 0)}
        drawn.append((await bench.streams.step(rows=rows))[1])
    return beside, bench.taken(1, 0, drawn)


def _stale(self: PageTables, lane: int, pages: Sequence[int]) -> None:
    if (self.host[lane] == self._geometry.null).all():
        _begin(self, lane, pages)


def _scrambled(self: PageTables, lane: int, pages: Sequence[int]) -> None:
    _begin(self, lane, pages)
    self.host[1, [0, 1]] = self.host[1, [1, 0]]  # of the lane that is in the middle


_begin = PageTables.begin


@pytest.mark.parametrize("broken", [_stale, _scrambled])
async def test_a_wrong_table_is_red(
    folder: Path, monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    want = await two(folder, 2 * WINDOW, window=WINDOW)
    found = await two(folder, 13, seed=11)
    assert all(one.equals(other) for one, other in zip(found, want, strict=True))
    monkeypatch.setattr(PageTables, "begin", broken)
    wrong = await two(folder, 13, seed=11)
    assert not all(one.equals(other) for one, other in zip(wrong, want, strict=True))


@pytest.mark.parametrize("rows", RowFormat)
async def test_poison_changes_no_bit(folder: Path, rows: RowFormat) -> None:
    plain = Bench(folder, rows, poison=False, store=Store(slots=2))
    poisoned = Bench(folder, rows, store=Store(slots=2))
    for length in LENGTHS:
        prompt, keep = ids(length, length), (PAGE,) if length > PAGE else ()
        for _ in range(2):  # fresh, and resumed where there is a mark
            want = await plain.reply(0, prompt, keep=keep)
            assert (await poisoned.reply(0, prompt, keep=keep)).equals(want)


class _Writes:
    """The operator that writes rows, without its call number `left_out`."""

    def __init__(self, left_out: int) -> None:
        self._left = left_out
        self._write = page_write.page_write

    def page_write(self, pages: Any, slots: Any, values: Any) -> None:
        self._left -= 1
        if self._left != -1:
            self._write(pages, slots, values)


@pytest.mark.parametrize("rows", RowFormat)
@pytest.mark.parametrize("step", ["prompt", "window"])
async def test_a_latent_row_that_is_not_written_is_nan(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rows: RowFormat, step: str
) -> None:
    """The first call of a pass writes the first cache's latents; the reply fails by its token."""
    bench = Bench(folder, rows)
    bench.streams.begin(0, ids(3, 100), sizes=(64,))
    await bench.streams.step(fill=(0,))
    if step == "window":
        await bench.streams.fill(0)
    monkeypatch.setattr(latent, "page_write", _Writes(0))
    if step == "window":
        token = (await bench.streams.step(rows={0: 5}))[0]
    else:
        token = (await bench.streams.fill(0))[0]
    assert token == -1


@pytest.mark.parametrize("rows", RowFormat)
async def test_a_pooled_key_that_is_not_written_is_red(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rows: RowFormat
) -> None:
    """A score that is NaN is never chosen, so that the rows of that pool are missed."""
    want = await Bench(folder, rows).reply(0, ids(4, 300))
    bench = Bench(folder, rows)
    monkeypatch.setattr(latent, "page_write", _Writes(1))
    assert not (await bench.reply(0, ids(4, 300))).equals(want)


@pytest.mark.parametrize("lane", [0, 2])
async def test_a_lane_that_is_not_finite_fails_alone(folder: Path, lane: int) -> None:
    """Prompts beyond the dense limit, so that every row selects by scores: NaN among them is no
    reason for a rank to end."""
    prompts = {n: ids(90 + n, 150 + n) for n in range(3)}
    want, found = Bench(folder), Bench(folder)
    for bench in (want, found):
        for n, prompt in prompts.items():
            await bench.start(n, prompt, room=300)
    found.executor.states.kda[:, lane] = np.nan
    for _ in range(8):
        rows = dict.fromkeys(prompts, 7)
        good, bad = await want.streams.step(rows=rows), await found.streams.step(rows=rows)
        assert bad == good | {lane: -1}
    for n in prompts.keys() - {lane}:
        assert found.taken(n, 0, ()).equals(want.taken(n, 0, ()))
    found.streams.end(lane)
    prompt = ids(99, 200)
    assert (await found.reply(lane, prompt)).equals(await want.reply(5, prompt))
