"""Kimi delta attention: a gated delta rule with a decay for every channel of the key."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels.arguments import ArgumentError, Rows
from streamglm.kernels.kda import host, reference
from streamglm.kernels.kda.reference import KdaConstants, constants
from streamglm.kernels.tiling import Tiling

__all__ = ["KdaConstants", "chunk", "constants", "gate", "step"]


def gate(x: Rows, constants: KdaConstants) -> tuple[Rows, Rows, Rows]:
    """x [R, 2 F + B] -> log-decay [R, F], output gate [R, F], beta [R, B]; x may be overwritten.

    x holds exp(A_log) (f + dt_bias), then g, each of H * d values padded to F, then b. The
    log-decay is bound * sigmoid(x), the other two sigmoid(x). Raises `ArgumentError` when x is too
    narrow.
    """
    if x.shape[1] < 2 * constants.padded + constants.heads:
        raise ArgumentError(f"gate: x {x.shape}, gates of {constants.padded} values")
    if isinstance(x, np.ndarray):
        return host.gate(x, constants)
    return reference.gate(x, constants)


def step(
    qkv: Rows, decay: Rows, beta: Rows, state: Rows, constants: KdaConstants, tiling: Tiling
) -> Rows:
    """One row of N lanes: S <- diag(exp(decay)) S; S <- S + k beta (v - S^T k)^T; o = S^T q.

    qkv [N, 3 H d] as it leaves the convolution, log-decay [N, >= H d], beta [N, >= H], state
    [N, H, d (k), d (v)] contiguous, in place -> o [N, H, d]. Raises `ArgumentError` when the shapes
    do not fit.
    """
    n, h, d = qkv.shape[0], constants.heads, constants.dim
    if qkv.shape[1] != 3 * h * d or state.shape != (n, h, d, d):
        raise ArgumentError(f"step: qkv {qkv.shape}, state {state.shape}, {h} heads of {d}")
    if isinstance(qkv, np.ndarray):
        if tiling.entries or n == 1:
            return host.step(qkv, decay, beta, state, constants)
        rows = zip(qkv[:, None], decay[:, None], beta[:, None], state[:, None], strict=True)
        return np.concatenate([host.step(*row, constants) for row in rows])
    return reference.step(qkv, decay, beta, state, constants, tiling)


def chunk(
    qkv: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    rows: int,
    constants: KdaConstants,
    tiling: Tiling,
) -> torch.Tensor:
    """`step` over n rows of one lane, block by block; rows from `rows` on are padding.

    qkv [n, 3 H d], log-decay [n, >= H d], beta [n, >= H]; n and the position of the first row are
    multiples of 16; state [H, d, d] in place -> o [n, H, d]. A row's bits depend on the rows before
    it only. Raises `ArgumentError` when the shapes do not fit.
    """
    n, h, d = qkv.shape[0], constants.heads, constants.dim
    if qkv.shape[1] != 3 * h * d or state.shape != (h, d, d):
        raise ArgumentError(f"chunk: qkv {qkv.shape}, state {state.shape}, {h} heads of {d}")
    if n % constants.block or not 0 < rows <= n:
        raise ArgumentError(f"chunk: {rows} of {n} rows, in blocks of {constants.block}")
    return reference.chunk(qkv, decay, beta, state, rows, constants, tiling)
