"""The memory behind page ids on a GPU: `PoolTensors` without numpy.

Owns how pages are moved there. Invariants are those of `PoolTensors`; a copy in host memory is
pinned, so that it goes to the device at the speed of the bus.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from streamglm.pool.layout import CacheShape
from streamglm.pool.memory import Memory
from streamglm.pool.tensors import POISON, PageCopies, PoolTensors, Raw


class DevicePool(PoolTensors):
    """Pages of one rank, on a device; every rank has the latent rows of every page."""

    def __init__(
        self, shape: CacheShape, pages: int, memory: Memory, *, poison: bool = False
    ) -> None:
        self._device = memory.device
        super().__init__(shape, pages, poison=poison)

    def _blank(self, *sizes: int) -> torch.Tensor:
        return torch.zeros(sizes, dtype=torch.uint8, device=self._device)

    def _index(self, pages: Sequence[int]) -> torch.Tensor:
        return torch.tensor(list(pages), dtype=torch.int64).to(self._device)

    def take(self, pages: Sequence[int]) -> None:
        if self._poison and pages:
            for table in (self.latents, self.keys):
                table.index_fill_(1, self._index(pages), POISON)

    def copy_out(self, pages: Sequence[int]) -> PageCopies:
        at = self._index(pages)
        return PageCopies(self.latents.index_select(1, at), self.keys.index_select(1, at))

    def copy_keys(self, pages: Sequence[int], sources: Sequence[int]) -> None:
        self.keys[:, self._index(pages)] = self.keys[:, self._index(sources)]

    def page(self, page: int) -> list[Raw]:
        return [table[:, page].flatten().cpu().numpy() for table in (self.latents, self.keys)]

    def put(self, page: int, sections: Sequence[Raw]) -> None:
        for table, section in zip((self.latents, self.keys), sections, strict=True):
            if len(section):
                rows = torch.tensor(section)  # a copy, which may be written to
                table[:, page] = rows.view(table.shape[0], -1).to(self._device)

    def copy_in(self, pages: Sequence[int], copies: PageCopies, *, rows: bool = True) -> None:
        at = self._index(pages)
        if rows:
            self.latents[:, at] = copies.latents.to(self._device)
        self.keys[:, at] = copies.keys.to(self._device)
