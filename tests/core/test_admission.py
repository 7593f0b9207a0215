"""The arithmetic of a lease, the order of the queue, and refusals with their numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamglm.core.admission import Verdict, Wait, admit, need_pages, refuse
from streamglm.errors import PoolTooSmall, SettingError
from support.fakes import shape
from support.house import request


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "pages"),
    [(1, 1, 1), (7, 1, 1), (8, 1, 2), (1, 7, 1), (1, 8, 2), (249, 7, 32), (30, 90, 15)],
)
def test_a_lease_holds_prompt_and_whole_reply(prompt: int, max_tokens: int, pages: int) -> None:
    assert need_pages(shape(), request(prompt, max_tokens)) == pages


@pytest.mark.parametrize(
    ("needs", "lanes", "pages", "verdict"),
    [
        ([], 0, 0, Verdict(0, None)),
        ([3], 1, 3, Verdict(1, None)),
        ([3], 0, 9, Verdict(0, Wait.LANES)),
        ([3], 1, 2, Verdict(0, Wait.PAGES)),
        ([3], 0, 0, Verdict(0, Wait.LANES)),
        ([3, 3, 1], 9, 5, Verdict(1, Wait.PAGES)),
        ([1, 1, 1], 2, 9, Verdict(2, Wait.LANES)),
    ],
)
def test_the_queue_starts_in_order(
    needs: list[int], lanes: int, pages: int, verdict: Verdict
) -> None:
    """(3, 3, 1) with five pages: the third would fit, and waits behind the second."""
    assert admit(needs, lanes, pages) == verdict


@given(st.lists(st.integers(1, 20), max_size=12), st.integers(0, 6), st.integers(0, 60))
def test_what_starts_fits_and_what_waits_would_not(
    needs: list[int], lanes: int, pages: int
) -> None:
    verdict = admit(needs, lanes, pages)
    started = needs[: verdict.starts]
    assert len(started) <= lanes
    assert sum(started) <= pages
    assert (verdict.reason is None) == (len(started) == len(needs))
    if verdict.reason is not None:
        head = needs[verdict.starts]
        assert len(started) == lanes or sum(started) + head > pages


def test_the_remedy_for_the_pool_is_one_that_works() -> None:
    small = shape(pages=4)
    with pytest.raises(PoolTooSmall, match="lower max_tokens to 12 or less") as caught:
        refuse(small, request(20, 13))
    assert "--pool-tokens 40" in caught.value.message
    refuse(small, request(20, 12))
    refuse(shape(pages=40 // 8), request(20, 13))


def test_a_prompt_that_fills_the_pool_alone_is_not_told_to_ask_for_less() -> None:
    with pytest.raises(PoolTooSmall) as caught:
        refuse(shape(pages=4), request(32, 1))
    assert "lower max_tokens" not in caught.value.message


@pytest.mark.parametrize(
    "numbers",
    [{"lanes": 0}, {"pages": 0}, {"context": -1}, {"chunk_rows": 18}, {"page_rows": 6}],
    ids=str,
)
def test_a_shape_that_cannot_be_served_is_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(SettingError, match=next(iter(numbers))):
        shape(**numbers)
