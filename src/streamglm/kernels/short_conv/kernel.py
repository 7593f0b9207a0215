"""The short convolution on a GPU: the rows of lanes, of prompts and windows alike.

Owns the inputs carried from one call to the next. Invariants: an output's bits depend on its K
inputs alone; the first program of a lane reads what was carried and then replaces it, and no other
program touches it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.arguments import ArgumentError
from streamglm.kernels.blocks import INTERPRETED, cast, sigmoid
from streamglm.kernels.short_conv.reference import ConvWeights

ROWS = 16
"""Rows of one program, or as many as a lane has; more than the inputs carried."""
CHANNELS, WARPS = 512, 2
"""Of one program: a thread has 8 channels, which are 16 bytes of a row."""


@triton.jit
def _silu(x):
    """x / (1 + exp(-x)) float32 in five instructions: as many outputs as a prompt has would
    otherwise take longer to compute than to write. What overflows gives zero."""
    if INTERPRETED:
        return x * sigmoid(x)
    else:
        return tl.inline_asm_elementwise(
            """
            {
            .reg .f32 e;
            mul.f32 e, $1, 0fBFB8AA3B;
            ex2.approx.ftz.f32 e, e;
            add.f32 e, e, 0f3F800000;
            rcp.approx.ftz.f32 e, e;
            mul.f32 $0, $1, e;
            }
            """,
            "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1,
        )  # fmt: skip


@triton.jit
def _given(inside, row_is):
    """`inside` where `row_is`, which is one for all of the row."""
    return tl.where(row_is, inside, False)


@triton.jit
def _conv_kernel(
    x, carried, taps, outs, lanes, channels, stride, slot_stride, row_stride, keep, give,
    TAPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ROWS rows of lane i_n, BLOCK channels of them: each is asked for once, all before any is
    used."""
    i_c, i_r, i_n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    channel = i_c * BLOCK + tl.arange(0, BLOCK)
    inside = channel < channels
    weights = ()
    for tap in tl.static_range(TAPS):
        b_tap = tl.load(taps + tap * channels + channel, mask=inside, other=0.0)
        weights = weights + (b_tap,)  # noqa: RUF005
    overlap.behind()
    first = tl.load(lanes + i_n * 3).to(tl.int64)
    count = tl.load(lanes + i_n * 3 + 1)
    slot = tl.load(lanes + i_n * 3 + 2).to(tl.int64)
    before = carried + slot * slot_stride + channel
    start = i_r * ROWS - (TAPS - 1)
    if (i_r == 0) | (i_r * ROWS < count):
        if give != 0:
            inputs = ()
            for i in tl.static_range(ROWS + TAPS - 1):
                at = start + i
                there = _given(inside, (at >= 0) & (at < count))
                value = tl.load(x + (first + at) * stride + channel, mask=there, other=0.0)
                if i < TAPS - 1:
                    old = _given(inside, at < 0)
                    kept = tl.load(before + i * row_stride, mask=old, other=0.0)
                    value = tl.where(at < 0, kept.to(value.dtype), value)
                inputs = inputs + (value,)  # noqa: RUF005
            for i in tl.static_range(ROWS):
                total = tl.zeros([BLOCK], tl.float32)
                for tap in tl.static_range(TAPS):
                    total += inputs[i + tap].to(tl.float32) * weights[tap]
                row = i_r * ROWS + i
                out = outs + (first + row) * channels + channel
                total = cast(_silu(total), outs.dtype.element_ty)
                tl.store(out, total, mask=_given(inside, row < count))
        if (i_r == 0) & (keep != 0) & (count > 0):  # a lane of no rows moves nothing
            moved = ()
            for i in tl.static_range(TAPS - 1):
                source = count - (TAPS - 1) + i
                from_x = x + (first + source) * stride + channel
                fresh = tl.load(from_x, mask=_given(inside, source >= 0), other=0.0)
                from_kept = before + (TAPS - 1 + source) * row_stride
                stays = tl.load(from_kept, mask=_given(inside, source < 0), other=0.0)
                carry = tl.where(source < 0, stays.to(tl.float32), fresh.to(tl.float32))
                moved = moved + (cast(carry, carried.dtype.element_ty),)  # noqa: RUF005
            tl.debug_barrier()  # all that was carried is read, by every thread
            for i in tl.static_range(TAPS - 1):
                tl.store(before + i * row_stride, moved[i], mask=inside)


def conv(
    x: torch.Tensor,
    carried: torch.Tensor,
    weight: ConvWeights,
    lanes: torch.Tensor,
    most: int,
    *,
    keep: bool = True,
    give: bool = True,
) -> torch.Tensor:
    """silu(sum_t weight_t x_(i - K + 1 + t)) of the rows of N lanes -> [R, C] in the dtype of x.

    x [R, C], carried [slots, K - 1, C] with rows apart or not, lanes [N, 3] int32: first row, rows,
    slot; no lane has more than `most` rows. What is carried moves on only to `keep`; the outputs
    are written only to `give`, which a replay of accepted rows does not ask. Raises `ArgumentError`
    when the shapes do not fit.
    """
    taps, channels = weight.taps.shape
    if x.shape[1] != channels or carried.shape[1:] != (taps - 1, channels) or taps - 1 > ROWS:
        raise ArgumentError(f"conv: x {x.shape}, carried {carried.shape}, {taps} taps")
    outs = x.new_empty(x.shape[0] if give else 1, channels)
    block = min(CHANNELS, triton.next_power_of_2(channels))
    rows = min(ROWS, triton.next_power_of_2(most)) if give else 1
    tiles = triton.cdiv(most, rows) if give else 1
    _conv_kernel[(triton.cdiv(channels, block), tiles, len(lanes))](
        x, carried, weight.taps, outs, lanes, channels, x.stride(0), carried.stride(0),
        carried.stride(1), int(keep), int(give),
        TAPS=taps, ROWS=rows, BLOCK=block, num_warps=WARPS, **overlap.options(),
    )  # fmt: skip
    return outs
