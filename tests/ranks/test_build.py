"""A rank with the built-in model: the real load, the real executor, behind the same wire."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from streamglm import nano
from streamglm.core.shape import EngineShape
from streamglm.errors import CheckpointError, SettingError, StartError
from streamglm.model.spec import ModelSpec
from streamglm.ranks.client import start_ranks
from streamglm.ranks.group import Limits
from streamglm.ranks.wire import RankSettings, SpecNumbers
from streamglm.request import FinishReason, Request, SamplingParams
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


def settings_of(folder: Path, device: str = "cpu", chunk_rows: int = OF.chunk_rows) -> RankSettings:
    return RankSettings(
        model=str(folder),
        device=device,
        threads=1,
        pages=OF.pages,
        lanes=OF.lanes,
        kv_poison=True,
        spelled_ids=None,
        spec=SpecNumbers(
            page_rows=OF.page_rows,
            chunk_rows=chunk_rows,
            kda_chunk=OF.kda_chunk,
            window_rows=OF.window_rows,
            vocab_size=OF.vocab_size,
            layers=len(SPEC.layers),
        ),
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
async def test_replies_do_not_depend_on_neighbours_stops_or_pages() -> None:
    """Poison and shuffled pages are on: a stray read would turn a reply into a failure."""
    ranks = await start_ranks(settings_of(nano.folder()), limits=LIMITS)
    try:
        report = ranks.reports[0]
        shape = SPEC.cache_shape()
        assert report.pool_bytes == (OF.pages + 1) * shape.page_bytes
        assert report.weight_bytes > 1 << 20
        assert report.mtp == bool(SPEC.mtp_layers)
        async with serving(OF, ranks) as engine:
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
