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
from streamglm.kernels.blocks import cast, sigmoid
from streamglm.kernels.short_conv.reference import ConvWeights

ROWS = 16
"""Rows of one program, or as many as a lane has; more than the inputs carried."""
CHANNELS = 256


@triton.jit
def _conv_kernel(
    x, carried, taps, outs, lanes, channels, stride, keep, give,
    TAPS: tl.constexpr, AHEAD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ROWS rows of lane i_n, BLOCK channels of them."""
    overlap.behind()
    i_c, i_r, i_n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = tl.load(lanes + i_n * 3).to(tl.int64)
    count = tl.load(lanes + i_n * 3 + 1)
    slot = tl.load(lanes + i_n * 3 + 2).to(tl.int64)
    channel = i_c * BLOCK + tl.arange(0, BLOCK)
    inside = (channel < channels)[None, :]
    row = i_r * ROWS + tl.arange(0, ROWS)
    before = carried + slot * (TAPS - 1) * channels + channel[None, :]
    if (i_r == 0) | (i_r * ROWS < count):
        if give != 0:
            total = tl.zeros([ROWS, BLOCK], tl.float32)
            real = (row < count)[:, None] & inside
            for tap in tl.static_range(TAPS):
                at = row - (TAPS - 1) + tap
                new = real & (at >= 0)[:, None]
                from_row = x + (first + at)[:, None] * stride + channel[None, :]
                value = tl.load(from_row, mask=new, other=0.0).to(tl.float32)
                if tap < TAPS - 1:
                    old = real & (at < 0)[:, None]
                    kept_at = before + (TAPS - 1 + at)[:, None] * channels
                    value += tl.load(kept_at, mask=old, other=0.0).to(tl.float32)
                weight = taps + tap * channels + channel[None, :]
                total += value * tl.load(weight, mask=inside, other=0.0)
            total = cast(total * sigmoid(total), outs.dtype.element_ty)
            out = outs + (first + row)[:, None] * channels + channel[None, :]
            tl.store(out, total, mask=real)
        if (i_r == 0) & (keep != 0) & (count > 0):  # a lane of no rows moves nothing
            place = tl.arange(0, AHEAD)
            source = count - (TAPS - 1) + place
            carries = (place < TAPS - 1)[:, None] & inside
            is_old = (source < 0)[:, None]
            from_x = x + (first + source)[:, None] * stride + channel[None, :]
            from_kept = before + (TAPS - 1 + source)[:, None] * channels
            moved = tl.load(from_x, mask=carries & (source >= 0)[:, None], other=0.0).to(tl.float32)
            stays = tl.load(from_kept, mask=carries & is_old, other=0.0).to(tl.float32)
            moved = cast(tl.where(is_old, stays, moved), carried.dtype.element_ty)
            tl.debug_barrier()  # all that was carried is read, by every thread
            tl.store(before + place[:, None] * channels, moved, mask=carries)


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

    x [R, C], carried [slots, K - 1, C] contiguous, lanes [N, 3] int32: first row, rows, slot; no
    lane has more than `most` rows. What is carried moves on only to `keep`; the outputs are written
    only to `give`, which a replay of accepted rows does not ask. Raises `ArgumentError` when the
    shapes do not fit.
    """
    taps, channels = weight.taps.shape
    if x.shape[1] != channels or carried.shape[1:] != (taps - 1, channels) or taps - 1 > ROWS:
        raise ArgumentError(f"conv: x {x.shape}, carried {carried.shape}, {taps} taps")
    outs = x.new_empty(x.shape[0] if give else 1, channels)
    block = min(CHANNELS, triton.next_power_of_2(channels))
    rows = min(ROWS, triton.next_power_of_2(most)) if give else 1
    tiles = triton.cdiv(most, rows) if give else 1
    _conv_kernel[(triton.cdiv(channels, block), tiles, len(lanes))](
        x, carried, weight.taps, outs, lanes, channels, x.stride(0), int(keep), int(give),
        TAPS=taps, AHEAD=max(2, triton.next_power_of_2(taps - 1)), ROWS=rows, BLOCK=block,
        num_warps=4, **overlap.options(),
    )  # fmt: skip
    return outs
