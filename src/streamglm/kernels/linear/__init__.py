"""Linear layers whose rows do not depend on the rows beside them."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels import launch
from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.linear import host, reference
from streamglm.kernels.linear.reference import (
    HeadWeight,
    Weight,
    padded_width,
    prepare,
    prepare_heads,
)
from streamglm.kernels.matrix import Format, Matrix
from streamglm.kernels.tiling import Tiling

__all__ = [
    "HeadWeight",
    "Weight",
    "by_head",
    "heads",
    "linear",
    "padded_width",
    "prepare",
    "prepare_heads",
    "prompt",
    "window",
]

WINDOW = 32
"""Rows of the widest window."""


def linear(x: Rows, weight: Weight, tiling: Tiling) -> Rows:
    """x [M, K] @ weight [K, N] -> [M, N padded]; M is whole tiles of `tiling`.

    Raises `ArgumentError` when K or M do not fit.
    """
    if x.shape[1] != weight.depth or x.shape[0] % tiling.sizes[0]:
        raise ArgumentError(
            f"linear: x {x.shape}, weight of depth {weight.depth}, tiles of {tiling.sizes}"
        )
    if isinstance(x, np.ndarray):
        return host.linear(x, weight, tiling)
    return reference.linear(x, weight, tiling)


def heads(x: Rows, weight: HeadWeight, tiling: Tiling) -> Rows:
    """x [M, H, A] @ weight [H, A, B], head by head -> [M, H, B]; M is whole tiles of `tiling`.

    Raises `ArgumentError` when H, A or M do not fit.
    """
    if tuple(x.shape[1:]) != weight.host.shape[:2] or x.shape[0] % tiling.sizes[0]:
        raise ArgumentError(
            f"heads: x {x.shape}, weight {weight.host.shape}, tiles of {tiling.sizes}"
        )
    if isinstance(x, np.ndarray):
        return host.heads(x, weight, tiling)
    return reference.heads(x, weight, tiling)


def window(x: torch.Tensor, matrix: Matrix, dtype: torch.dtype | None = None) -> torch.Tensor:
    """x [R, K], R from 1 to 32, times a matrix [1, N, K] of any format -> [R, N] of `dtype` (x's).

    Raises `ArgumentError` when R, K or the matrix do not fit.
    """
    if not 1 <= x.shape[0] <= WINDOW:
        raise ArgumentError(f"window: {x.shape[0]} rows, and a window has 1 to {WINDOW}")
    _check_matrix("window", x, matrix)
    if launch.by_kernel(x):
        from streamglm.kernels.linear import kernel

        return kernel.window(x, matrix, dtype or x.dtype)
    return reference.by_rows(x, matrix, dtype or x.dtype)


def prompt(x: torch.Tensor, matrix: Matrix, dtype: torch.dtype | None = None) -> torch.Tensor:
    """x [R, K], any R, times a matrix [1, N, K] of any format -> [R, N] of `dtype` (x's).

    Raises `ArgumentError` when K or the matrix do not fit.
    """
    _check_matrix("prompt", x, matrix)
    if launch.by_kernel(x):
        from streamglm.kernels.linear import kernel, prompt_kernel

        if prompt_kernel.takes(x, matrix, dtype or x.dtype):
            return prompt_kernel.prompt(x, matrix, dtype or x.dtype)
        return kernel.prompt(x, matrix, dtype or x.dtype)
    return reference.by_rows(x, matrix, dtype or x.dtype)


def by_head(x: torch.Tensor, stack: Matrix, *, wide: bool) -> torch.Tensor:
    """x [R, H, K], head by head, times a plain stack [H, N, K] -> [R, H, N] of x's dtype; `wide`
    for the rows of a prompt, any number of them, else 1 to 32.

    Raises `ArgumentError` when R, H, K or the stack do not fit.
    """
    fits = x.ndim == 3 and x.shape[1:] == (stack.count, stack.depth) and x.stride(2) == 1
    if not fits or stack.format is not Format.PLAIN or not (wide or 1 <= len(x) <= WINDOW):
        raise ArgumentError(
            f"by_head: x {tuple(x.shape)}, {stack.count} {stack.format.name} matrices of "
            f"{stack.depth} columns, and a window has 1 to {WINDOW} rows"
        )
    if launch.by_kernel(x):
        from streamglm.kernels.linear import kernel, prompt_kernel

        if wide and prompt_kernel.takes_heads(x, stack):
            return prompt_kernel.by_head(x, stack)
        return kernel.by_head(x, stack, wide)
    return reference.heads_by_rows(x, stack)


def _check_matrix(name: str, x: torch.Tensor, matrix: Matrix) -> None:
    if x.ndim != 2 or x.shape[1] != matrix.depth or x.stride(1) != 1:
        raise ArgumentError(
            f"{name}: x {tuple(x.shape)}, and the matrix has {matrix.depth} columns"
        )
    if matrix.count != 1 or matrix.halves != 1:
        raise ArgumentError(
            f"{name}: {matrix.count} matrices with {matrix.halves} scales of all each, not one"
        )
