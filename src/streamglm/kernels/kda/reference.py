"""Gated delta rule with a decay for every channel, in torch. README.md has the derivation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from streamglm.kernels.arguments import ArgumentError, Array
from streamglm.kernels.tiling import Tiling, bmm, exp_, sigmoid_

L2_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class KdaConstants:
    """Numbers of the rule as tensors, for making one costs more than using it."""

    heads: int
    dim: int
    padded: int
    """heads * dim padded to 32; widths of the gates."""
    bound: float
    """The lower bound of a row's log-decay, below 0."""
    l2_eps: torch.Tensor
    """[]; 1e-6, added to the sum of squares of a key or query."""
    scale: torch.Tensor
    """[2 H, 1]; dim^-1/2 for the heads of q, 1 for those of k."""
    host_bound: np.float32
    host_eps: np.float32
    host_scale: Array
    """`bound`, `l2_eps` and `scale` for numpy."""
    block: int
    """Rows that the chunk form takes at a time: exp(-bound * block) must be a float32."""


def constants(heads: int, dim: int, bound: float) -> KdaConstants:
    """Raises `ArgumentError` where a block of one row would overflow, or a state would grow."""
    if not -80.0 <= bound < 0.0:
        raise ArgumentError(f"the lower bound of a log-decay is {bound}, not in [-80, 0)")
    block = 16
    while block * -bound > 80.0:
        block //= 2
    scale = torch.ones(2 * heads, 1)
    scale[:heads] = dim**-0.5
    return KdaConstants(
        heads=heads,
        dim=dim,
        padded=-(-heads * dim // 32) * 32,
        bound=bound,
        l2_eps=torch.tensor(L2_EPS),
        scale=scale,
        host_bound=np.float32(bound),
        host_eps=np.float32(L2_EPS),
        host_scale=scale.numpy(),
        block=block,
    )


def gate(
    x: torch.Tensor, constants: KdaConstants
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [R, 2 F + B] (F = H * dim padded, exp(A_log) (f + dt_bias) | g | b) -> log-decay [R, F],
    output gate [R, F], beta [R, B]."""
    width = constants.padded
    sigmoid = sigmoid_(x)
    decay = sigmoid[:, :width] * constants.bound
    return decay, sigmoid[:, width : 2 * width], sigmoid[:, 2 * width :]


def unit(qk: torch.Tensor, constants: KdaConstants) -> torch.Tensor:
    """q and k [..., 2 H, dim] over the root of their sum of squares + 1e-6; q also times
    dim^-1/2."""
    norm = torch.linalg.vector_norm(qk, dim=-1, keepdim=True)
    factor = torch.addcmul(constants.l2_eps, norm, norm).rsqrt_().mul_(constants.scale)
    return qk * factor


def step(
    qkv: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    constants: KdaConstants,
    tiling: Tiling,
) -> torch.Tensor:
    """One row of N lanes.

    qkv [N, 3 H dim], log-decay [N, >= H dim], beta [N, >= H]; state [N, H, dim, dim] moves on.
    Returns o [N, H, dim].
    """
    n, h, d = qkv.shape[0], constants.heads, constants.dim
    qkv = qkv.view(n, 3 * h, d)
    q, k = unit(qkv[:, : 2 * h], constants).tensor_split(2, 1)
    flat = state.view(n * h, d, d)
    flat.mul_(exp_(decay)[:, : h * d].reshape(n * h, d, 1))
    keys = k.reshape(n * h, 1, d)
    delta = qkv[:, 2 * h :].reshape(n * h, 1, d) - bmm(keys, flat, tiling)
    delta.mul_(beta[:, :h].reshape(n * h, 1, 1))
    flat.addcmul_(keys.view(n * h, d, 1), delta)
    return bmm(q.reshape(n * h, 1, d), flat, tiling).view(n, h, d)


def chunk(
    qkv: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    rows: int,
    constants: KdaConstants,
    tiling: Tiling,
) -> torch.Tensor:
    """Rows of one lane, from a multiple of 64 on.

    qkv [n, 3 H dim], log-decay [n, >= H dim], beta [n, >= H], n a multiple of 64; rows from `rows`
    on are padding. state [H, dim, dim] moves on by `rows` rows. Returns o [n, H, dim].
    """
    n, h, d, c = qkv.shape[0], constants.heads, constants.dim, constants.block
    blocks = n // c
    qkv = qkv.view(n, 3 * h, d)
    qk, v = unit(qkv[:, : 2 * h], constants), qkv[:, 2 * h :]
    decay, beta = decay[:, : h * d].reshape(n, h, d), beta[:, :h]
    if rows < n:  # a row of padding decays nothing and writes nothing
        real = torch.arange(n) < rows
        qk = torch.where(real[:, None, None], qk, 0.0)
        v = torch.where(real[:, None, None], v, 0.0)
        decay = torch.where(real[:, None, None], decay, 0.0)
        beta = torch.where(real[:, None], beta, 0.0)
    q, k = _by_block(qk[:, :h], blocks), _by_block(qk[:, h:], blocks)
    v = _by_block(v, blocks)
    beta = beta.reshape(blocks, c, h).transpose(1, 2).reshape(blocks * h, c, 1)
    return _blocks(q, k, v, _by_block(decay, blocks), beta, state, blocks, tiling)


def _by_block(x: torch.Tensor, blocks: int) -> torch.Tensor:
    """[n, H, d] -> [blocks * H, n / blocks, d]"""
    n, h, d = x.shape
    return x.reshape(blocks, n // blocks, h, d).transpose(1, 2).reshape(blocks * h, -1, d)


def _blocks(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    blocks: int,
    tiling: Tiling,
) -> torch.Tensor:
    """The chunk form proper, on q, k, v, decay [blocks * H, c, d] and beta [blocks * H, c, 1]."""
    entries, c, d = q.shape
    heads = entries // blocks
    log = decay.cumsum(1)
    total = log[:, -1:]
    grown = k * exp_(-log)  # at most exp(80), see `constants`
    to_end = k * exp_(total - log)
    shrunk = exp_(log.clone())
    products = bmm(torch.cat([k * shrunk, q * shrunk], 1), grown.transpose(1, 2), tiling)
    within = products[:, c:].tril()
    solved = _substitute((products[:, :c] * -beta).tril(-1), tiling)
    right = torch.cat([v * beta, k * shrunk * beta], 2)
    right = right + bmm(solved, right, tiling)
    delta, seen = right[:, :, :d].clone(), right[:, :, d:]
    states = state.new_empty(blocks + 1, heads, d, d)
    states[0] = state
    shares = exp_(total.clone()).reshape(blocks, heads, d, 1)
    for b in range(blocks):
        entry = slice(b * heads, b * heads + heads)
        change = delta[entry]
        change -= bmm(seen[entry], states[b], tiling)
        torch.mul(states[b], shares[b], out=states[b + 1])
        states[b + 1] += bmm(to_end[entry].transpose(1, 2), change, tiling)
    state.copy_(states[blocks])
    o = bmm(q * shrunk, states[:blocks].view(entries, d, d), tiling)
    o += bmm(within, delta, tiling)
    return o.view(blocks, heads, c, d).transpose(1, 2).reshape(blocks * c, heads, d)


def _substitute(strict: torch.Tensor, tiling: Tiling) -> torch.Tensor:
    """N [E, c, c] strictly lower -> (I - N)^-1 - I, row by row, each from the rows above it."""
    for row in range(1, strict.shape[1]):
        line = strict[:, row : row + 1, :row]
        line += bmm(line, strict[:, :row, :row], tiling)
    return strict
