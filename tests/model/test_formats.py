"""How far the narrow formats are from float32 on the built-in model, and what they cost in bytes.

The bounds are those of docs/numerics.md: mean differences of log-probabilities over 600 forced
tokens, behind prompts and token by token alike, without a trend.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from streamglm import nano
from streamglm.commands.check_streams import Store
from streamglm.commands.planning import planned, spec_of
from streamglm.config import Settings
from streamglm.kernels import pages
from streamglm.kernels.arguments import Array
from streamglm.model.spec import ModelSpec
from streamglm.pool.layout import RowFormat
from support.streams import Bench, ids
from support.tiny import ODD, Folder, TinyShape

FORCED = 600
BOUND = {RowFormat.BF16: 0.005, RowFormat.FP8: 0.02}
PROMPTS = {lane: 90 + 70 * lane for lane in range(3)}
"""Lanes and the lengths of their prompts."""

Tokens = dict[int, list[int]]
Shares = npt.NDArray[np.float64]


def log_shares(logits: Array) -> Shares:
    """Log-probabilities [rows, vocab]."""
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    found: Shares = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    return found


async def begun(rows: RowFormat) -> tuple[Bench, Tokens]:
    """A bench with the prompts of all lanes computed."""
    bench = Bench(nano.folder(), rows, pages=64, lanes=4)
    vocab = ModelSpec.from_folder(nano.folder()).vocab_size
    tokens = {}
    for lane, length in PROMPTS.items():
        tokens[lane] = [token * 7 % vocab for token in ids(lane, length)]
        await bench.start(lane, tokens[lane], room=FORCED + 4)
    return bench, tokens


async def written() -> Tokens:
    """What the model itself writes behind the prompts in float32: drawn, not greedy."""
    bench, tokens = await begun(RowFormat.FP32)
    draw = np.random.default_rng(3)
    for _ in range(FORCED):
        for lane, mine in tokens.items():
            shares = np.exp(log_shares(bench.ranks.logits[lane][len(mine) - 1]))
            mine.append(int(draw.choice(len(shares), p=shares / shares.sum())))
        await bench.streams.step(rows={lane: mine[-1] for lane, mine in tokens.items()})
    return tokens


def forced(bench: Bench, lane: int, tokens: list[int]) -> Shares:
    """Log-probabilities of the last FORCED tokens."""
    first = len(tokens) - FORCED
    rows = log_shares(bench.taken(lane, 0, ()).logits[first - 1 : -1])
    return rows[np.arange(FORCED), tokens[first:]]


async def decoded(rows: RowFormat, tokens: Tokens) -> Shares:
    """[lanes, FORCED] token by token."""
    bench, _ = await begun(rows)
    for place in range(-FORCED, 0):
        await bench.streams.step(rows={lane: mine[place] for lane, mine in tokens.items()})
    return np.stack([forced(bench, lane, mine) for lane, mine in tokens.items()])


async def filled(rows: RowFormat, tokens: Tokens) -> Shares:
    """[lanes, FORCED] as one prompt."""
    bench = Bench(nano.folder(), rows, pages=64, lanes=4)
    for lane, mine in tokens.items():
        await bench.start(lane, mine)
    return np.stack([forced(bench, lane, mine) for lane, mine in tokens.items()])


@pytest.mark.slow
async def test_distance_from_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown to see what it is for: a scale that one path leaves out passes the bound by far."""
    tokens = await written()
    want = await filled(RowFormat.FP32, tokens)
    assert np.abs(await decoded(RowFormat.FP32, tokens) - want).mean() < 1e-4
    for rows, bound in BOUND.items():
        for run in (filled, decoded):
            off = np.abs(await run(rows, tokens) - want)
            assert 0.0 < off.mean() < bound, f"{rows}, {run.__name__}: {off.mean():.3f}"
            first, _, last = np.split(off, 3, 1)
            assert last.mean() < 2.0 * first.mean() + 0.005, f"{rows}: a trend"
    monkeypatch.setattr(pages, "_scaled", lambda stored, scales: pages._VALUES.take(stored))
    unscaled = np.abs(await filled(RowFormat.FP8, tokens) - want)
    assert unscaled.mean() > 3.0 * BOUND[RowFormat.FP8]


@pytest.mark.parametrize("rows", RowFormat)
@pytest.mark.parametrize("shape", [TinyShape(), ODD], ids=["default", "odd"])
def test_what_is_allocated_is_what_the_layout_says(
    tiny: Folder, shape: TinyShape, rows: RowFormat
) -> None:
    bench = Bench(tiny(shape, 0), rows, pages=9, lanes=4, store=Store(slots=3))
    spec, held = bench.executor.spec, bench.executor.bytes
    numbers = spec.cache_shape(rows, value_itemsize=4, drafts=False)
    assert held.pool == 9 * numbers.page_bytes
    assert held.null == numbers.page_bytes
    assert held.lanes == 4 * numbers.fixed_bytes
    assert held.slots == 3 * numbers.slot_bytes
    assert (held.buffers, held.host) == (0, 0)


@pytest.mark.parametrize("drafts", [None, 0, 3], ids=["auto", "off", "three"])
@pytest.mark.parametrize("rows", RowFormat)
def test_a_plan_is_what_is_allocated(rows: RowFormat, drafts: int | None) -> None:
    """The start-up plan's sums against the memory that a rank takes by it: with drafts, the
    next-token layer's cache, verify windows, replay rows and hiddens."""
    spec = spec_of(Settings())
    settings = Settings(
        device="cpu", kv_cache=str(rows), context=1024, parallel=3, kv_share=5, drafts=drafts
    )
    plan = planned(spec, settings, 1 << 25)
    assert plan.refused is None
    bench = Bench(
        nano.folder(),
        rows,
        pages=plan.pages,
        lanes=plan.lanes,
        store=Store(plan.carved.slots),
        drafts=drafts != 0,
    )
    held = bench.executor.bytes
    assert plan.carved.slots == 5
    assert (held.pool, held.lanes, held.slots) == (
        plan.pool_bytes,
        plan.lane_bytes,
        plan.kept_bytes,
    )


def test_a_row_of_512_takes_516_bytes_in_fp8() -> None:
    """Scales stand behind the page's rows, at the same slots."""
    assert pages.page_bytes(512, 512, pages.FLOAT8) == 512 * 516
    assert RowFormat.FP8.latent_bytes(512) == 516
