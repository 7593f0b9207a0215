"""What `serve` hands to core and ranks is what the plan says."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import torch

from streamglm.commands.checkpoint import Checkpoint, read_checkpoint
from streamglm.commands.planning import beside_exchange, hold_to, planned, shape_of
from streamglm.commands.serve import (
    engine_shape,
    measure,
    prompt_cache,
    rank_settings,
)
from streamglm.config import Settings
from streamglm.errors import SettingError, StartError
from streamglm.kernels.pages import view
from streamglm.model.exchange import Exchange
from streamglm.model.peers import Alone
from streamglm.model.share import Share
from streamglm.model.split import Split
from streamglm.pool.carve import GIB
from streamglm.pool.layout import RowFormat
from streamglm.pool.plan import Plan
from streamglm.pool.region import Region
from streamglm.ranks.wire import Report, SpecNumbers

REPORT = Report(
    weight_bytes=1,
    pool_bytes=1,
    lane_bytes=1,
    slot_bytes=0,
    mtp=False,
    skipped_vision=0,
    exact_tiles=True,
    fingerprint="f",
    spec=SpecNumbers(64, 256, 64, 32, 512, 8),
)
SETTINGS = Settings(context=4096, parallel=4)


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return read_checkpoint(Settings())


def plan_of(checkpoint: Checkpoint, settings: Settings) -> Plan:
    on_cpu = replace(settings, device="cpu")
    return planned(checkpoint.spec, on_cpu, GIB)


@pytest.mark.parametrize(
    ("change", "slots", "copies", "host"),
    [
        ({}, 16, False, 0),
        ({"kv_share": 3, "host_cache_gib": 0.5}, 3, False, GIB // 2),
        ({"kv_share": 0}, 0, True, 0),
        ({"kv_pages": "off"}, 0, True, 0),
        ({"prompt_cache_gib": 0.0}, 0, False, 0),
    ],
    ids=["default", "slots-and-host", "copies", "windows", "none"],
)
def test_kept_states_go_where_the_plan_has_made_room(
    checkpoint: Checkpoint, change: dict[str, object], slots: int, copies: bool, host: int
) -> None:
    settings = replace(SETTINGS, **change)  # type: ignore[arg-type]
    sized = plan_of(checkpoint, settings)
    cache = prompt_cache(settings, checkpoint, sized, [REPORT])
    assert (cache.slots, cache.budget > 0, cache.host) == (slots, copies, host)
    assert cache.slots * sized.sizes.slot_bytes + cache.budget == sized.kept_bytes
    assert rank_settings(settings, checkpoint, sized).slots == slots
    on_cpu = replace(settings, device="cpu")
    shape = shape_of(checkpoint.spec, on_cpu)
    assert cache.state_bytes(64) - cache.state_bytes(0) == 64 * shape.token_bytes
    assert cache.state_bytes(0) == sized.sizes.slot_bytes


def test_lanes_lease_windows_exactly_without_pages(checkpoint: Checkpoint) -> None:
    for kind, paged in (("auto", True), ("off", False)):
        settings = replace(SETTINGS, kv_pages=kind)
        sized = plan_of(checkpoint, settings)
        shape = engine_shape(checkpoint, sized)
        assert (shape.paged, shape.slack) == (paged, 16 if paged else 0)
        assert shape.window_pages == sized.carved.window_pages
        assert len(shape.turn_ids) == 1


@pytest.mark.parametrize("world", [2, 3])
def test_the_split_reaches_ranks_admission_and_what_copies_are_charged(
    checkpoint: Checkpoint, world: int
) -> None:
    settings = replace(SETTINGS, ranks=world, kv_split=True, kv_share=0)
    sized = planned(checkpoint.spec, replace(settings, device="cpu"), GIB, world=world)
    assert rank_settings(settings, checkpoint, sized).kv_split
    shape = engine_shape(checkpoint, sized)
    assert (shape.pages, shape.classes) == (sized.pages, world)
    assert shape.most_pages * world == sized.funded
    cache = prompt_cache(settings, checkpoint, sized, [REPORT])
    held = shape_of(checkpoint.spec, replace(settings, device="cpu"), world=world)
    assert cache.away_bytes is not None
    assert cache.away_bytes(0) == cache.state_bytes(0)
    rows = cache.state_bytes(64) - cache.away_bytes(64)
    assert rows == 64 * held.latent_token_bytes


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_room_of_an_exchange_is_left_alone(
    checkpoint: Checkpoint, world: int, dtype: torch.dtype
) -> None:
    """As much as a rank allocates for it, and at most two pages of one cache more."""
    spec = checkpoint.spec
    settings = replace(SETTINGS, ranks=world, kv_split=True)
    taken = GIB - beside_exchange(spec, settings, GIB)
    page = spec.rows.page * spec.kv_lora_rank
    memory = torch.zeros(2, page * dtype.itemsize, dtype=torch.uint8)
    latents = view(memory, spec.rows.page, spec.kv_lora_rank, dtype)
    split = Split.of(Share(spec, world=world), Region(3 * world, world=world))
    held = Exchange(split, Alone(), latents).bytes
    assert held <= taken <= held + 2 * page * 4
    assert measure(settings, checkpoint, GIB).room == GIB - taken
    for without in ({"kv_split": False}, {"ranks": 1}):
        assert beside_exchange(spec, replace(settings, **without), GIB) == GIB


@pytest.mark.parametrize(
    ("change", "name", "remedy"),
    [
        ({}, "SplitNeedsRanks", {"kv_split": False}),
        ({"ranks": 2, "kv_pages": "off"}, "SplitWithoutPages", {"kv_pages": "auto"}),
        ({"ranks": 2, "kv_cache": "fp8"}, "SplitWithFp8", {"kv_split": False}),
    ],
)
def test_a_start_that_cannot_split_says_so_by_name_and_its_remedy_starts(
    checkpoint: Checkpoint, change: dict[str, object], name: str, remedy: dict[str, object]
) -> None:
    settings = replace(SETTINGS, kv_split=True, **change)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=f"^{name}: ") as caught:
        measure(settings, checkpoint, GIB)
    ((flag, value),) = remedy.items()
    text = value if isinstance(value, str) else "off"
    assert f"`--{flag.replace('_', '-')} {text}`" in str(caught.value)
    measure(replace(settings, **remedy), checkpoint, GIB)  # type: ignore[arg-type]


def test_the_row_format_reaches_ranks_and_identity(checkpoint: Checkpoint) -> None:
    keys = set()
    for kind, rows in (("auto", RowFormat.FP32), ("fp8", RowFormat.FP8), ("bf16", RowFormat.BF16)):
        settings = replace(SETTINGS, kv_cache=kind)
        sized = plan_of(checkpoint, settings)
        assert rank_settings(settings, checkpoint, sized).rows == rows
        keys.add(prompt_cache(settings, checkpoint, sized, [REPORT]).identity.key())
    assert len(keys) == 3


def test_the_wait_for_a_prefix_is_a_setting(checkpoint: Checkpoint) -> None:
    settings = replace(SETTINGS, prefix_wait_seconds=0.0)
    sized = plan_of(checkpoint, settings)
    assert prompt_cache(settings, checkpoint, sized, [REPORT]).wait_seconds == 0.0


def test_a_rank_that_allocated_other_bytes_than_planned_is_refused(checkpoint: Checkpoint) -> None:
    """To the byte, and each of the three parts by its name."""
    sized = plan_of(checkpoint, SETTINGS)
    held = msgspec.structs.replace(
        REPORT,
        pool_bytes=sized.pool_bytes,
        lane_bytes=sized.lane_bytes,
        slot_bytes=sized.kept_bytes,
    )
    hold_to(sized, [held, held])
    for name in ("pool_bytes", "lane_bytes", "slot_bytes"):
        value = getattr(held, name) + 1
        other = msgspec.structs.replace(held, **{name: value})
        with pytest.raises(StartError, match=rf"rank 1 holds {value:,} bytes"):
            hold_to(sized, [held, other])
