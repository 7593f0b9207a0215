"""The map of pages: every cell once, the right holder, and small whatever the pool's size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamglm.core.holders import FREE, KEPT, LANES, PageHolders


def unrolled(runs: list[int]) -> list[int]:
    return [
        holder for holder, count in zip(runs[::2], runs[1::2], strict=True) for _ in range(count)
    ]


def holders(
    pages: int, leases: dict[int, tuple[int, ...]], *kept: tuple[int, ...], classes: int = 1
) -> PageHolders:
    return PageHolders(pages, classes, leases, kept)


def test_leased_before_kept_and_the_lowest_lane_first() -> None:
    found = holders(8, {5: (2, 3), 1: (3, 4)}, (1, 2), (2, 6)).map(100)
    assert found.pages_per_cell == 1
    (one,) = found.classes
    assert unrolled(one.runs) == [FREE, KEPT, LANES + 5, LANES + 1, LANES + 1, FREE, KEPT, FREE]


def test_a_class_has_the_pages_that_are_its_own() -> None:
    """Page p is of class p mod classes."""
    found = holders(8, {0: (1, 3)}, (4,), classes=2).map(100)
    assert [unrolled(one.runs) for one in found.classes] == [
        [FREE, FREE, KEPT, FREE],
        [LANES, LANES, FREE, FREE],
    ]


def test_a_cell_of_several_pages_shows_who_has_the_most() -> None:
    """Four pages a cell: two of a lane beat one free and one kept; one against three free does not;
    a half is enough; the last cell is a small one."""
    (one,) = holders(13, {0: (0, 1, 4, 8, 9, 12)}, (2,)).map(4).classes
    assert unrolled(one.runs) == [LANES, FREE, LANES, LANES]


@given(
    pages=st.integers(1, 300),
    classes=st.sampled_from([1, 2, 3]),
    most=st.integers(1, 400),
    data=st.data(),
)
def test_cells_cover_each_class_once(
    pages: int, classes: int, most: int, data: st.DataObject
) -> None:
    total = pages * classes
    ids = st.lists(st.integers(0, total - 1), unique=True, max_size=40).map(tuple)
    found = holders(total, {3: data.draw(ids)}, data.draw(ids), classes=classes).map(most)
    each = found.pages_per_cell
    assert sum(sum(one.runs[1::2]) for one in found.classes) <= most + classes
    for one in found.classes:
        assert one.pages == pages
        assert sum(one.runs[1::2]) == -(-pages // each)
        assert all(a != b for a, b in zip(one.runs[::2], one.runs[2::2], strict=False))


def test_a_million_pages_in_tatters_are_a_small_map() -> None:
    leases = {lane: tuple(range(lane, 1_000_000, 61)) for lane in range(8)}
    (one,) = holders(1_000_000, leases).map(4096).classes
    assert len(one.runs) <= 2 * 4097
