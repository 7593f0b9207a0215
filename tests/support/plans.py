"""Inputs of start-up plans: the sizes of published worked examples, and the real shape's own."""

from __future__ import annotations

from streamglm.model.shapes import glm_5_3_flash
from streamglm.pool.carve import GIB, Sizes
from streamglm.pool.layout import RowFormat

MIB = 1 << 20
MILLION = 1 << 20
"""The model's own window."""
WHOLE_PAGE = 6_684_672
"""6.375 MiB: 512 rows of 13,056 bytes."""
POOLED_PAGE = 393_216
"""384 KiB of it are pooled keys. With half of the latent rows it is 3.375 MiB."""
ROUND_FIXED = 180 * MIB
"""A lane's fixed part, and a slot, in the examples of two ranks."""
RINGS_FIXED = 347_492_352
"""331.4 MiB: a lane's fixed part at one rank with rings of 4,096 rows and two KDA states."""


def example(fixed: float = ROUND_FIXED, *, world: int = 2) -> Sizes:
    """Sizes of a worked example: its own fixed part, its own slot, bf16 rows."""
    return Sizes(
        page_rows=512,
        whole_page_bytes=WHOLE_PAGE,
        pooled_page_bytes=POOLED_PAGE,
        fixed_bytes=int(fixed),
        slot_bytes=180 * MIB,
        slack=16,
        max_context=MILLION,
        world=world,
        heads=64,
    )


def real(world: int = 1, rows: RowFormat = RowFormat.BF16) -> Sizes:
    """Sizes of one of `world` ranks of GLM-5.3-Flash."""
    spec = glm_5_3_flash()
    shape = spec.cache_shape(rows, world=world)
    return Sizes.of(shape, world=world, heads=spec.kda_heads, max_context=spec.max_positions)


def gib(count: float) -> int:
    """GiB to whole bytes."""
    return int(count * GIB)
