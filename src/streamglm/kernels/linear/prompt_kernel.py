"""Linear layers over the many rows of a prompt and plain weights, one matrix or one a head.

Blocks come and go by tensor descriptors. What those do not take, `kernel` multiplies.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from streamglm.kernels.blocks import dot
from streamglm.kernels.matrix import Matrix
from streamglm.kernels.persistent import (
    GROUP_R,
    aligned,
    depth,
    described,
    head_tile,
    place,
    programs,
    readable,
    store_tile,
    stored,
    wide_tile,
)


@triton.jit(do_not_specialize=["R", "PROGRAMS"])
def prompt_kernel(
    d_x, d_w, d_y, R, PROGRAMS,
    N: tl.constexpr, K: tl.constexpr, GROUP_R: tl.constexpr, DTYPE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_n, tiles_r = tl.cdiv(N, BLOCK_N), tl.cdiv(R, BLOCK_R)
    for i in tl.range(tl.program_id(0), tiles_n * tiles_r, PROGRAMS, flatten=True):
        i_n, i_r = place(i, tiles_n, tiles_r, GROUP_R)
        acc = tl.zeros([BLOCK_R, BLOCK_N], tl.float32)
        for k in range(0, K, BLOCK_K):
            b_x = d_x.load([i_r * BLOCK_R, k])
            b_w = d_w.load([i_n * BLOCK_N, k])
            acc = dot(b_x, tl.trans(b_w), acc)
        store_tile(d_y, acc, i_r * BLOCK_R, i_n * BLOCK_N, BLOCK_R, BLOCK_N, DTYPE)


@triton.jit(do_not_specialize=["R", "PROGRAMS"])
def heads_kernel(
    d_x, d_w, d_y, R, HEADS, stride_head, PROGRAMS,
    N: tl.constexpr, K: tl.constexpr, DTYPE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Head after head, whole blocks of its N and K, so that no block reaches into the next."""
    PARTS: tl.constexpr = N // BLOCK_N
    tiles = PARTS * HEADS * tl.cdiv(R, BLOCK_R)
    for i in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        i_n = i % (PARTS * HEADS)
        i_h = i_n // PARTS
        row = i // (PARTS * HEADS) * BLOCK_R
        acc = tl.zeros([BLOCK_R, BLOCK_N], tl.float32)
        for k in range(0, K, BLOCK_K):
            b_x = d_x.load([row, i_h * stride_head + k])
            b_w = d_w.load([i_n * BLOCK_N, k])
            acc = dot(b_x, tl.trans(b_w), acc)
        store_tile(d_y, acc, row, i_n * BLOCK_N, BLOCK_R, BLOCK_N, DTYPE)


def takes(x: torch.Tensor, matrix: Matrix, dtype: torch.dtype) -> bool:
    """Whether `prompt` multiplies rows like x by the matrix into `dtype`."""
    return described(matrix, x.dtype) and aligned(matrix.width, dtype)


def prompt(x: torch.Tensor, matrix: Matrix, dtype: torch.dtype) -> torch.Tensor:
    """x [R, K] -> [R, N]."""
    tile = wide_tile(matrix.width)
    k = depth(tile, x.dtype)
    x = readable(x)
    y = torch.empty(len(x), matrix.width, dtype=dtype, device=x.device)
    count = programs(triton.cdiv(matrix.width, tile.n) * triton.cdiv(len(x), tile.r), x.device)
    prompt_kernel[(count,)](
        d_x=TensorDescriptor.from_tensor(x, [tile.r, k]),
        d_w=TensorDescriptor.from_tensor(matrix.numbers[0], [tile.n, k]),
        d_y=TensorDescriptor.from_tensor(y, [tile.r, _part(tile.n)]),
        R=len(x), PROGRAMS=count, N=matrix.width, K=matrix.depth, GROUP_R=GROUP_R,
        DTYPE=stored(dtype), BLOCK_N=tile.n, BLOCK_R=tile.r, BLOCK_K=k,
        num_warps=tile.warps,
        num_stages=tile.stages - (dtype.itemsize > x.itemsize),  # a larger buffer to give out by
    )  # fmt: skip
    return y


def takes_heads(x: torch.Tensor, stack: Matrix) -> bool:
    """Whether `by_head` multiplies rows like x by the stack."""
    tile = head_tile()
    whole = stack.width % tile.n == 0 and stack.depth % depth(tile, x.dtype) == 0
    return whole and described(stack, x.dtype)


def by_head(x: torch.Tensor, stack: Matrix) -> torch.Tensor:
    """x [R, H, K] with heads apart or not, stack [H, N, K] -> [R, H, N]."""
    rows, heads, columns = x.shape
    if x.stride(1) < columns or x.stride(0) < heads * x.stride(1):
        x = x.contiguous()
    apart = x.stride(1)
    flat = readable(x.as_strided((rows, (heads - 1) * apart + columns), (x.stride(0), 1)))
    tile = head_tile()
    k = depth(tile, x.dtype)
    y = torch.empty(rows, heads, stack.width, dtype=x.dtype, device=x.device)
    tiles = stack.width // tile.n * heads * triton.cdiv(rows, tile.r)
    count = programs(tiles, x.device)
    heads_kernel[(count,)](
        d_x=TensorDescriptor.from_tensor(flat, [tile.r, k]),
        d_w=TensorDescriptor.from_tensor(stack.numbers.flatten(0, 1), [tile.n, k]),
        d_y=TensorDescriptor.from_tensor(y.flatten(1), [tile.r, _part(tile.n)]),
        R=rows, HEADS=heads, stride_head=apart, PROGRAMS=count, N=stack.width, K=columns,
        DTYPE=stored(x.dtype), BLOCK_N=tile.n, BLOCK_R=tile.r, BLOCK_K=k,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return y


def _part(columns: int) -> int:
    """Columns that `store_tile` gives out at once."""
    return columns // 2
