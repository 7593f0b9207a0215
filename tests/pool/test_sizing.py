"""Start-up sizes: what fits, and refusals whose remedy is shown to work."""

from __future__ import annotations

import re

import pytest

from streamglm.errors import SettingError
from streamglm.pool.layout import CacheShape
from streamglm.pool.sizing import AUTO_LANES, Asked, size

SHAPE = CacheShape(
    caches=3,
    latent_dim=64,
    index_dim=32,
    pool=4,
    page_rows=64,
    kda_layers=6,
    kda_heads=8,
    kda_head_dim=32,
    conv_width=4,
    row_itemsize=4,
)
NOTHING = Asked(None, None, None)


def remedy(message: str, flag: str) -> int:
    """The value that a refusal says works."""
    found = re.search(rf"{flag} (\d+) works", message)
    assert found, message
    return int(found.group(1))


def test_plenty_of_room_gives_every_lane_a_window() -> None:
    sized = size(SHAPE, 1000, 1 << 32, NOTHING)
    assert (sized.context, sized.lanes, sized.pages) == (1000, AUTO_LANES, AUTO_LANES * 16)


def test_little_room_gives_the_pages_that_fit_and_no_more() -> None:
    room = 4 * SHAPE.fixed_bytes + 10 * SHAPE.page_bytes + SHAPE.page_bytes // 2
    assert size(SHAPE, 1000, room, Asked(None, 4, None)).pages == 10


def test_a_pool_past_the_memory_names_the_largest_that_works() -> None:
    room = 4 * SHAPE.fixed_bytes + 10 * SHAPE.page_bytes
    with pytest.raises(SettingError, match="--pool-tokens 704 needs") as caught:
        size(SHAPE, 1000, room, Asked(None, 4, 704))
    works = remedy(caught.value.message, "--pool-tokens")
    assert size(SHAPE, 1000, room, Asked(None, 4, works)).pages == 10


def test_a_pool_below_a_page_names_one_that_works() -> None:
    with pytest.raises(SettingError) as caught:
        size(SHAPE, 1000, 1 << 32, Asked(None, 4, 63))
    works = remedy(caught.value.message, "--pool-tokens")
    assert size(SHAPE, 1000, 1 << 32, Asked(None, 4, works)).pages == 1


def test_a_window_past_the_models_own_names_the_largest() -> None:
    with pytest.raises(SettingError) as caught:
        size(SHAPE, 1000, 1 << 32, Asked(1001, None, None))
    works = remedy(caught.value.message, "--context")
    assert size(SHAPE, 1000, 1 << 32, Asked(works, None, None)).context == works


def test_lanes_that_do_not_fit_name_the_number_that_does() -> None:
    room = 5 * SHAPE.fixed_bytes + SHAPE.page_bytes
    with pytest.raises(SettingError) as caught:
        size(SHAPE, 1000, room, Asked(None, 9, None))
    works = remedy(caught.value.message, "--parallel")
    assert size(SHAPE, 1000, room, Asked(None, works, None)).lanes == works
    with pytest.raises(SettingError):
        size(SHAPE, 1000, room, Asked(None, works + 1, None))
