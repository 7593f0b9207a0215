"""Bytes of the real shape, against the published figures and against sums made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamglm.model.shapes import glm_5_3_flash
from streamglm.pool.layout import (
    CacheShape,
    RowFormat,
    head_share,
    lease_pages,
    window_pages,
)
from support.plans import real

MIB = 1 << 20
SLACK = 16


def shape(rows: RowFormat = RowFormat.BF16, world: int = 1) -> CacheShape:
    return glm_5_3_flash().cache_shape(rows, world=world)


@pytest.mark.parametrize(
    ("rows", "token"),
    [(RowFormat.BF16, 13_056), (RowFormat.FP8, 6_960), (RowFormat.FP32, 26_112)],
)
def test_a_token_takes_latent_rows_and_pooled_keys_of_twelve_caches(
    rows: RowFormat, token: int
) -> None:
    assert shape(rows).token_bytes == token


def test_an_fp8_row_is_512_values_and_one_scale() -> None:
    assert RowFormat.FP8.latent_bytes(512) == 516


def test_a_page_is_six_and_three_eighths_mib() -> None:
    assert shape().page_bytes == 6_684_672 == 6.375 * MIB


@pytest.mark.parametrize(
    ("world", "mib", "token"),
    [
        (1, 6.375, 13_056),
        (2, 3.375, 6_912),
        (3, 2.375, 4_864),
        (4, 1.875, 3_840),
        (8, 1.125, 2_304),
    ],
)
def test_the_split_divides_latent_rows_and_not_pooled_keys(
    world: int, mib: float, token: int
) -> None:
    page = real(world).split_page_bytes
    assert page == mib * MIB
    assert page == 512 * token


def test_a_split_that_does_not_divide_a_page_rounds_up() -> None:
    latent = 512 * 12_288
    assert latent % 5
    assert real(5).split_page_bytes == 512 * 768 + latent // 5 + 1


@pytest.mark.parametrize("world", [2, 3, 5, 7])
def test_a_split_pool_is_its_pooled_keys_and_the_latent_rows_of_a_class(world: int) -> None:
    """Fails where the pool is as many pages of rounded bytes, which no rank allocates."""
    for each in (1, 2_049):
        pages = each * world
        held = pages * 512 * 768 + each * 512 * 12_288
        assert real(world).pool_bytes(pages, split=True) == held
        assert 0 <= pages * real(world).split_page_bytes - held < pages


@pytest.mark.parametrize(("world", "heads"), [(1, 64), (2, 32), (3, 22), (5, 13), (64, 1)])
def test_the_largest_share_of_heads_counts(world: int, heads: int) -> None:
    """Fails when a share is rounded down: the first rank would allocate more than was planned."""
    assert head_share(64, world) == heads
    assert shape(world=world).kda_heads == heads


@pytest.mark.parametrize(("world", "mib"), [(1, 136.0), (2, 68.0), (3, 46.75)])
def test_the_kda_state_is_one_float32_copy(world: int, mib: float) -> None:
    assert shape(world=world).kda_state_bytes == mib * MIB


@pytest.mark.parametrize(("world", "width"), [(1, 24_896), (2, 12_576), (3, 8_726)])
def test_a_replay_row_is_every_projection_of_a_kda_layer(world: int, width: int) -> None:
    assert shape(world=world).replay_bytes == 34 * 16 * width * 2


def test_the_fixed_part_of_a_lane_by_hand() -> None:
    state = 34 * 64 * 128 * 128 * 4
    conv = 34 * 3 * 3 * 64 * 128 * 2
    hidden = 4096 * 2
    tails = 12 * (3 + 16) * (128 + 128) * 2
    replay = 34 * 16 * 24_896 * 2
    owed = 16 * hidden
    assert shape().slot_bytes == state + conv + hidden
    assert shape().fixed_bytes == state + conv + hidden + tails + replay + owed


def test_a_kept_state_follows_its_position_with_the_slope_of_a_token() -> None:
    """Fails when a whole window is charged, or the fixed part of a live lane."""
    one = shape()
    assert one.kept_bytes(0) == one.slot_bytes < one.fixed_bytes
    for at in (512, 1_024, 100_352, 1_048_576):
        assert one.kept_bytes(at) - one.kept_bytes(0) == at * 13_056
        assert one.kept_bytes(at) == one.slot_bytes + at // 512 * one.page_bytes


def test_without_a_next_token_layer_there_are_eleven_caches_and_no_pending_hidden() -> None:
    bare = replace(glm_5_3_flash(), mtp_layers=0).cache_shape(RowFormat.BF16)
    assert bare.token_bytes == 13_056 * 11 // 12
    assert bare.hidden_bytes == 0
    assert bare.slot_bytes == shape().slot_bytes - 8_192


def test_activations_may_be_wider_than_the_pages_values() -> None:
    """On the CPU rows may be fp8 while everything that is computed is float32."""
    wide = glm_5_3_flash().cache_shape(RowFormat.FP8, value_itemsize=4)
    assert wide.token_bytes == 6_960
    assert wide.conv_bytes == 2 * shape().conv_bytes
    assert wide.replay_bytes == 2 * shape().replay_bytes


def test_without_drafts_there_is_no_verify_window_and_no_cache_to_draft_with() -> None:
    plain = glm_5_3_flash().cache_shape(RowFormat.BF16, drafts=False)
    assert plain.replay_bytes == plain.hidden_bytes == plain.verify_rows == 0
    assert plain.tail_bytes == 11 * 3 * 256 * 2
    assert plain.slot_bytes == plain.kda_state_bytes + plain.conv_bytes
    assert plain.token_bytes == 13_056 * 11 // 12


@pytest.mark.parametrize(("context", "pages"), [(131_072, 257), (262_144, 513), (1_048_576, 2_049)])
def test_a_window_is_one_page_more_than_its_context(context: int, pages: int) -> None:
    assert window_pages(context, 512, SLACK) == pages
    assert window_pages(context, 512) == pages - 1


@pytest.mark.parametrize(
    ("prompt", "reply", "pages"),
    [(1_500, 0, 3), (9_000, 0, 18), (9_000, 2_048, 22), (496, 0, 1), (497, 0, 2), (1, 1, 1)],
)
def test_a_lease_holds_prompt_reply_and_a_verify_window(
    prompt: int, reply: int, pages: int
) -> None:
    """Fails without the slack (497 rows would be one page) and with a slack of 64."""
    assert lease_pages(prompt, reply, 131_072, 512, SLACK) == pages


def test_a_lease_is_never_more_than_the_window() -> None:
    assert lease_pages(131_072, 4_096, 131_072, 512, SLACK) == 257
    assert lease_pages(131_000, 72, 131_072, 512, SLACK) == 257
