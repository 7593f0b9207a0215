"""Random weights of a spec's own shapes, made on a device: for measuring without a checkpoint.

Owns their distribution: values of about unit size over the root of what they are summed over, so
that activations neither vanish nor overflow. Knows no files; which parameters there are is in
`made`. Invariant: the same seed gives the same weights on the same device.
"""

from __future__ import annotations

import hashlib
from math import prod

import torch

from streamglm.kernels import matrix
from streamglm.kernels.matrix import BLOCK, SCALED, Format, Matrix
from streamglm.model.spec import ModelSpec
from streamglm.weights.checkpoint import Loaded
from streamglm.weights.made import FLOAT32, shapes
from streamglm.weights.packed import Held, Params

FORMATS = {"bf16": Format.PLAIN, "fp8": Format.FP8, "nvfp4": Format.NVFP4}
"""Of routed experts, by the words of `--expert-format`."""


def held(spec: ModelSpec, device: torch.device, experts: str) -> Held:
    """`params` as a GPU holds them."""
    made = params(spec, device, FORMATS[experts])
    return Held(made, bool(spec.mtp_layers), 0, _fingerprint(spec, device, experts))


def loaded(spec: ModelSpec, experts: str) -> Loaded:
    """`params` as the CPU holds them: the same values in float32."""
    device = torch.device("cpu")
    sizes, made = shapes(spec), params(spec, device, FORMATS[experts])
    values = {
        name: (one.values() if isinstance(one, Matrix) else one.float()).reshape(sizes[name])
        for name, one in made.items()
    }
    return Loaded(values, bool(spec.mtp_layers), 0, _fingerprint(spec, device, experts))


def _fingerprint(spec: ModelSpec, device: torch.device, experts: str) -> str:
    """Another device makes other numbers of the same seed, and another torch may."""
    told = f"random {spec} {experts} {device.type} {torch.__version__}"
    return hashlib.sha256(told.encode()).hexdigest()


def params(
    spec: ModelSpec, device: torch.device, experts: Format = Format.PLAIN, *, seed: int = 0
) -> Params:
    """Every parameter of `spec`, the routed experts in a format of their own."""
    generator = torch.Generator(device=device).manual_seed(seed)
    made = _Made(device, generator)
    return {
        name: made.stack(shape, experts) if len(shape) == 3 else made.one(name, shape)
        for name, shape in shapes(spec).items()
    }


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

    def stack(self, shape: tuple[int, ...], format: Format) -> torch.Tensor | Matrix:
        """Experts one by one, so that nothing but the stack is large."""
        count, n, k = shape
        if format is Format.PLAIN:
            out = torch.empty(shape, dtype=torch.bfloat16, device=self._device)
            for expert in range(count):
                out[expert] = self._noise((n, k)) * k**-0.5
            return out
        if format is Format.FP8:
            numbers = torch.empty(shape, dtype=torch.float8_e4m3fn, device=self._device)
            for expert in range(count):
                numbers[expert] = (
                    (64.0 * self._noise((n, k))).clamp(-448.0, 448.0).to(numbers.dtype)
                )
            scales = self._even((count, -(-n // BLOCK), -(-k // BLOCK))) * k**-0.5 / 64.0
            return matrix.fp8(numbers, scales)
        packed = torch.randint(
            0, 256, (count, n, k // 2), dtype=torch.uint8, device=self._device,
            generator=self._generator,
        )  # fmt: skip
        scales = self._even((count, n, k // SCALED)).to(torch.float8_e4m3fn)
        whole = torch.full((count, 1), 0.4 * k**-0.5, device=self._device)
        return matrix.nvfp4(packed, scales, whole)

    def _noise(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, device=self._device, generator=self._generator)

    def _even(self, shape: tuple[int, ...]) -> torch.Tensor:
        """From 0.5 to 1.5."""
        noise: torch.Tensor = torch.rand(
            prod(shape), device=self._device, generator=self._generator
        )
        return noise.view(shape) + 0.5
