"""Gate and up over the many rows of a prompt and plain weights, as one product of twice the rows.

Blocks of both come side by side by one tensor descriptor, and nothing leaves the program in
between. What descriptors do not take, `kernel` computes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from streamglm.kernels.blocks import cast, dot
from streamglm.kernels.matrix import Matrix
from streamglm.kernels.mlp.kernel import swiglu
from streamglm.kernels.persistent import (
    GROUP_R,
    aligned,
    depth,
    described,
    double_tile,
    halves,
    place,
    programs,
    readable,
    stored,
)


@triton.jit(do_not_specialize=["R", "PROGRAMS"])
def glu_prompt_kernel(
    d_x, d_w, d_y, R, limit, PROGRAMS,
    INNER: tl.constexpr, K: tl.constexpr, GROUP_R: tl.constexpr, DTYPE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """d_w stands on [2, INNER, K]."""
    tiles_n, tiles_r = tl.cdiv(INNER, BLOCK_N), tl.cdiv(R, BLOCK_R)
    for i in tl.range(tl.program_id(0), tiles_n * tiles_r, PROGRAMS, flatten=True):
        i_n, i_r = place(i, tiles_n, tiles_r, GROUP_R)
        acc = tl.zeros([BLOCK_R, 2 * BLOCK_N], tl.float32)
        for k in range(0, K, BLOCK_K):
            b_x = d_x.load([i_r * BLOCK_R, k])
            b_w = tl.reshape(d_w.load([0, i_n * BLOCK_N, k]), [2 * BLOCK_N, BLOCK_K])
            acc = dot(b_x, tl.trans(b_w), acc)
        gate, up = halves(acc, BLOCK_R, 2 * BLOCK_N)
        b_y = cast(swiglu(gate, up, limit), DTYPE)
        d_y.store([i_r * BLOCK_R, i_n * BLOCK_N], b_y)


def takes(x: torch.Tensor, gate_up: Matrix) -> bool:
    """Whether `hidden` computes rows like x with the matrix."""
    return described(gate_up, x.dtype) and aligned(gate_up.width // 2, x.dtype)


def hidden(x: torch.Tensor, gate_up: Matrix, limit: float) -> torch.Tensor:
    """x [R, K] -> [R, INNER] of x's dtype; gate_up [1, 2 INNER, K]."""
    tile, inner = double_tile(), gate_up.width // 2
    k, x = depth(tile, x.dtype), readable(x)
    y = torch.empty(len(x), inner, dtype=x.dtype, device=x.device)
    count = programs(triton.cdiv(inner, tile.n) * triton.cdiv(len(x), tile.r), x.device)
    glu_prompt_kernel[(count,)](
        d_x=TensorDescriptor.from_tensor(x, [tile.r, k]),
        d_w=TensorDescriptor.from_tensor(
            gate_up.numbers.view(2, inner, gate_up.depth), [2, tile.n, k]
        ),
        d_y=TensorDescriptor.from_tensor(y, [tile.r, tile.n]),
        R=len(x), limit=limit, PROGRAMS=count, INNER=inner, K=gate_up.depth, GROUP_R=GROUP_R,
        DTYPE=stored(x.dtype), BLOCK_N=tile.n, BLOCK_R=tile.r, BLOCK_K=k,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return y
