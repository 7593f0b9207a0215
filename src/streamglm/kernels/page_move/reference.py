"""Whole pages moved by torch."""

from __future__ import annotations

import torch


def copy(memory: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor) -> None:
    """Within memory [caches, P, bytes]."""
    memory.index_copy_(1, targets, memory.index_select(1, sources))


def pack(memory: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
    """Out of memory."""
    return memory.index_select(1, pages)


def fill(memory: torch.Tensor, pages: torch.Tensor, packed: torch.Tensor) -> None:
    """Into memory."""
    memory.index_copy_(1, pages, packed)
