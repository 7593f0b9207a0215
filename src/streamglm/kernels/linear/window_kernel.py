"""Linear layers on the rows of a window over plain weights, by tensor descriptors.

Owns two kernels, one for many columns and one for few, and their tiles. Invariant: a weight's shape
alone decides the kernel and its tile, whatever the rows, so that their number moves no bit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from streamglm.kernels import overlap
from streamglm.kernels.blocks import cast, dot
from streamglm.kernels.matrix import Format, Matrix
from streamglm.kernels.product import MANY, Tile

FEW = 1024
"""Columns below which a program has so few of them that a chain of products, one for every 16
places of K, takes longer than the weights do: there K is dealt out to a program's warps. With 512
that is faster, and with 2,336 no longer."""
SPLIT = 4
"""Parts of a step over K, each of a warp."""
AHEAD = 16 * 2**20
"""Bytes of a narrow weight that are fetched into the L2 ahead of its kernel, a third of what the
cache holds. Wider weights gain nothing by it: their programs ask for enough by themselves."""
_THREADS = 128


@triton.jit(do_not_specialize=["R"])
def window_kernel(
    d_x, d_w, p_y, R, N: tl.constexpr, K: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    overlap.behind()
    i_n, i_r = _place(R, BLOCK_R)
    acc = tl.zeros([BLOCK_N, BLOCK_R], tl.float32)
    for k in range(0, K, BLOCK_K):
        b_w = d_w.load([i_n * BLOCK_N, k])
        b_x = d_x.load([i_r * BLOCK_R, k])
        acc = dot(b_w, tl.trans(b_x), acc)
    _store(p_y, acc, i_n, i_r, R, N, BLOCK_N, BLOCK_R)


@triton.jit(do_not_specialize=["R"])
def narrow_kernel(
    d_x, d_w, p_w, p_y, R, N: tl.constexpr, K: tl.constexpr, COLUMNS: tl.constexpr,
    SPLIT: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The descriptors are of [K / BLOCK_K, rows, BLOCK_K]; parts are added up at the end. COLUMNS
    of the weight are fetched ahead."""
    i_n, i_r = _place(R, BLOCK_R)
    _fetch(p_w, i_n * BLOCK_N, N, K, COLUMNS, BLOCK_N)
    overlap.behind()
    acc = tl.zeros([SPLIT, BLOCK_N, BLOCK_R], tl.float32)
    for i in range(0, K // BLOCK_K, SPLIT):
        b_w = d_w.load([i, i_n * BLOCK_N, 0])
        b_x = d_x.load([i, i_r * BLOCK_R, 0])
        acc = dot(b_w, tl.permute(b_x, (0, 2, 1)), acc)
    _store(p_y, tl.sum(acc, 0), i_n, i_r, R, N, BLOCK_N, BLOCK_R)


@triton.jit
def _place(R, BLOCK_R: tl.constexpr):
    """The program's tile of weights and tile of rows; the rows of a tile of weights are side by
    side, so that only the first program waits for the memory."""
    tiles = tl.cdiv(R, BLOCK_R)
    return tl.program_id(0) // tiles, tl.program_id(0) % tiles


@triton.jit
def _fetch(p_w, i_n, N: tl.constexpr, K: tl.constexpr, COLUMNS: tl.constexpr,
           BLOCK_N: tl.constexpr):  # fmt: skip
    """Ask for the first COLUMNS of rows i_n.. [BLOCK_N]."""
    PARTS: tl.constexpr = 128 // BLOCK_N  # a request of each thread
    COUNT: tl.constexpr = COLUMNS // PARTS
    o_n = tl.minimum(i_n + tl.arange(0, BLOCK_N), N - 1).to(tl.int64)
    p_first = p_w + o_n[:, None] * K + (tl.arange(0, PARTS) * COUNT)[None, :]
    overlap.ahead(p_first, COUNT * p_w.dtype.element_ty.primitive_bitwidth // 8)


@triton.jit
def _store(p_y, acc, i_n, i_r, R, N: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr):
    o_rows = (i_r * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
    o_n = i_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (o_rows < R)[:, None] & (o_n < N)[None, :]
    p_out = p_y + o_rows[:, None] * N + o_n[None, :]
    tl.store(p_out, cast(tl.trans(acc), p_y.dtype.element_ty), mask=mask)


def described(x: torch.Tensor, matrix: Matrix) -> bool:
    """Whether the matrix comes by descriptors, which ask for rows of whole 16 bytes. Where programs
    are so many that all of a weight's ask for memory at once, pointers are as fast or faster."""
    plain = matrix.format is Format.PLAIN and x.dtype == matrix.numbers.dtype
    return plain and matrix.depth * x.itemsize % 16 == 0 and matrix.width < MANY


def _columns(matrix: Matrix) -> int:
    """Columns that are fetched ahead: as many as make up `AHEAD` bytes."""
    most = AHEAD // (matrix.width * matrix.numbers.itemsize)
    return min(matrix.depth, most) // _THREADS * _THREADS


def _tile(matrix: Matrix) -> Tile:
    """Of `window_kernel`."""
    return Tile(64, 16, 256 if matrix.depth > 512 else 128, 4, 5)


_NARROW = Tile(16, 16, 128, SPLIT, 6)
"""Of `narrow_kernel`; k is that of a part."""


def window(x: torch.Tensor, matrix: Matrix, dtype: torch.dtype) -> torch.Tensor:
    """x [R, K], R up to 32, matrix as `described` -> [R, N]."""
    if (len(x) > 1 and x.stride(0) * x.itemsize % 16) or x.data_ptr() % 16:
        x = x.clone(memory_format=torch.contiguous_format)
    y = torch.empty(len(x), matrix.width, dtype=dtype, device=x.device)
    if matrix.width < FEW and matrix.depth % _NARROW.k == 0:
        _narrow(x, matrix, y, _NARROW)
    else:
        _wide(x, matrix, y, _tile(matrix))
    return y


def _wide(x: torch.Tensor, matrix: Matrix, y: torch.Tensor, tile: Tile) -> None:
    window_kernel[_grid(x, matrix, tile)](
        d_x=_rows(x, tile.r, tile.k), d_w=_rows(matrix.numbers[0], tile.n, tile.k),
        p_y=y, R=len(x), N=matrix.width, K=matrix.depth,
        BLOCK_N=tile.n, BLOCK_R=tile.r, BLOCK_K=tile.k,
        num_warps=tile.warps, num_stages=tile.stages, **overlap.options(),
    )  # fmt: skip


def _narrow(x: torch.Tensor, matrix: Matrix, y: torch.Tensor, tile: Tile) -> None:
    narrow_kernel[_grid(x, matrix, tile)](
        d_x=_parts(x, tile.r, tile.k), d_w=_parts(matrix.numbers[0], tile.n, tile.k),
        p_w=matrix.numbers, p_y=y, R=len(x), N=matrix.width, K=matrix.depth,
        COLUMNS=_columns(matrix), SPLIT=SPLIT, BLOCK_N=tile.n, BLOCK_R=tile.r, BLOCK_K=tile.k,
        num_warps=tile.warps, num_stages=tile.stages, **overlap.options(),
    )  # fmt: skip


def _grid(x: torch.Tensor, matrix: Matrix, tile: Tile) -> tuple[int]:
    return (triton.cdiv(matrix.width, tile.n) * triton.cdiv(len(x), tile.r),)


def _stride(values: torch.Tensor) -> int:
    """Of rows; that of a single row may be anything, and a descriptor wants 16 bytes."""
    return values.stride(0) if len(values) > 1 else values.shape[1]


def _rows(values: torch.Tensor, rows: int, width: int) -> TensorDescriptor:
    """values [R, K] in blocks [rows, width]."""
    return TensorDescriptor(values, list(values.shape), [_stride(values), 1], [rows, width])


def _parts(values: torch.Tensor, rows: int, width: int) -> TensorDescriptor:
    """values [R, K] as [K / width, R, width], in blocks of SPLIT parts of rows."""
    shape = [values.shape[1] // width, len(values), width]
    return TensorDescriptor(values, shape, [width, _stride(values), 1], [SPLIT, rows, width])
