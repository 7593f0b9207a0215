"""Programmatic dependent launch: a kernel's programs start while the kernel before them still ends.

Owns both sides of it: what a launch is told and what a kernel does first. Knows no operator.
Starting a kernel costs a few microseconds of an idle GPU, and a window has some twenty kernels a
layer. Invariant: a kernel that is launched with `options` calls `behind` before it touches memory
that a kernel may have written, so that it sees what it would see if nothing overlapped; only
constants, weights above all, may be asked for before, by `ahead`.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from streamglm.kernels.blocks import INTERPRETED


@triton.jit
def behind():
    """Let the next kernel's programs start where there is room, then wait for the one before."""
    if not INTERPRETED:
        if tl.target_info.cuda_capability_geq(9, 0):
            tl.extra.cuda.gdc_launch_dependents()
            tl.extra.cuda.gdc_wait()


@triton.jit
def ahead(p, BYTES: tl.constexpr):
    """Have the L2 fetch BYTES bytes from each pointer of p on; both are multiples of 16.

    It moves no value to the kernel, so it may come before `behind`: the memory brings weights while
    the kernel before still ends.
    """
    if not INTERPRETED:
        if tl.target_info.cuda_capability_geq(9, 0):
            tl.extra.cuda.gdc_launch_dependents()
            tl.inline_asm_elementwise(
                "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;", "=r,l,r",
                [p.to(tl.int64), BYTES], dtype=tl.int32, is_pure=False, pack=1,
            )  # fmt: skip


@functools.cache
def options() -> dict[str, bool]:
    """Keywords of a launch: for GPUs that know of it (compute capability 9), or none."""
    able = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
    return {"launch_pdl": True} if able and not INTERPRETED.value else {}
