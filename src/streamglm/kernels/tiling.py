"""How the rows of a pass are cut for matrix products, and what keeps an element's bits in torch.

Owns the value that the start-up self-check hands to every operator with a product, and torch's
elementwise functions made exact. Knows no weights and no model. Invariant: `split` cuts rows only
into sizes of `sizes`, so a row's bits are those of any other proven size, whatever the number of
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

VECTOR = 32
"""Values that one pass of torch's vector loops takes on the widest CPU (two registers of 16). What
is left over goes through scalar code, whose sigmoid has other bits."""

_SERIAL = 32768
"""Values up to which an elementwise operator stays on one thread, so that no thread starts in the
middle of a vector."""

_Unary = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Tiling:
    """What holds for one kind of pass on this machine.

    `sizes` are row counts, ascending, each a multiple of the one before, for which a row's bits
    depend on the row alone; (1,) means rows one by one. `entries` says that the entries of a
    batched product do not depend on the batch.
    """

    sizes: tuple[int, ...]
    entries: bool = True

    def pad(self, rows: int) -> int:
        """Rows that `rows` rows are computed with: whole tiles of the smallest size."""
        return -(-rows // self.sizes[0]) * self.sizes[0]

    def split(self, rows: int) -> Iterator[tuple[int, int]]:
        """`rows` as (start, size), the largest sizes first."""
        start = 0
        for size in reversed(self.sizes):
            while rows - start >= size:
                yield start, size
                start += size


def bmm(a: torch.Tensor, b: torch.Tensor, tiling: Tiling) -> torch.Tensor:
    """a [E, M, K] @ b [E, K, N]; entry by entry where the batch is not proved."""
    if tiling.entries:
        return torch.bmm(a, b)
    out = a.new_empty(a.shape[0], a.shape[1], b.shape[2])
    for entry in range(a.shape[0]):
        torch.bmm(a[entry : entry + 1], b[entry : entry + 1], out=out[entry : entry + 1])
    return out


def sigmoid_(x: torch.Tensor) -> torch.Tensor:
    """Sigmoid of [..., D], in place where D is whole vectors; the same bits at every place."""
    return _exact(x, torch.Tensor.sigmoid_)


def silu_(x: torch.Tensor) -> torch.Tensor:
    """SiLU of [..., D], in place where D is whole vectors; the same bits at every place."""
    return _exact(x, _silu_)


def exp_(x: torch.Tensor) -> torch.Tensor:
    """exp of [..., D], in place where D is whole vectors; the same bits at every place."""
    return _exact(x, torch.Tensor.exp_)


def _silu_(x: torch.Tensor) -> torch.Tensor:
    return F.silu(x, inplace=True)


def _exact(x: torch.Tensor, apply_: _Unary) -> torch.Tensor:
    width = x.shape[-1]
    if width % VECTOR:
        return _exact(F.pad(x, (0, -width % VECTOR)), apply_)[..., :width]
    if not x.is_contiguous():
        x = x.contiguous()
    if x.numel() <= _SERIAL or torch.get_num_threads() == 1:
        return apply_(x)
    for block in torch.split(x.view(-1), _SERIAL):
        apply_(block)
    return x
