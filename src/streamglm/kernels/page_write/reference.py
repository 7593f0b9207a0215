"""Rows into pages, in torch: each is encoded once, when it is written."""

from __future__ import annotations

import torch

from streamglm.kernels.pages import Pages, bits, encode


def page_write(pages: Pages, slots: torch.Tensor, values: torch.Tensor) -> None:
    """values [N, D] to the slots [N]."""
    stored, scales = encode(values, pages.values.dtype)
    if pages.scales is None or scales is None:
        pages.values.view(-1, pages.dim).index_copy_(0, slots, stored)
        return
    page, place = slots // pages.rows, slots % pages.rows
    bits(pages.values)[page, place] = bits(stored)
    pages.scales[page, place] = scales
