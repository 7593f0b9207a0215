"""What the Triton kernels of several operators share.

Owns the dot product and the rounding of a block, in a form that Triton's interpreter computes as a
GPU does: there, a dot of bfloat16 blocks multiplies their bits as integers, and a cast to bfloat16
cuts instead of rounding. Knows no operator.
"""

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def dot(a, b, acc):
    """a [M, K] @ b [K, N] + acc, in float32; float32 operands are not cut to tf32."""
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def cast(x, dtype: tl.constexpr):
    """x float32 as `dtype`, rounded to the nearest, ties to even."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        nearest = tl.where(x == x, nearest, 0x7FC0)
        return nearest.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    return x.to(dtype)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) in float32, without an overflow."""
    return 1.0 / (1.0 + tl.exp(-tl.maximum(x, -80.0)))
