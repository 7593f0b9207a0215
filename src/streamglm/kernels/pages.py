"""Rows in pages: where a slot lies, in which format its row is kept, and the way back to float32.

Owns the formats and the address of a row. Knows no lanes and no caches. A slot is page * S + place
in every format, and a page of S rows of D values holds

    values  [0, S)  float32, bfloat16, or float8 (e4m3)
    scales  [0, S)  float8 alone, behind the page's values: a row is values * scale

Invariants: the stored bits of a row depend on the row alone; all bits set are NaN in every format,
and all bits clear are zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from streamglm.kernels.arguments import Array, Ids

FLOAT8 = torch.float8_e4m3fn
LARGEST = 448.0
"""The largest value of a float8."""
LEAST_SCALE = 2.0**-120
"""So that a row of zeros has a scale to be divided by, and no scale is denormal."""


@dataclass(frozen=True, slots=True)
class Pages:
    """P pages, as torch and as numpy see them: the same memory."""

    values: torch.Tensor
    """[P, S, D] float32, bfloat16 or float8; S rows lie side by side, pages need not"""
    scales: torch.Tensor | None
    """[P, S] float32, of float8"""
    host: npt.NDArray[Any]
    """[P, S, D] float32, or the bits of narrower values as uint16 or uint8; on a GPU empty"""
    host_scales: Array | None

    @property
    def rows(self) -> int:
        """S."""
        return self.values.shape[1]

    @property
    def dim(self) -> int:
        """D."""
        return self.values.shape[2]


def view(memory: torch.Tensor, rows: int, dim: int, dtype: torch.dtype) -> Pages:
    """memory [P, bytes of a page] uint8, contiguous, as pages of `rows` rows of `dim` values."""
    end = rows * dim * dtype.itemsize
    values = memory[:, :end].view(dtype).view(-1, rows, dim)
    scales = memory[:, end:].view(torch.float32) if dtype == FLOAT8 else None
    return Pages(
        values=values,
        scales=scales,
        host=_host(bits(values)),
        host_scales=None if scales is None else _host(scales),
    )


def _host(x: torch.Tensor) -> npt.NDArray[Any]:
    """x as numpy sees it; memory of a GPU, which it does not see, as nothing."""
    return x.numpy() if x.device.type == "cpu" else np.empty(0, np.uint8)


def plain(values: torch.Tensor) -> Pages:
    """values [P, S, D], contiguous, as pages."""
    return Pages(values, None, _host(bits(values)), None)


def page_bytes(rows: int, dim: int, dtype: torch.dtype) -> int:
    """Bytes of one page."""
    return rows * (dim * dtype.itemsize + (4 if dtype == FLOAT8 else 0))


def bits(values: torch.Tensor) -> torch.Tensor:
    """Narrow values as the integers that numpy, too, has a type for; float32 as it is."""
    kinds = {1: torch.uint8, 2: torch.uint16}
    return values.view(kinds[values.itemsize]) if values.itemsize < 4 else values


def encode(rows: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor | None]:
    """rows [N, D] float32 -> values [N, D] of `dtype`, and scales [N] of float8.

    A scale is the row's largest magnitude over 448; values round to the nearest, ties to even. A
    row that is not finite has no finite value.
    """
    if dtype != FLOAT8:
        return rows.to(dtype), None
    scales = rows.abs().amax(1).div_(LARGEST).clamp_(min=LEAST_SCALE)
    values = rows.div(scales.unsqueeze(1)).clamp_(-LARGEST, LARGEST)
    return values.to(FLOAT8), scales


def read(pages: Pages, slots: torch.Tensor) -> torch.Tensor:
    """The rows at slots [N] -> [N, D] float32."""
    if pages.scales is None:
        return pages.values.view(-1, pages.dim).index_select(0, slots).float()
    return torch.from_numpy(read_host(pages, slots.numpy()))  # its table is twice as fast


def read_pages(pages: Pages, ids: torch.Tensor) -> torch.Tensor:
    """Whole pages: ids [N] -> [N, S, D] float32."""
    if pages.scales is None:
        return pages.values.index_select(0, ids).float()
    return torch.from_numpy(read_pages_host(pages, ids.numpy()))


def read_host(pages: Pages, slots: Ids) -> Array:
    """The rows at slots [...] -> [..., D]."""
    if pages.host_scales is None:
        return _widened(pages.host.reshape(-1, pages.dim)[slots])
    page, place = np.divmod(slots, pages.rows)
    return _scaled(pages.host[page, place], pages.host_scales[page, place])


def read_pages_host(pages: Pages, ids: Ids) -> Array:
    """Whole pages: ids [N] -> [N, S, D]."""
    if pages.host_scales is None:
        return _widened(pages.host[ids])
    return _scaled(pages.host[ids], pages.host_scales[ids])


def _widened(values: npt.NDArray[Any]) -> Array:
    """float32 as it is; the bits of bfloat16 are the upper half of a float32's."""
    if values.itemsize == 4:
        return values
    wide = values.astype(np.uint32)
    return np.left_shift(wide, 16, wide).view(np.float32)


def _scaled(stored: npt.NDArray[Any], scales: Array) -> Array:
    rows: Array = _VALUES.take(stored)
    return np.multiply(rows, scales[..., None], rows)


_VALUES: Array = torch.arange(256, dtype=torch.uint8).view(FLOAT8).float().numpy()
"""The value of each float8 by its bits."""
_VALUES.setflags(write=False)
