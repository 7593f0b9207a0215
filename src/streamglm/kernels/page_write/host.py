"""Rows into pages for the few rows of a window, in numpy."""

from __future__ import annotations

from streamglm.kernels.arguments import Array, Ids


def page_write(pages: Array, slots: Ids, values: Array) -> None:
    """values [N, D] to the slots [N] of pages [P, S, D]."""
    pages.reshape(-1, pages.shape[2])[slots] = values
