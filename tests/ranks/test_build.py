"""A rank with the built-in model: the real load, the real executor, behind the same wire."""

from __future__ import annotations

import asyncio
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from streamglm import nano
from streamglm.core.keeping import PromptCache
from streamglm.core.service import EngineService
from streamglm.core.shape import EngineShape
from streamglm.drafts.replies import DraftLimits
from streamglm.errors import CheckpointError, SettingError, StartError
from streamglm.model.spec import ModelSpec
from streamglm.pool.layout import RowFormat
from streamglm.ranks import build
from streamglm.ranks.client import start_ranks
from streamglm.ranks.group import Limits
from streamglm.ranks.wire import Hello, RankSettings, SpecNumbers
from streamglm.request import FinishReason, Request, SamplingParams, Started
from support.house import assert_idle, read, serving

SPEC = ModelSpec.from_folder(nano.folder())
LIMITS = Limits(silence=60.0, step=60.0)
OF = EngineShape(
    page_rows=SPEC.rows.page,
    chunk_rows=SPEC.rows.chunk,
    kda_chunk=SPEC.rows.kda_chunk,
    window_rows=SPEC.rows.window,
    context=2048,
    lanes=4,
    pages=50,
    vocab_size=SPEC.vocab_size,
)


def settings_of(
    folder: Path,
    device: str = "cpu",
    chunk_rows: int = OF.chunk_rows,
    slots: int = 0,
    rows: RowFormat = RowFormat.FP32,
    drafts: bool = False,
) -> RankSettings:
    return RankSettings(
        model=str(folder),
        device=device,
        threads=1,
        pages=OF.pages,
        lanes=OF.lanes,
        slots=slots,
        rows=rows,
        kv_poison=True,
        spelled_ids=None,
        spec=SpecNumbers(
            page_rows=OF.page_rows,
            chunk_rows=chunk_rows,
            kda_chunk=OF.kda_chunk,
            window_rows=OF.window_rows,
            vocab_size=OF.vocab_size,
            layers=len(SPEC.layers),
            verify_rows=SPEC.rows.verify if drafts else 1,
        ),
        drafts=drafts,
    )


def requests(count: int) -> list[Request]:
    """Prompts of odd lengths, past a page, a chunk and the dense limit; greedy and drawn."""
    draw = random.Random(4)
    lengths = (1, 63, 65, 257, 430, 7)
    return [
        Request(
            id=str(i),
            prompt=tuple(draw.randrange(OF.vocab_size) for _ in range(lengths[i % len(lengths)])),
            max_tokens=6 + 3 * i,
            sampling=SamplingParams(temperature=float(i % 2), seed=i),
        )
        for i in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("drafts", [False, True])
async def test_replies_do_not_depend_on_neighbours_stops_or_pages(drafts: bool) -> None:
    """Poison and shuffled pages are on: a stray read would turn a reply into a failure."""
    ranks = await start_ranks(settings_of(nano.folder(), drafts=drafts), limits=LIMITS)
    limits = DraftLimits(SPEC.rows.window, SPEC.rows.verify, chain=True, fixed=3)
    try:
        report = ranks.reports[0]
        shape = SPEC.cache_shape(drafts=drafts)
        assert report.pool_bytes == OF.pages * shape.page_bytes
        assert report.lane_bytes == OF.lanes * shape.fixed_bytes
        assert report.weight_bytes > 1 << 20
        assert report.mtp == bool(SPEC.mtp_layers)
        async with serving(OF, ranks, drafts=limits if drafts else None) as engine:
            asked = requests(6)
            alone = [await read(engine.submit(one)) for one in asked]
            assert [end for _, end in alone] == [FinishReason.LENGTH] * 6
            strangers = [engine.submit(one) for one in requests(9)[6:]]
            replies = [engine.submit(one) for one in reversed(asked)]
            tasks = [asyncio.create_task(read(reply)) for reply in reversed(replies)]
            await anext(strangers[0])
            for stranger in strangers:
                stranger.stop()
            assert await asyncio.gather(*tasks) == alone
            await engine.rounds.idle.wait()
            assert engine.health().ok
            assert_idle(engine)
    finally:
        await ranks.close()


CACHES = {
    "shared": PromptCache(slots=4),
    "copied": PromptCache(budget=1 << 30),
    "host": PromptCache(slots=1, host=1 << 30),
}


async def replied(engine: EngineService, request: Request) -> tuple[int, object]:
    """Tokens that were cached, and the reply."""
    reply = engine.submit(request)
    started = await anext(reply)
    assert isinstance(started, Started)
    return started.cached_tokens, await read(reply)


@pytest.mark.slow
@pytest.mark.parametrize("rows", RowFormat)
@pytest.mark.parametrize("where", CACHES)
async def test_a_kept_prompt_gives_the_reply_of_a_fresh_one(where: str, rows: RowFormat) -> None:
    """Through a real rank: what was kept by the first request serves the second, after the pages
    and slots of ended requests were others'."""
    shape = SPEC.cache_shape(rows, value_itemsize=4, drafts=False)
    cache = replace(CACHES[where], state_bytes=shape.kept_bytes)
    settings = settings_of(nano.folder(), slots=cache.slots, rows=rows)
    ranks = await start_ranks(settings, limits=LIMITS)
    try:
        assert ranks.reports[0].pool_bytes == OF.pages * shape.page_bytes
        async with serving(OF, ranks, cache=cache) as engine:
            asked = [one for one in requests(6) if len(one.prompt) > OF.page_rows]
            fresh = [await replied(engine, one) for one in asked]
            again = [await replied(engine, one) for one in asked]
            marks = [(len(one.prompt) - 1) // OF.page_rows * OF.page_rows for one in asked]
            assert [cached for cached, _ in fresh] == [0, 0, 0]
            assert [cached for cached, _ in again] == marks
            assert [reply for _, reply in again] == [reply for _, reply in fresh]
            await engine.rounds.idle.wait()
            assert_idle(engine)
    finally:
        await ranks.close()


@pytest.mark.slow
async def test_a_start_that_the_loader_refuses_has_the_loaders_words(tmp_path: Path) -> None:
    shutil.copy(nano.folder() / "config.json", tmp_path)
    with pytest.raises(CheckpointError, match="safetensors"):
        await start_ranks(settings_of(tmp_path), limits=LIMITS)


@pytest.mark.slow
async def test_what_this_rank_cannot_be_is_refused() -> None:
    with pytest.raises(SettingError, match="'tpu'"):
        await start_ranks(settings_of(nano.folder(), device="tpu"), limits=LIMITS)
    with pytest.raises(StartError, match=r"chunk_rows is 256 at rank 0, 512 here"):
        await start_ranks(settings_of(nano.folder(), chunk_rows=512), limits=LIMITS)


def test_a_rank_takes_the_gpu_that_it_is_told_or_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Red where every rank takes the first."""
    taken: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: taken[-1])
    settings = settings_of(nano.folder(), device="cuda")
    assert build._memory(Hello(1, 3, settings, gpu=1)).device == torch.device("cuda", 1)
    with pytest.raises(SettingError, match=r"--ranks is 3: rank 2 takes GPU 2 .* finds 2 in this"):
        build._memory(Hello(2, 3, settings, gpu=2))
