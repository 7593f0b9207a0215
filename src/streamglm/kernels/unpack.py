"""Packed weights -> bfloat16 in a few instructions: what lies between a load and a matrix product.

Owns the bit arithmetic on a GPU, two values at a time. Knows no loop and no operator. Bits of a
small float that stand where bfloat16 has its own are that float times a power of two, zero and
subnormals included, and a multiplication of bfloat16 takes the power away: written as one that adds
-0, which GPUs before compute capability 9 have too. Invariant: nothing is rounded; what a thread
unpacks are numbers that its own registers of a matrix instruction want, so that only packed numbers
pass through shared memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

from streamglm.kernels.blocks import INTERPRETED

SMALLER = tl.constexpr(256.0)
"""What `four_bits` has left to multiply: 2^126 for its numbers and 2^120 for its scales are more
than a scale in bfloat16 can hold, which has 2^118 of them."""

_NUMBERS = tl.constexpr(
    """{
    .reg .b32 a, b, c, d, s, z;
    mov.b32 z, 0x80008000;
    shl.b32 a, $4, 6;
    shl.b32 s, $4, 2;
    and.b32 a, a, 0x01C001C0;
    and.b32 s, s, 0x80008000;
    or.b32 a, a, s;
    shl.b32 b, $4, 3;
    and.b32 b, b, 0x81C081C0;
    and.b32 c, $4, 0x81C081C0;
    shr.b32 d, $4, 3;
    shl.b32 s, $4, 1;
    and.b32 d, d, 0x01C001C0;
    and.b32 s, s, 0x80008000;
    or.b32 d, d, s;
    fma.rn.bf16x2 $0, a, $5, z;
    fma.rn.bf16x2 $1, b, $5, z;
    fma.rn.bf16x2 $2, c, $6, z;
    fma.rn.bf16x2 $3, d, $6, z;
    }"""
)
"""Two units -> four pairs: the first two times the scale $5, the others times $6."""

_SCALES = tl.constexpr(
    """{
    .reg .b32 a, b, c, z;
    mov.b32 z, 0x80008000;
    prmt.b32 a, $2, 0, 0x4140;
    prmt.b32 b, $2, 0, 0x4342;
    shl.b32 a, a, 4;
    shl.b32 b, b, 4;
    mov.b32 c, 0x7F007F00;
    fma.rn.bf16x2 a, a, c, z;
    fma.rn.bf16x2 b, b, c, z;
    mov.b32 c, 0x77007700;
    fma.rn.bf16x2 $0, a, c, z;
    fma.rn.bf16x2 $1, b, c, z;
    }"""
)
"""Four float8 of no sign -> two pairs, times 2^127 and 2^111."""

_EIGHT = tl.constexpr(
    """{
    .reg .b32 a, b, z;
    mov.b32 z, 0x80008000;
    cvt.u32.u16 a, $1;
    prmt.b32 a, a, 0, 0x1404;
    shr.b32 b, a, 4;
    and.b32 a, a, 0x80008000;
    and.b32 b, b, 0x07F007F0;
    or.b32 a, a, b;
    mov.b32 b, 0x7B807B80;
    fma.rn.bf16x2 $0, a, b, z;
    }"""
)
"""Two float8 -> a pair, times 2^120."""


@triton.jit
def four_bits(units, scales, BLOCK_N: tl.constexpr, GROUPS: tl.constexpr):
    """Units [BLOCK_N, GROUPS * 32] and their scales [BLOCK_N, GROUPS * 8] float8 -> what they are
    over SMALLER, [BLOCK_N, GROUPS * 128] bfloat16; float32 in the interpreter.
    """
    first, second = tl.split(tl.reshape(_scales(scales), [BLOCK_N, GROUPS, 4, 2]))
    first = tl.reshape(first, [BLOCK_N, GROUPS, 1, 4, 1])
    second = tl.reshape(second, [BLOCK_N, GROUPS, 1, 4, 1])
    first = tl.broadcast_to(first, [BLOCK_N, GROUPS, 4, 4, 2])
    second = tl.broadcast_to(second, [BLOCK_N, GROUPS, 4, 4, 2])
    units = tl.reshape(units, [BLOCK_N, GROUPS, 4, 4, 2])  # thread, word, one of two
    if INTERPRETED:
        a = _number(units, 0) * first
        b = _number(units, 1) * first
        c = _number(units, 2) * second
        d = _number(units, 3) * second
    else:
        a, b, c, d = tl.inline_asm_elementwise(
            _NUMBERS, "=r,=r,=r,=r,r,r,r", [units, first, second],
            (tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16), True, 2,
        )  # fmt: skip
    values = tl.join(tl.join(a, b), tl.join(c, d))
    return tl.reshape(tl.permute(values, (0, 1, 3, 6, 5, 2, 4)), [BLOCK_N, GROUPS * 128])


@triton.jit
def _scales(scales):
    """float8 -> bfloat16, times 2^118; in the interpreter float32, as they are over SMALLER."""
    if INTERPRETED:
        return scales.to(tl.float32) * (1.0 / SMALLER)
    return tl.inline_asm_elementwise(
        _SCALES, "=r,=r,r", [scales.to(tl.uint8, bitcast=True)], tl.bfloat16, True, 4
    )


@triton.jit
def _number(units, j: tl.constexpr):
    """Number j of each unit, float32. float16 has the exponent and the fraction as above."""
    wide = units.to(tl.uint16, bitcast=True)
    magnitude = ((wide >> (3 * j)) & 7) << 9
    sign = ((wide >> (12 + (j ^ 1))) & 1) << 15
    half = (magnitude | sign).to(tl.uint16).to(tl.float16, bitcast=True)
    return half.to(tl.float32) * 16384.0


@triton.jit
def eight_bits(numbers, dtype: tl.constexpr):
    """float8 (e4m3, no NaN) -> `dtype`, exact."""
    if INTERPRETED or dtype != tl.bfloat16:
        values = numbers.to(dtype)
    else:
        values = tl.inline_asm_elementwise(
            _EIGHT, "=r,h", [numbers.to(tl.uint8, bitcast=True)], tl.bfloat16, True, 2
        )
    return values
