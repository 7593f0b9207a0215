"""Weights as checkpoints store them, for contracts: random ones, and their values in float64.

Owns the formulas of the formats, written a second time, from the checkpoint's side. Knows no
operator. Invariant: `values` shares no code with `Matrix`, so what packs or unpacks wrongly is red.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from streamglm.kernels import launch, matrix
from streamglm.kernels.contract import STORED, TRITON, Noise
from streamglm.kernels.matrix import BLOCK, SCALED, Format, Matrix

Double = npt.NDArray[np.float64]
_MAGNITUDES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """[E, N, K] with values of about unit size over the root of K."""

    format: Format
    numbers: torch.Tensor
    scales: torch.Tensor | None = None
    whole: torch.Tensor | None = None
    made: dict[torch.device, Matrix] = field(default_factory=dict, compare=False, repr=False)
    """By device: promises run an operator dozens of times on the same weights."""

    def matrix(self, form: str) -> Matrix:
        """As the operator takes it, where a form computes; made once."""
        device = launch.device() if form == TRITON else torch.device("cpu")
        if device not in self.made:
            self.made[device] = self._on(device)
        return self.made[device]

    def _on(self, device: torch.device) -> Matrix:
        parts = [
            part.to(device) for part in (self.numbers, self.scales, self.whole) if part is not None
        ]
        make = (matrix.plain, matrix.fp8, matrix.nvfp4)[self.format]
        return make(*parts)

    @property
    def bytes(self) -> int:
        """Of all its parts."""
        parts = (self.numbers, self.scales, self.whole)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def elements(self) -> int:
        """E N K."""
        return self.numbers.numel() * (1 if self.whole is None else 2)

    def values(self, *, halves_swapped: bool = False, scales_moved: int = 0) -> Double:
        """[E, N, K]; the options are faults."""
        if self.scales is None:
            plain: Double = self.numbers.double().numpy()
            return plain
        scales = self.scales.double().numpy()
        scales = np.roll(scales, (scales_moved, scales_moved), (1, 2))
        if self.whole is None:
            rows, columns = self.numbers.shape[1:]
            grown = scales.repeat(BLOCK, 1).repeat(BLOCK, 2)[:, :rows, :columns]
            scaled: Double = self.numbers.double().numpy() * grown
            return scaled
        packed = self.numbers.numpy()
        halves = [packed % 16, packed // 16]
        pairs = np.stack(halves[::-1] if halves_swapped else halves, 3)
        numbers = pairs.reshape(*packed.shape[:2], -1)
        values = np.where(numbers < 8, 1.0, -1.0) * _MAGNITUDES[numbers % 8]
        per_row = self.whole.double().numpy().repeat(packed.shape[1] // self.whole.shape[1], 1)
        unpacked: Double = values * scales.repeat(SCALED, 2) * per_row[:, :, None]
        return unpacked


def random(
    noise: Noise,
    format: Format,
    shape: tuple[int, int, int],
    *,
    itemsize: int = 2,
    halves: int = 1,
) -> StoredMatrix:
    """A matrix [E, N, K]; `itemsize` of plain numbers, `halves` of a matrix with own scales."""
    count, rows, columns = shape
    size = columns**-0.5
    if format is Format.PLAIN:
        values = noise.standard_normal(shape, np.float32) * np.float32(size)
        return StoredMatrix(format, torch.from_numpy(values).to(STORED[itemsize]))
    if format is Format.FP8:
        numbers = torch.from_numpy(noise.standard_normal(shape, np.float32))
        grid = (count, -(-rows // BLOCK), -(-columns // BLOCK))
        scales = torch.from_numpy(size * (0.5 + noise.random(grid, np.float32)))
        return StoredMatrix(format, numbers.to(torch.float8_e4m3fn), scales.float())
    packed = noise.integers(0, 256, (count, rows, columns // 2), np.uint8)
    groups = 0.25 + noise.random((count, rows, columns // SCALED), np.float32)
    whole = size * (0.2 + noise.random((count, halves), np.float32))
    return StoredMatrix(
        format,
        torch.from_numpy(packed),
        torch.from_numpy(groups).to(torch.float8_e4m3fn),
        torch.from_numpy(whole).float(),
    )
