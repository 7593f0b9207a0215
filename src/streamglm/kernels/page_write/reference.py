"""Rows into pages, in torch."""

from __future__ import annotations

import torch


def page_write(pages: torch.Tensor, slots: torch.Tensor, values: torch.Tensor) -> None:
    """values [N, D] to the slots [N] of pages [P, S, D]."""
    pages.view(-1, pages.shape[2]).index_copy_(0, slots, values)
