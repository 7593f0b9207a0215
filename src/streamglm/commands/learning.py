"""From settings to a disk tier: whose states the folder holds, and how large they are.

Owns the identity of what is learned, and the refusals of settings that cannot work together. Knows
no requests.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from hashlib import blake2b
from pathlib import Path

import msgspec

from streamglm.clock import Clock
from streamglm.config import Settings
from streamglm.disk.limits import Limits
from streamglm.disk.opening import open_index
from streamglm.disk.store import Store
from streamglm.disk.tier import DiskTier
from streamglm.errors import DiskError, SettingError
from streamglm.model.spec import ModelSpec
from streamglm.pool.carve import GIB
from streamglm.pool.identity import Identity
from streamglm.pool.layout import CacheShape, RowFormat
from streamglm.ranks.client import RankClient
from streamglm.ranks.courier import RankCourier
from streamglm.ranks.wire import Report

TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""What turns messages into token ids."""
FORMAT = 1
"""Of the records: `docs/disk-format.md`."""


def identity_of(
    spec: ModelSpec, folder: Path, rows: RowFormat, reports: Sequence[Report]
) -> Identity:
    """What kept states have in common, those on the disk included."""
    parts = {
        "format": str(FORMAT),
        "layout": " ; ".join(report.layout for report in reports),
        "numerics": " ; ".join(dict.fromkeys(report.numerics for report in reports)),
        "spec": _digest(msgspec.json.encode(repr(astuple(spec)))),
        "tokenizer": _digest(*(_bytes(folder / name) for name in TEXT_FILES[:2])),
        "chat template": _digest(_bytes(folder / TEXT_FILES[2])),
        "world": str(len(reports)),
    }
    return Identity(
        fingerprints=tuple(report.fingerprint for report in reports),
        rows=rows,
        page_rows=spec.rows.page,
        parts=tuple(sorted(parts.items())),
    )


def refuse(settings: Settings, *, keeps: bool) -> None:
    """Raise `SettingError` for settings with which nothing could be learned."""
    if settings.learn_conversations is None:
        return
    if not settings.learn_gib:
        raise SettingError("--learn-gib is 0, and conversations need room; leave it out for 32")
    if not keeps:
        raise SettingError(
            "--learn-conversations writes prompt states that are kept in memory, and none is kept: "
            "--prompt-cache-gib is too small or 0; leave it out, or name 1"
        )


@contextlib.contextmanager
def folder_of(settings: Settings) -> Iterator[Store | None]:
    """The folder that the settings name, locked, until the block is left. Raises `StartError`."""
    if settings.learn_conversations is None:
        yield None
        return
    try:
        store = Store(Path(settings.learn_conversations))
    except DiskError as error:
        raise SettingError(f"--learn-conversations: {error.message}") from None
    try:
        yield store
    finally:
        store.close()


def tier_of(
    settings: Settings,
    store: Store,
    identity: Identity,
    shape: CacheShape,
    ranks: RankClient,
    clock: Clock,
) -> DiskTier:
    """The tier over a locked folder. Raises `StartError`."""
    world = len(ranks.reports)
    limits = Limits(int(settings.learn_gib * GIB), shape.page_bytes, shape.slot_bytes)
    try:
        index = open_index(store, identity.key(), world, identity.named(), limits)
    except DiskError as error:
        raise SettingError(error.message) from None
    courier = RankCourier(ranks)
    courier.learn(store.folder.resolve(), store.temporary.resolve(), identity.key())
    tier = DiskTier(store, index, courier, limits, world=world, clock=clock, moment=time.time)
    courier.bring_to(tier)
    return tier


def _digest(*parts: bytes) -> str:
    digest = blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
