"""Fresh memory is NaN while an operator runs, so that an output nobody wrote is red."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """`empty` and its relatives of torch and numpy give NaN, for floating point."""
    torch.set_num_threads(1)
    for owner, name in (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch.Tensor, "new_empty"),
        (np, "empty"),
        (np, "empty_like"),
    ):
        monkeypatch.setattr(owner, name, _poisoned(getattr(owner, name)))


def _poisoned(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*arguments: Any, **options: Any) -> Any:
        fresh = make(*arguments, **options)
        floating = (
            fresh.is_floating_point()
            if isinstance(fresh, torch.Tensor)
            else np.issubdtype(fresh.dtype, np.floating)
        )
        if floating:
            fresh.fill_(np.nan) if isinstance(fresh, torch.Tensor) else fresh.fill(np.nan)
        return fresh

    return made
