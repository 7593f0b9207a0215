"""The arithmetic of a lease, and refusals with their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamglm.core.admission import need_pages, refuse
from streamglm.errors import InvalidRequest, PoolTooSmall, SettingError
from support.fakes import shape
from support.house import request


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "pages"),
    [(1, 1, 1), (7, 1, 1), (8, 1, 2), (1, 7, 1), (1, 8, 2), (249, 7, 32), (30, 90, 15)],
)
def test_a_lease_holds_prompt_and_whole_reply(prompt: int, max_tokens: int, pages: int) -> None:
    assert need_pages(shape(), request(prompt, max_tokens)) == pages


def test_drafts_are_written_past_the_end_and_never_past_the_window() -> None:
    of = shape(slack=5)
    assert [need_pages(of, request(prompt, 1)) for prompt in (2, 3)] == [1, 2]
    assert need_pages(of, request(249, 7)) == of.window_pages == 33


def test_a_lane_with_a_window_takes_all_of_it() -> None:
    assert need_pages(shape(paged=False), request(1, 1)) == 32


def test_the_remedy_for_the_pool_is_one_that_works() -> None:
    small = shape(pages=4)
    with pytest.raises(PoolTooSmall, match="lower max_tokens to 12 or less") as caught:
        refuse(small, request(20, 13))
    assert "--pool-tokens 40" in caught.value.message
    refuse(small, request(20, 12))
    with pytest.raises(PoolTooSmall, match="lower max_tokens to 7 or less"):
        refuse(shape(pages=4, slack=5), request(20, 13))
    refuse(shape(pages=4, slack=5), request(20, 7))
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


@pytest.mark.parametrize(
    "changed",
    [
        {"bias": ((50, 1.0),)},
        {"bias": ((2, 1.0), (1, 1.0))},
        {"allowed": b"\xff" * 7},
        {"logprobs": 21},
        {"repetition_penalty": 0.0},
        {"temperature": float("nan")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_draw_that_ranks_would_refuse_is_refused_alone(changed: dict[str, Any]) -> None:
    """In a step it would fail the round for everyone."""
    plain = request()
    refuse(shape(), plain)
    with pytest.raises(InvalidRequest, match="the sampling cannot be used"):
        refuse(shape(), replace(plain, sampling=replace(plain.sampling, **changed)))
