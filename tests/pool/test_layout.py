"""Pages of a lease, at the edges of a page and of the window."""

from __future__ import annotations

import pytest

from streamglm.pool.layout import lease_pages, pages_for, window_pages


@pytest.mark.parametrize(
    ("tokens", "pages"), [(0, 0), (1, 1), (511, 1), (512, 1), (513, 2), (1024, 2)]
)
def test_pages_for_rounds_up(tokens: int, pages: int) -> None:
    assert pages_for(tokens, 512) == pages


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "pages"),
    [(1, 1, 1), (500, 12, 1), (500, 13, 2), (8000, 192, 16), (8000, 9000, 16)],
)
def test_a_lease_is_clipped_to_the_window(prompt: int, max_tokens: int, pages: int) -> None:
    assert lease_pages(prompt, max_tokens, 8192, 512) == pages
    assert pages <= window_pages(8192, 512) == 16
