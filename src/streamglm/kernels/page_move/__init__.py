"""Whole pages, byte by byte: copied within the pool, packed out of it, filled into it."""

from __future__ import annotations

import torch

from streamglm.kernels import launch
from streamglm.kernels.arguments import ArgumentError
from streamglm.kernels.page_move import reference

__all__ = ["copy", "fill", "pack"]

WORD = 16
"""Bytes that are moved at once: a page is a multiple of them."""


def copy(memory: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor) -> None:
    """memory [caches, P, bytes] uint8: pages `sources` [N] into pages `targets` [N] int64 of every
    cache. No page is both, and no target stands twice.

    Raises `ArgumentError` when the shapes do not fit.
    """
    _check("copy", memory, sources)
    if targets.shape != sources.shape:
        raise ArgumentError(f"copy: {tuple(sources.shape)} pages into {tuple(targets.shape)}")
    if launch.by_kernel(memory):
        from streamglm.kernels.page_move import kernel

        kernel.move(memory, sources, memory, targets)
    else:
        reference.copy(memory, sources, targets)


def pack(memory: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
    """memory [caches, P, bytes] uint8, pages [N] int64 -> [caches, N, bytes], in their order.

    Raises `ArgumentError` when the shapes do not fit.
    """
    _check("pack", memory, pages)
    if launch.by_kernel(memory):
        from streamglm.kernels.page_move import kernel

        packed = torch.empty(
            memory.shape[0], len(pages), memory.shape[2], dtype=torch.uint8, device=memory.device
        )
        kernel.move(memory, pages, packed, None)
        return packed
    return reference.pack(memory, pages)


def fill(memory: torch.Tensor, pages: torch.Tensor, packed: torch.Tensor) -> None:
    """What `pack` gave, into as many pages, each named once.

    Raises `ArgumentError` when the shapes do not fit.
    """
    _check("fill", memory, pages)
    if packed.shape != (memory.shape[0], len(pages), memory.shape[2]) or packed.stride(2) != 1:
        raise ArgumentError(
            f"fill: {tuple(packed.shape)} into {len(pages)} pages of {tuple(memory.shape)}"
        )
    if launch.by_kernel(memory):
        from streamglm.kernels.page_move import kernel

        kernel.move(packed, None, memory, pages)
    else:
        reference.fill(memory, pages, packed)


def _check(name: str, memory: torch.Tensor, pages: torch.Tensor) -> None:
    whole = memory.ndim == 3 and memory.shape[2] % WORD == 0 and memory.is_contiguous()
    if not whole or memory.dtype != torch.uint8 or pages.ndim != 1:
        raise ArgumentError(
            f"{name}: memory {tuple(memory.shape)} {memory.dtype}, pages {tuple(pages.shape)}; a "
            f"page is a multiple of {WORD} bytes"
        )
