"""How many lanes and pages a server starts with, and what it refuses.

Owns the start-up arithmetic in bytes and tokens. Pure: the caller says what memory there is.
Weights come first, then the lanes' fixed parts, then pages: a window of pages a lane, or as many
as the rest holds. Every refusal names the setting, need and room, and a value that works.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamglm.errors import SettingError
from streamglm.pool.layout import CacheShape, window_pages

AUTO_LANES = 16
"""Lanes when `--parallel` is auto: one tile of rows, which a window pass computes anyway."""

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Size:
    """What a rank allocates. `context` in tokens."""

    context: int
    lanes: int
    pages: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What the settings ask for; None is auto or unset. Tokens, and lanes."""

    context: int | None
    parallel: int | None
    pool_tokens: int | None


def size(shape: CacheShape, max_positions: int, room: int, asked: Asked) -> Size:
    """Lanes, window and pages for `room` bytes left beside the weights.

    Raises `SettingError` when what is asked cannot be had.
    """
    context = asked.context or max_positions
    if context > max_positions:
        raise SettingError(
            f"--context is {context}, but the model's own window is {max_positions} tokens; "
            f"--context {max_positions} works"
        )
    lanes = asked.parallel or AUTO_LANES
    left = room - lanes * shape.fixed_bytes
    held = left // shape.page_bytes
    if held < 1:
        raise SettingError(
            f"--parallel {lanes} needs {lanes * shape.fixed_bytes + shape.page_bytes} bytes of "
            f"memory for lanes and one page, and {room} are left; {_lanes_that_fit(shape, room)}"
        )
    wanted = lanes * window_pages(context, shape.page_rows)
    if asked.pool_tokens is None:
        return Size(context, lanes, min(wanted, held))
    pages = asked.pool_tokens // shape.page_rows
    if pages < 1:
        raise SettingError(
            f"--pool-tokens is {asked.pool_tokens}, and a page holds {shape.page_rows} tokens; "
            f"--pool-tokens {shape.page_rows} works"
        )
    if pages > held:
        raise SettingError(
            f"--pool-tokens {asked.pool_tokens} needs {pages * shape.page_bytes} bytes of memory "
            f"({pages * shape.page_bytes / GIB:.2f} GiB), and {left} ({left / GIB:.2f} GiB) are "
            f"left; --pool-tokens {held * shape.page_rows} works"
        )
    return Size(context, lanes, min(pages, wanted))


def _lanes_that_fit(shape: CacheShape, room: int) -> str:
    lanes = (room - shape.page_bytes) // shape.fixed_bytes
    return f"--parallel {lanes} works" if lanes >= 1 else "no number of lanes fits"
