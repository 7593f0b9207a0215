"""What `/v1/pool?cells=N` adds: a map of the pages, and the figures that stand beside it.

Owns the parameter and the two objects. Knows no book: the engine hands out a snapshot, and the
drawing of it is done in a worker thread, since a pool may have a million pages.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import anyio.to_thread
from starlette.requests import Request

from streamglm.core.engine import Engine
from streamglm.edge.fields import clip
from streamglm.errors import InvalidRequest

MOST_CELLS = 4096


def cells_of(request: Request) -> int | None:
    """How many cells are asked for. Raises `InvalidRequest`."""
    raw = request.query_params.get("cells")
    if raw is None:
        return None
    if not (raw.isascii() and raw.isdecimal() and len(raw) < 9 and 1 <= int(raw) <= MOST_CELLS):
        raise InvalidRequest(
            f"`cells` is {clip(raw)}; it may be 1 to {MOST_CELLS:,}.", param="cells"
        )
    return int(raw)


async def map_of(engine: Engine, cells: int) -> dict[str, Any]:
    """The pages in about `cells` cells."""
    return asdict(await anyio.to_thread.run_sync(engine.holders().map, cells))


def now_of(engine: Engine) -> dict[str, Any]:
    """Requests at this moment, and totals that a rate can be taken of."""
    stats = engine.stats()
    return {
        "lanes": stats.lanes,
        "running": stats.running,
        "waiting": dict(stats.waiting),
        "prompt_tokens": stats.prompt_tokens_total,
        "generated_tokens": stats.generated_tokens_total,
    }
