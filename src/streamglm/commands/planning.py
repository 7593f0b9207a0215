"""From settings to the start-up plan: what `serve` allocates by and `plan` prints.

Owns the translation of settings into the plan's inputs, so that both commands ask for the same,
and the comparison of a plan with what ranks allocated. Knows no machine: the room is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from streamglm import nano
from streamglm.commands.checkpoint import as_it_lies
from streamglm.config import Settings
from streamglm.errors import CheckpointError, StartError
from streamglm.model.shapes import GLM_5_3_FLASH, RANDOM, random_spec
from streamglm.model.share import Share
from streamglm.model.spec import ModelSpec
from streamglm.model.split import Split
from streamglm.pool.carve import CACHE_DEFAULT, CACHE_DEFAULT_HOST, GIB, Sizes, Wants
from streamglm.pool.layout import CacheShape, RowFormat
from streamglm.pool.plan import LANES_AUTO, Plan, plan
from streamglm.pool.region import Region
from streamglm.ranks.wire import Report
from streamglm.weights.headers import INDEX, SINGLE, catalogue
from streamglm.weights.layout import TEXT


def spec_of(settings: Settings) -> ModelSpec:
    """The spec behind the argument MODEL: a checkpoint folder, `nano`, or random shapes.

    A checkpoint without the next-token layer's tensors is served without it. Raises
    `CheckpointError` and `SettingError`.
    """
    model = settings.model
    if model.startswith(RANDOM):
        return random_spec(model, settings.layers)
    as_it_lies(settings)
    folder = nano.folder() if model == "nano" else Path(model)
    if not folder.is_dir():
        raise CheckpointError(
            f"{model}: no such folder; MODEL is a folder, nano or {GLM_5_3_FLASH}"
        )
    spec = ModelSpec.from_folder(folder)
    weights = any((folder / name).is_file() for name in (SINGLE, INDEX))
    if weights and not _has_mtp(spec, folder):
        return replace(spec, mtp_layers=0)
    return spec


def _has_mtp(spec: ModelSpec, folder: Path) -> bool:
    prefix = f"{TEXT}layers.{len(spec.layers)}."
    return any(name.startswith(prefix) for name in catalogue(folder).tensors)


def row_format(settings: Settings) -> RowFormat:
    """`kv_cache`, with auto settled by the device."""
    if settings.kv_cache == "auto":
        return RowFormat.FP32 if settings.device == "cpu" else RowFormat.BF16
    return RowFormat(settings.kv_cache)


def shape_of(spec: ModelSpec, settings: Settings, *, world: int = 1) -> CacheShape:
    """One rank's caches. The CPU computes in float32, whatever the pages hold."""
    itemsize = 4 if settings.device == "cpu" else None
    return spec.cache_shape(
        row_format(settings), world=world, value_itemsize=itemsize, drafts=settings.drafts != 0
    )


def sizes_of(spec: ModelSpec, shape: CacheShape, world: int) -> Sizes:
    """One rank's bytes, of `world` ranks."""
    heads = min(spec.heads, spec.kda_heads)
    return Sizes.of(shape, world=world, heads=heads, max_context=spec.max_positions)


def wants_of(spec: ModelSpec, settings: Settings) -> Wants:
    """What the settings ask for; an auto starts at its most."""
    cache = settings.prompt_cache_gib
    return Wants(
        context=spec.max_positions if settings.context is None else settings.context,
        lanes=LANES_AUTO if settings.parallel is None else settings.parallel,
        cache=None if cache is None else int(cache * GIB),
        cache_most=CACHE_DEFAULT_HOST if settings.device == "cpu" else CACHE_DEFAULT,
        share=settings.kv_share,
        paged=settings.kv_pages == "auto",
        split=settings.kv_split,
        pool_tokens=settings.pool_tokens,
    )


def planned(spec: ModelSpec, settings: Settings, room: int, *, world: int = 1) -> Plan:
    """The plan of `world` ranks of which the poorest has `room` bytes."""
    return plan(
        room,
        sizes_of(spec, shape_of(spec, settings, world=world), world),
        wants_of(spec, settings),
        auto_context=settings.context is None,
        auto_lanes=settings.parallel is None,
    )


def beside_exchange(spec: ModelSpec, settings: Settings, room: int) -> int:
    """What of a rank's `room` bytes is left beside the memory in which ranks exchange rows of the
    latent split; it is made first, and a history in it has at most two pages more."""
    if not settings.kv_split or settings.ranks < 2:
        return room
    world = settings.ranks
    exchange = Split.of(Share(spec, world=world), Region(world, world=world)).room
    return max(0, room - exchange.bytes - 2 * spec.rows.page * exchange.row_bytes)


def hold_to(plan: Plan, reports: Sequence[Report]) -> None:
    """Every rank has allocated what the plan says, to the byte: where heads do not divide evenly, a
    rank with fewer of them has blank ones besides. Raises `StartError`."""
    slots = plan.kept_bytes if plan.wants.sharing else 0
    for rank, report in enumerate(reports):
        for name, planned_bytes, held in (
            ("the pool", plan.pool_bytes, report.pool_bytes),
            ("lanes", plan.lane_bytes, report.lane_bytes),
            ("slots of kept states", slots, report.slot_bytes),
        ):
            if planned_bytes != held:
                raise StartError(
                    f"rank {rank} holds {held:,} bytes for {name}, and the plan says "
                    f"{planned_bytes:,}: plan and allocation must agree"
                )
