"""Writing rows into pages: latents, pooled keys, tokens of a pool in progress."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels import launch
from streamglm.kernels.arguments import ArgumentError, Ids, Rows
from streamglm.kernels.page_write import host, reference
from streamglm.kernels.pages import Pages

__all__ = ["page_write"]


def page_write(pages: Pages, slots: torch.Tensor | Ids, values: Rows) -> None:
    """values [N, D] into `pages` in their format, at slots [N] int64, each once.

    Raises `ArgumentError` when N or D do not fit.
    """
    if values.shape[1] != pages.dim or slots.shape != values.shape[:1]:
        raise ArgumentError(f"page_write: values {values.shape} to {slots.shape} of D {pages.dim}")
    if isinstance(values, np.ndarray):
        assert isinstance(slots, np.ndarray)
        host.page_write(pages, slots, values)
    else:
        assert isinstance(slots, torch.Tensor)
        if launch.by_kernel(values):
            from streamglm.kernels.page_write import kernel

            kernel.page_write(pages, slots, values)
            return
        reference.page_write(pages, slots, values)
