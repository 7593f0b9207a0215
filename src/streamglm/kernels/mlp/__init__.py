"""The dense MLP: SwiGLU with the gate bounded above and the other half on both sides."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels import launch
from streamglm.kernels import linear as product
from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.linear.reference import Weight
from streamglm.kernels.matrix import BLOCK, Format, Matrix
from streamglm.kernels.mlp import host, reference
from streamglm.kernels.tiling import Tiling

__all__ = ["check_halves", "mlp", "prompt", "window"]


def mlp(x: Rows, gate_up: Weight, down: Weight, limit: float, tiling: Tiling) -> Rows:
    """x [M, D], gate_up [D, 2 I] (gate, then up; I a multiple of 32), down [I, D'] -> [M, D'].

    Raises `ArgumentError` when the weights do not fit each other or x.
    """
    if x.shape[1] != gate_up.depth or gate_up.width != 2 * down.depth:
        raise ArgumentError(f"mlp: x {x.shape}, gate_up {gate_up.width}, down {down.depth}")
    if isinstance(x, np.ndarray):
        return host.mlp(x, gate_up, down, limit, tiling)
    return reference.mlp(x, gate_up, down, limit, tiling)


def window(
    x: torch.Tensor,
    gate_up: Matrix,
    down: Matrix,
    limit: float,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """x [R, K], R from 1 to 32, gate_up [1, 2 I, K] (gate, then up), down [1, N, I] -> [R, N] of
    `dtype` (x's).

    Raises `ArgumentError` when the weights do not fit each other or x.
    """
    _check(x, gate_up, down)
    if launch.by_kernel(x):
        from streamglm.kernels.mlp import kernel
        from streamglm.kernels.product import expert_window_tile

        hidden = kernel.window_hidden(x, gate_up, limit, expert_window_tile(gate_up))
    else:
        hidden = reference.hidden_by_rows(x, gate_up, limit)
    return product.window(hidden, down, dtype)


def prompt(
    x: torch.Tensor,
    gate_up: Matrix,
    down: Matrix,
    limit: float,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`window` for any R.

    Raises `ArgumentError` when the weights do not fit each other or x.
    """
    _check(x, gate_up, down)
    if launch.by_kernel(x):
        from streamglm.kernels.mlp import kernel, prompt_kernel
        from streamglm.kernels.product import pair_tile

        if prompt_kernel.takes(x, gate_up):
            hidden = prompt_kernel.hidden(x, gate_up, limit)
        else:
            hidden = kernel.hidden(x, gate_up, limit, pair_tile(gate_up))
    else:
        hidden = reference.hidden_by_rows(x, gate_up, limit)
    return product.prompt(hidden, down, dtype)


def _check(x: torch.Tensor, gate_up: Matrix, down: Matrix) -> None:
    if x.ndim != 2 or x.shape[1] != gate_up.depth or x.stride(1) != 1 or gate_up.count != 1:
        raise ArgumentError(
            f"mlp: x {tuple(x.shape)} for {gate_up.count} matrices of {gate_up.depth} columns"
        )
    check_halves("mlp", gate_up, down)


def check_halves(name: str, gate_up: Matrix, down: Matrix) -> None:
    """Raise `ArgumentError` where the hidden columns do not fit, or no tile of FP8 would."""
    inner = gate_up.width // 2
    if gate_up.width != 2 * down.depth or gate_up.count != down.count or down.halves != 1:
        raise ArgumentError(
            f"{name}: gate and up have {gate_up.width} rows in {gate_up.count} matrices, down "
            f"{down.depth} columns in {down.count}"
        )
    if gate_up.format is Format.FP8 and inner % BLOCK:
        raise ArgumentError(
            f"{name}: up begins at row {inner}, inside a block of FP8; blocks have {BLOCK} rows"
        )
