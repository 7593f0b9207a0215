"""Fresh memory is NaN, so that an output which nobody wrote, or a value beside an argument, is red.

Owns the poisoning of torch's and numpy's `empty`, and arguments with NaN around them. Knows no
operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch

EDGE = 64
"""Values of NaN before, behind and between the rows of a framed tensor."""


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """`empty` and its relatives of torch and numpy give NaN, for floating point."""
    with contextlib.ExitStack() as patches:
        for owner, name in (
            (torch, "empty"),
            (torch, "empty_like"),
            (torch.Tensor, "new_empty"),
            (np, "empty"),
            (np, "empty_like"),
        ):
            patches.enter_context(mock.patch.object(owner, name, _filled(getattr(owner, name))))
        yield


def _filled(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*arguments: Any, **options: Any) -> Any:
        fresh = make(*arguments, **options)
        if isinstance(fresh, torch.Tensor):
            if fresh.is_floating_point() and fresh.itemsize > 1:
                fresh.fill_(np.nan)
        elif np.issubdtype(fresh.dtype, np.floating):
            fresh.fill(np.nan)
        return fresh

    return made


def framed(x: torch.Tensor) -> torch.Tensor:
    """A copy of x whose rows lie apart in memory that is NaN (or the largest integer) elsewhere.

    The last dimension stays contiguous and begins at a multiple of 16 bytes, as a kernel may ask.
    """
    rows = x.reshape(-1, x.shape[-1])
    stride = -(-rows.shape[1] // EDGE) * EDGE + EDGE
    memory = torch.empty(EDGE + (len(rows) + 1) * stride, dtype=x.dtype, device=x.device)
    if x.is_floating_point():
        memory.fill_(np.nan)
    else:
        memory.fill_(torch.iinfo(x.dtype).max)
    apart = memory[EDGE:].unfold(0, stride, stride)[: len(rows), : rows.shape[1]]
    apart.copy_(rows)
    strides = [stride * int(np.prod(x.shape[at + 1 : -1])) for at in range(x.ndim - 1)]
    return memory.as_strided(x.shape, [*strides, 1], EDGE)
