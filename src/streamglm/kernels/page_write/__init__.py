"""Writing rows into pages: latents, pooled keys, tokens of a pool in progress."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels.arguments import ArgumentError, Ids, Rows
from streamglm.kernels.page_write import host, reference

__all__ = ["page_write"]


def page_write(pages: Rows, slots: torch.Tensor | Ids, values: Rows) -> None:
    """values [N, D] into pages [P, S, D] (contiguous) at slots [N] int64, each once; slot = page *
    S + place.

    Raises `ArgumentError` when N or D do not fit.
    """
    if values.shape[1] != pages.shape[2] or slots.shape != values.shape[:1]:
        raise ArgumentError(f"page_write: values {values.shape} to {slots.shape} of {pages.shape}")
    if isinstance(pages, np.ndarray):
        assert isinstance(slots, np.ndarray)
        host.page_write(pages, slots, values)
    else:
        assert isinstance(slots, torch.Tensor)
        reference.page_write(pages, slots, values)
