"""The cuts between ranks, as numbers: parts that join to the whole, and what all have alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamglm.errors import SettingError
from streamglm.model.shapes import glm_5_3_flash
from streamglm.model.share import Share, Span, block, check, share
from streamglm.weights.layout import layout

REAL = glm_5_3_flash()


def sizes(inner: int, world: int) -> list[int]:
    return [Share(REAL, rank, world).columns(inner).size for rank in range(world)]


@pytest.mark.parametrize(
    ("total", "world", "parts"),
    [(64, 3, [22, 21, 21]), (7, 3, [3, 2, 2]), (64, 8, [8] * 8), (2, 3, [1, 1, 0])],
)
def test_first_ranks_take_what_is_left_over(total: int, world: int, parts: list[int]) -> None:
    spans = [share(total, rank, world) for rank in range(world)]
    assert [span.size for span in spans] == parts
    assert spans[0].start == 0
    assert [span.stop for span in spans] == [*[span.start for span in spans[1:]], total]


@pytest.mark.parametrize(
    ("inner", "world", "parts"),
    [
        (2048, 3, [768, 640, 640]),
        (12_288, 3, [4096, 4096, 4096]),
        (2048, 4, [512] * 4),
        (96, 3, [32, 32, 32]),
        (40, 3, [16, 16, 8]),
        (7, 3, [3, 2, 2]),
    ],
)
def test_columns_are_cut_in_blocks(inner: int, world: int, parts: list[int]) -> None:
    assert sizes(inner, world) == parts


@pytest.mark.parametrize("world", range(1, 9))
@pytest.mark.parametrize("inner", [8, 24, 40, 56, 2048, 12_288, 12_288 + 64, 997])
def test_blocks_join_to_the_whole_and_nobody_goes_without(inner: int, world: int) -> None:
    spans = [Share(REAL, rank, world).columns(inner) for rank in range(world)]
    assert [span.stop for span in spans] == [*[span.start for span in spans[1:]], inner]
    assert all(span.start % block(inner, world) == 0 for span in spans)
    assert min(span.size for span in spans) > 0
    assert {Share(REAL, rank, world).most_columns(inner) for rank in range(world)} == {
        max(span.size for span in spans)
    }


def test_what_every_rank_holds_is_the_largest_share() -> None:
    for rank, own in enumerate((22, 21, 21)):
        mine = Share(REAL, rank, 3)
        assert (mine.heads.size, mine.kda_heads.size) == (own, own)
        assert (mine.held.heads, mine.held.kda_heads) == (22, 22)
        assert mine.held.cache_shape() == REAL.cache_shape(world=3)
    assert Share(REAL, 2, 3).heads == Span(43, 64)
    assert Share(REAL).held == REAL


def test_more_ranks_than_there_is_to_share_are_refused() -> None:
    check(REAL, 64)
    with pytest.raises(SettingError, match=r"--ranks is 65, .* 64 attention heads .* --ranks 64"):
        check(REAL, 65)
    narrow = replace(REAL, moe_intermediate_size=5)
    with pytest.raises(SettingError, match="5 columns of an expert"):
        layout(narrow, rank=5, world=6)


def test_rows_of_the_vocabulary() -> None:
    assert Share(REAL, 1, 3).vocabulary == (51_627, 51_627, 51_626)
    assert Share(REAL).vocabulary == (REAL.vocab_size,)
