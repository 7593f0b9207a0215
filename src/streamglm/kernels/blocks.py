"""What the Triton kernels of several operators share.

Owns the dot product, the rounding of a block and the keys that sort it, in a form that Triton's
interpreter computes as a GPU does: there, a dot of bfloat16 blocks multiplies their bits as
integers, and a cast to a narrow format cuts instead of rounding. Knows no operator.
"""

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def dot(a, b, acc=None):
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
def operand(x, dtype: tl.constexpr):
    """x as an operand of `dot`: rounded to `dtype`; rows that are kept in it stay as they are."""
    if dtype != x.dtype:
        x = cast(x.to(tl.float32), dtype)
    return x


@triton.jit
def cast_float8(x):
    """x float32, at most 448 in magnitude, as float8 (e4m3), to the nearest, ties to even."""
    if INTERPRETED:
        exponent = ((x.to(tl.uint32, bitcast=True) >> 23) & 0xFF).to(tl.int32)
        step = tl.maximum(exponent, 121) - 3  # of 2^-9 where the values are denormal
        lift = (step << 23).to(tl.float32, bitcast=True) * 12582912.0
        x = (x + lift) - lift
    return x.to(tl.float8e4nv)


@triton.jit
def ordered(x):
    """x float32 -> uint32 above 0 that compares as x does; both zeros are one, NaN is highest."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.uint32, bitcast=True)
    bits = tl.where(bits >> 31 == 1, bits ^ 0xFFFFFFFF, bits ^ 0x80000000)
    return tl.where(x == x, bits, 0xFFFFFFFF).to(tl.uint32)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) in float32, without an overflow."""
    return 1.0 / (1.0 + tl.exp(-tl.maximum(x, -80.0)))
