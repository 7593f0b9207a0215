"""Rows into pages for the few rows of a window: in numpy, but for what numpy has no type for."""

from __future__ import annotations

import torch

from streamglm.kernels.arguments import Array, Ids
from streamglm.kernels.page_write import reference
from streamglm.kernels.pages import Pages


def page_write(pages: Pages, slots: Ids, values: Array) -> None:
    """values [N, D] to the slots [N]."""
    if pages.host.itemsize == 4:
        pages.host.reshape(-1, pages.dim)[slots] = values
    else:
        reference.page_write(pages, torch.from_numpy(slots), torch.from_numpy(values))
