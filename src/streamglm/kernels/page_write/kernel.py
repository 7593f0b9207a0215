"""Rows into pages on a GPU: one program a row, which is encoded once, as `pages.encode` has it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from streamglm.kernels import overlap
from streamglm.kernels.blocks import cast, cast_float8
from streamglm.kernels.pages import LARGEST, LEAST_SCALE, Pages

_LARGEST = tl.constexpr(LARGEST)
_LEAST = tl.constexpr(LEAST_SCALE)


@triton.jit
def _write_kernel(
    rows, slots, values, scales, stride, page_stride, scale_stride,
    D: tl.constexpr, WIDTH: tl.constexpr, PLACES: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    overlap.behind()
    i_r = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + i_r).to(tl.int64)
    if slot >= 0:
        page, place = slot // PLACES, slot % PLACES
        d = tl.arange(0, WIDTH)
        x = tl.load(rows + i_r * stride + d, mask=d < D, other=0.0).to(tl.float32)
        at = values + page * page_stride + place * D + d
        if SCALED:
            scale = tl.maximum(tl.div_rn(tl.max(tl.abs(x), 0), _LARGEST), _LEAST)
            x = tl.div_rn(x, tl.zeros_like(x) + scale)
            x = tl.minimum(tl.maximum(x, -_LARGEST), _LARGEST)
            tl.store(at, cast_float8(x), mask=d < D)
            tl.store(scales + page * scale_stride + place, scale)
        else:
            tl.store(at, cast(x, values.dtype.element_ty), mask=d < D)


def page_write(pages: Pages, slots: torch.Tensor, values: torch.Tensor) -> None:
    """values [N, D] to the slots [N]; a slot below 0 is none."""
    scaled = pages.scales is not None
    scales = pages.scales if pages.scales is not None else pages.values
    _write_kernel[(len(slots),)](
        values, slots, pages.values, scales,
        values.stride(0), pages.values.stride(0), scales.stride(0) if scaled else 0,
        D=pages.dim, WIDTH=triton.next_power_of_2(pages.dim), PLACES=pages.rows, SCALED=scaled,
        num_warps=1, **overlap.options(),
    )  # fmt: skip
