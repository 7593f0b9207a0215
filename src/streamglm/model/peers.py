"""What a model needs of the other ranks: partial sums, parts of a row, rows for one another.

Owns the `Peers` protocol, and `Alone`, the rank that has no others. Knows no processes and no
transport: `ranks/collectives.py` has those. Invariant of every implementation: bytes are moved and
never computed on by the transport; sums are taken here, in float32 and in the order of the ranks,
so that every rank sees the same bits, whatever else is in the batch. Every rank makes the same
calls in the same order with the same sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import torch

from streamglm.kernels.arguments import Rows


class Peers(Protocol):
    """The ranks as one of them sees them. All calls but the numbers are collective."""

    rank: int
    world: int
    sent: Counter[str]
    """Bytes that this rank has sent to others, by call."""

    def add(self, partial: Rows, dtype: torch.dtype | None = None) -> Rows:
        """partial [rows, n] float32 -> p_0 + p_1 + ... + p_(world-1), in that order, on every
        rank, rounded once to `dtype` (float32). Torch in, torch out; numpy in, numpy out."""
        ...

    def join(self, part: Rows, widths: Sequence[int]) -> Rows:
        """part [rows, widths[rank]] -> [rows, sum(widths)]: the parts beside one another."""
        ...

    def trade(
        self,
        sends: Sequence[tuple[int, torch.Tensor]],
        receives: Sequence[tuple[int, torch.Tensor]],
    ) -> None:
        """One group of sends to, and receives from, other ranks, of contiguous tensors; a receive
        fills its tensor. What stands between two ranks meets in order, with equal sizes. Returns
        when all are done; a rank without any posts nothing and waits for nobody."""
        ...

    def spread(self, tensor: torch.Tensor, source: int) -> None:
        """`tensor` of `source` into `tensor` of every other rank, same shape."""
        ...


def partials(peers: Peers, whole: torch.dtype) -> torch.dtype:
    """The dtype of a rank's part of a sum that is of dtype `whole`: several ranks give float32, so
    that a sum is rounded once; a rank alone gives the sum."""
    return torch.float32 if peers.world > 1 else whole


class Alone:
    """World 1: nothing is moved, and a part of a sum is the sum."""

    rank = 0
    world = 1

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()

    def add(self, partial: Rows, dtype: torch.dtype | None = None) -> Rows:
        return partial

    def join(self, part: Rows, widths: Sequence[int]) -> Rows:
        return part

    def trade(
        self,
        sends: Sequence[tuple[int, torch.Tensor]],
        receives: Sequence[tuple[int, torch.Tensor]],
    ) -> None:
        assert not sends, "there is nobody to send to"
        assert not receives, "there is nobody to receive from"

    def spread(self, tensor: torch.Tensor, source: int) -> None:
        assert source == 0, "there is one rank"
