"""`streamglm plan`: what fits, without a GPU and without weights.

Owns the command's own flags and its two faces, a table and JSON. The plan is `serve`'s. Exit
status 2 when the plan is refused.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from streamglm import config
from streamglm.commands.planning import planned, row_format, spec_of
from streamglm.config import Settings
from streamglm.pool.carve import GIB, gib
from streamglm.pool.plan import Plan
from streamglm.pool.startline import start_line, warnings

REFUSED = 2
"""Exit status of a plan that does not fit."""
SETTINGS = frozenset(
    {
        "layers",
        "device",
        "ranks",
        "context",
        "parallel",
        "prompt_cache_gib",
        "kv_pages",
        "kv_share",
        "kv_split",
        "kv_cache",
        "host_cache_gib",
        "pool_tokens",
        "drafts",
    }
)
"""The settings that a plan reads."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL, the room, the ranks, and the settings of `serve` that a plan reads."""
    config.add_arguments(parser, SETTINGS)
    parser.add_argument(
        "--room-gib",
        metavar="GIB",
        type=_positive,
        required=True,
        help="memory of a rank for lanes, pages and kept states: what weights and buffers leave",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan; 0, or 2 when it is refused. Raises `SettingError` and `CheckpointError`."""
    settings = config.resolve(vars(arguments))
    spec = spec_of(settings)
    room = int(arguments.room_gib * GIB)
    plan = planned(spec, settings, room, world=settings.ranks)
    host = int(settings.host_cache_gib * GIB)
    if arguments.json:
        print(json.dumps(as_json(plan, settings, host), indent=2))
    else:
        _show(plan, settings, host)
    return REFUSED if plan.refused else 0


def as_json(plan: Plan, settings: Settings, host_bytes: int = 0) -> dict[str, Any]:
    """The plan as the JSON object that is printed; bytes are whole bytes of one rank."""
    refused = plan.refused
    return {
        "model": settings.model,
        "ranks": plan.sizes.world,
        "kv_cache": str(row_format(settings)),
        "kv_pages": "auto" if plan.wants.paged else "off",
        "kv_split": plan.wants.split,
        "room_bytes": plan.room,
        "context": plan.wants.context,
        "lanes": plan.wants.lanes,
        "page_rows": plan.sizes.page_rows,
        "page_bytes": plan.page_bytes,
        "token_bytes": plan.page_bytes // plan.sizes.page_rows,
        "fixed_bytes": plan.sizes.fixed_bytes,
        "slot_bytes": plan.sizes.slot_bytes,
        "window_pages": plan.carved.window_pages,
        "windows": plan.windows,
        "pages": plan.pages,
        "pool_tokens": plan.pool_tokens,
        "pool_bytes": plan.pool_bytes,
        "lane_bytes": plan.lane_bytes,
        "cache_bytes": plan.carved.cache,
        "kept_bytes": plan.kept_bytes,
        "host_bytes": host_bytes,
        "taken_bytes": plan.taken,
        "slots": plan.carved.slots,
        "slots_asked": plan.wants.slots_asked,
        "classes": plan.classes,
        "class_pages": plan.class_pages,
        "line": None if refused else start_line(plan, host_bytes),
        "warnings": [] if refused else list(warnings(plan, host_bytes)),
        "refused": None
        if refused is None
        else {"name": refused.name, "message": refused.message, "remedy": refused.remedy},
    }


def _show(plan: Plan, settings: Settings, host: int) -> None:
    console = Console()
    if plan.refused is not None:
        refused = plan.refused
        console.print(f"[bold red]{refused.name}[/]: {refused.message}.\n{refused.remedy}")
        return
    table = Table(title=f"{settings.model}: one of {plan.sizes.world} ranks, {gib(plan.room)}")
    table.add_column("part")
    table.add_column("holds")
    table.add_column("bytes each", justify="right")
    table.add_column("GiB", justify="right")
    for row in _rows(plan, host):
        table.add_row(*row)
    console.print(table)
    for line in (start_line(plan, host), *warnings(plan, host)):
        console.print(line, soft_wrap=True, highlight=False)


def _rows(plan: Plan, host: int) -> list[tuple[str, str, str, str]]:
    sizes, wants, window = plan.sizes, plan.wants, plan.carved.window_pages
    kept = f"{plan.carved.slots} of {wants.slots_asked} slots" if wants.sharing else "copies"
    pages = f"{plan.pages:,} of {sizes.page_rows} rows"
    windows = f"{plan.windows:,} of {wants.context:,} tokens"
    rows = [
        ("pages", pages, f"{plan.page_bytes:,}", _gib(plan.pool_bytes)),
        ("full windows", windows, f"{window * plan.page_bytes:,}", ""),
        ("lanes", f"{wants.lanes}", f"{sizes.fixed_bytes:,}", _gib(plan.lane_bytes)),
        ("kept states", kept, f"{sizes.slot_bytes:,}", _gib(plan.kept_bytes)),
        ("free", "", "", _gib(plan.room - plan.taken)),
    ]
    if host:
        rows.append(("host cache", "copies", f"{sizes.slot_bytes:,}", _gib(host)))
    return rows


def _gib(size: int) -> str:
    return f"{size / GIB:,.2f}"


def _positive(raw: str) -> float:
    value = float(raw)
    if not 0.0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{raw} is not a number of GiB above 0")
    return value
