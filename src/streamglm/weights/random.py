"""Random weights of a spec's own shapes, made on a device: for measuring without a checkpoint.

Owns their distribution: values of about unit size over the root of what they are summed over, so
that activations neither vanish nor overflow. Knows no files; which parameters there are is in
`made`. Invariant: the same seed gives the same weights on the same device, to any number of ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from streamglm.kernels import matrix
from streamglm.kernels.matrix import BLOCK, SCALED, Format, Matrix
from streamglm.model.share import Span
from streamglm.model.spec import ModelSpec
from streamglm.weights.checkpoint import Loaded
from streamglm.weights.made import FLOAT32, Piece, kept, pieces, shapes
from streamglm.weights.packed import Held, Params

FORMATS = {"bf16": Format.PLAIN, "fp8": Format.FP8, "nvfp4": Format.NVFP4}
"""Of routed experts, by the words of `--expert-format`."""
_WORDS = {format: word for word, format in FORMATS.items()}


def held(
    spec: ModelSpec, device: torch.device, experts: str, *, rank: int = 0, world: int = 1
) -> Held:
    """`params` as a GPU holds them."""
    made = params(spec, device, FORMATS[experts], rank=rank, world=world)
    told = _fingerprint(spec, device, experts, rank, world)
    return Held(made, bool(spec.mtp_layers), 0, told)


def loaded(spec: ModelSpec, experts: str, *, rank: int = 0, world: int = 1) -> Loaded:
    """`params` as the CPU holds them: the same values in float32."""
    device = torch.device("cpu")
    sizes = shapes(spec, rank=rank, world=world)
    made = params(spec, device, FORMATS[experts], rank=rank, world=world)
    values = {
        name: (one.values() if isinstance(one, Matrix) else one.float()).reshape(sizes[name])
        for name, one in made.items()
    }
    told = _fingerprint(spec, device, experts, rank, world)
    return Loaded(values, bool(spec.mtp_layers), 0, told)


def _fingerprint(spec: ModelSpec, device: torch.device, experts: str, rank: int, world: int) -> str:
    """Another device makes other numbers of the same seed, and another torch may."""
    told = f"random {spec} {experts} {device.type} {torch.__version__} {rank} of {world}"
    return hashlib.sha256(told.encode()).hexdigest()


def params(
    spec: ModelSpec,
    device: torch.device,
    experts: Format = Format.PLAIN,
    *,
    rank: int = 0,
    world: int = 1,
    seed: int = 0,
) -> Params:
    """Every parameter of `spec`, the routed experts in a format of their own. Each rank makes all
    numbers, parameter by parameter, and keeps its part of them: the parts are of one model."""
    generator = torch.Generator(device=device).manual_seed(seed)
    made = _Made(device, generator)
    own, cut = shapes(spec, rank=rank, world=world), pieces(spec, rank, world)
    found: Params = {}
    for name, shape in shapes(spec).items():
        part = Part(own[name], cut.get(name, ()))
        if len(shape) == 3:
            found[name] = made.stack(shape, experts, part)
        else:
            found[name] = part.of(made.one(name, shape))
    return found


@dataclass(frozen=True, slots=True)
class Part:
    """What a rank keeps of a parameter: all without `pieces`, else these, in `shape`."""

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def of(self, whole: torch.Tensor, rows: int = 1, columns: int = 1) -> torch.Tensor:
        """The part of `whole`, one of whose values stands for so many rows and columns."""
        if not self.pieces:
            return whole
        units = (rows, columns)
        last = self.shape[-len(self.pieces[0].into) :]
        sizes = (-(-size // unit) for size, unit in zip(last, units, strict=False))
        raw = whole.view(torch.uint8) if whole.dtype.itemsize == 1 else whole
        own = raw.new_empty(*whole.shape[: whole.ndim - len(last)], *sizes)
        for piece in self.pieces:
            own[_region(piece.into, units)] = raw[_region(piece.source, units)]
        return own.view(whole.dtype)


def _region(spans: Sequence[Span], units: Sequence[int]) -> tuple[Any, ...]:
    """The last dimensions of whatever has them."""
    pairs = zip(spans, units, strict=False)
    return (..., *(slice(span.start // unit, -(-span.stop // unit)) for span, unit in pairs))


class _Made:
    def __init__(self, device: torch.device, generator: torch.Generator) -> None:
        self._device, self._generator = device, generator

    def one(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """A vector is a norm, a bias or a rate; a matrix is a matrix."""
        if len(shape) > 1:
            scale = float(shape[-1]) ** -0.5
            values: torch.Tensor = self._noise(shape) * scale
        elif name.endswith("norm.weight") or "layernorm" in name:
            values = 1.0 + 0.1 * self._noise(shape)
        else:
            values = 0.1 * self._noise(shape)
        return values.to(torch.float32 if name.endswith(FLOAT32) else torch.bfloat16)

    def stack(self, shape: tuple[int, ...], format: Format, part: Part) -> torch.Tensor | Matrix:
        """Experts one by one, so that nothing but the stack is large."""
        count, n, k = shape
        if format is Format.PLAIN:
            out = torch.empty(part.shape, dtype=torch.bfloat16, device=self._device)
            for expert in range(count):
                out[expert] = part.of(self._noise((n, k)) * k**-0.5)
            return out
        packed = self._fp8 if format is Format.FP8 else self._nvfp4
        if FORMATS[kept(_WORDS[format], part.pieces)] is format:
            return packed(shape, part)
        return part.of(packed(shape, Part(shape, ())).values()).to(torch.bfloat16)

    def _fp8(self, shape: tuple[int, ...], part: Part) -> Matrix:
        count, n, k = shape
        numbers = torch.empty(part.shape, dtype=torch.float8_e4m3fn, device=self._device)
        for expert in range(count):
            values = (64.0 * self._noise((n, k))).clamp(-448.0, 448.0)
            numbers[expert] = part.of(values).to(numbers.dtype)
        scales = self._even((count, -(-n // BLOCK), -(-k // BLOCK))) * k**-0.5 / 64.0
        return matrix.fp8(numbers, part.of(scales, BLOCK, BLOCK))

    def _nvfp4(self, shape: tuple[int, ...], part: Part) -> Matrix:
        count, n, k = shape
        packed = torch.randint(
            0, 256, (count, n, k // 2), dtype=torch.uint8, device=self._device,
            generator=self._generator,
        )  # fmt: skip
        numbers = part.of(packed, 1, 2)
        scales = part.of(self._even((count, n, k // SCALED)).to(torch.float8_e4m3fn), 1, SCALED)
        whole = torch.full((count, 1), 0.4 * k**-0.5, device=self._device)
        return matrix.nvfp4(numbers, scales, whole)

    def _noise(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, device=self._device, generator=self._generator)

    def _even(self, shape: tuple[int, ...]) -> torch.Tensor:
        """From 0.5 to 1.5."""
        noise: torch.Tensor = torch.rand(
            prod(shape), device=self._device, generator=self._generator
        )
        return noise.view(shape) + 0.5
