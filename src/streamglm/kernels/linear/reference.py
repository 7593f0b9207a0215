"""A linear layer on the row tiles of a prompt, in torch; and the form that weights are kept in."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from streamglm.kernels.arguments import Array
from streamglm.kernels.matrix import Matrix
from streamglm.kernels.tiling import Tiling, bmm

PANEL = 64
"""Columns of a panel: few enough that a row of it is read in one go, so that a window streams a
weight from end to end at the memory's speed."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight [K, N] as panels of columns; `width` is N padded with columns of zeros."""

    panels: torch.Tensor
    """[P, K, W]"""
    host: Array
    """The same memory."""
    width: int
    """P * W"""

    @property
    def depth(self) -> int:
        """K"""
        return self.panels.shape[1]


@dataclass(frozen=True, slots=True)
class HeadWeight:
    """A weight [H, A, B] for every head."""

    heads: torch.Tensor
    host: Array
    """The same memory."""


def padded_width(columns: int) -> int:
    """Columns that a weight of `columns` is kept with: whole panels."""
    unit = PANEL if columns > PANEL // 2 else 16
    return -(-columns // unit) * unit


def prepare(weight: torch.Tensor) -> Weight:
    """weight [K, N] -> panels of 64 columns, or one narrower panel padded to 16."""
    depth, columns = weight.shape
    width = padded_width(columns)
    size = min(width, PANEL)
    wide = torch.zeros(depth, width)
    wide[:, :columns] = weight
    panels = wide.view(depth, width // size, size).transpose(0, 1).contiguous()
    return Weight(panels, panels.numpy(), width)


def prepare_heads(weight: torch.Tensor) -> HeadWeight:
    """weight [H, A, B] as it is."""
    weight = weight.contiguous()
    return HeadWeight(weight, weight.numpy())


def linear(x: torch.Tensor, weight: Weight, tiling: Tiling) -> torch.Tensor:
    """x [M, K] @ weight [K, N] -> [M, N]."""
    out = torch.empty(x.shape[0], weight.width)
    multiply(x, weight, out, tiling)
    return out


def multiply(x: torch.Tensor, weight: Weight, out: torch.Tensor, tiling: Tiling) -> None:
    """x [M, K] @ weight into out [M, N], in row counts that `tiling` has proved."""
    count, _, size = weight.panels.shape
    for start, tile in tiling.split(x.shape[0]):
        target = out[start : start + tile].view(tile, count, size).transpose(0, 1)
        torch.bmm(x[start : start + tile].expand(count, -1, -1), weight.panels, out=target)


def heads(x: torch.Tensor, weight: HeadWeight, tiling: Tiling) -> torch.Tensor:
    """x [M, H, A] @ weight [H, A, B] head by head -> [M, H, B]."""
    out = torch.empty(x.shape[0], weight.heads.shape[0], weight.heads.shape[2])
    for start, size in tiling.split(x.shape[0]):
        tile = x[start : start + size].transpose(0, 1)
        out[start : start + size] = bmm(tile, weight.heads, tiling).transpose(0, 1)
    return out


def by_rows(x: torch.Tensor, matrix: Matrix, dtype: torch.dtype) -> torch.Tensor:
    """x [R, K] times matrix [1, N, K] -> [R, N], a row at a time, so that a row is its own."""
    weights = matrix.values()[0]
    y = torch.empty(len(x), matrix.width)
    for row in range(len(x)):
        torch.mv(weights, x[row].float(), out=y[row])
    return y.to(dtype)


def heads_by_rows(x: torch.Tensor, stack: Matrix) -> torch.Tensor:
    """x [R, H, K] times stack [H, N, K] -> [R, H, N], a row and a head at a time."""
    weights = stack.values()
    y = torch.empty(len(x), stack.count, stack.width)
    for row in range(len(x)):
        for head in range(stack.count):
            torch.mv(weights[head], x[row, head].float(), out=y[row, head])
    return y.to(x.dtype)
