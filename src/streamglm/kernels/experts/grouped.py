"""Rows grouped by expert, in blocks: what the grouped products go by.

Owns the form of a grouping and its making with torch, on whatever device. Knows no weights.
Invariant: every pair of a row and one of its experts stands in exactly one block; a grouping is a
function of the choice alone, and making it asks nothing of the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Grouped:
    """P pairs of a row and an expert; pair row * C + c is the row's c-th expert."""

    order: torch.Tensor
    """[P] int32: pairs ascending in the expert, then in the pair; an index into it is a place."""
    table: torch.Tensor
    """[3, B] int32: of each block its expert, first place, and number of places; 0 of idle ones."""


def group(chosen: torch.Tensor, experts: int, rows: int) -> Grouped:
    """chosen [R, C] int32, each below `experts`; `rows` is how many a block has at most."""
    flat = chosen.flatten().long()
    order = torch.sort(flat, stable=True).indices
    ones = torch.ones_like(flat)
    counts = torch.zeros(experts, dtype=torch.int64, device=flat.device).scatter_add_(0, flat, ones)
    starts = counts.cumsum(0) - counts
    blocks = (counts + rows - 1) // rows
    ends = blocks.cumsum(0)
    most = len(flat) // rows + min(experts, len(flat))
    ids = torch.arange(most, device=flat.device)
    expert = torch.searchsorted(ends, ids, right=True).clamp_(max=experts - 1)
    within = (ids - (ends - blocks)[expert]) * rows
    places = (counts[expert] - within).clamp_(max=rows)
    table = torch.stack([expert, starts[expert] + within, places])
    table.masked_fill_((ids >= ends[-1]).unsqueeze(0), 0)
    return Grouped(order.int(), table.int())
