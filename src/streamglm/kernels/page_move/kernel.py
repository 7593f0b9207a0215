"""Whole pages moved in words of 8 bytes: one program a piece of a page of a cache."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def move_kernel(
    p_from, p_sources, p_to, p_targets, PAGES_FROM, PAGES_TO, WORDS,
    GATHER: tl.constexpr, SCATTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Page i of the list is row sources[i] of `from` and row targets[i] of `to`, or row i."""
    i_page = tl.program_id(0)
    i_cache = tl.program_id(2).to(tl.int64)
    source = tl.load(p_sources + i_page) if GATHER else i_page.to(tl.int64)
    target = tl.load(p_targets + i_page) if SCATTER else i_page.to(tl.int64)
    o_word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = o_word < WORDS
    b_words = tl.load(p_from + (i_cache * PAGES_FROM + source) * WORDS + o_word, mask=mask)
    tl.store(p_to + (i_cache * PAGES_TO + target) * WORDS + o_word, b_words, mask=mask)


def move(
    source: torch.Tensor,
    sources: torch.Tensor | None,
    target: torch.Tensor,
    targets: torch.Tensor | None,
) -> None:
    """[caches, ., bytes] uint8 each; without a list of pages, all of them in their order."""
    given, taken = source.contiguous().view(torch.int64), target.view(torch.int64)
    listed = sources if sources is not None else targets
    assert listed is not None
    words = given.shape[2]
    move_kernel[(len(listed), triton.cdiv(words, BLOCK), len(given))](
        p_from=given, p_sources=listed if sources is None else sources, p_to=taken,
        p_targets=listed if targets is None else targets,
        PAGES_FROM=given.shape[1], PAGES_TO=taken.shape[1], WORDS=words,
        GATHER=sources is not None, SCATTER=targets is not None, BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
