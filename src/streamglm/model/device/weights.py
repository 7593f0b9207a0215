"""Taking parameters for kernels: packed ones as they lie, plain ones in the dtype of activations.

Owns names, shapes and the joining of matrices of one input. Knows no layer. Invariants: every
tensor is taken once; joining loses no bit, since the rows of a weight are independent, and what
cannot be joined as it lies (two scales of all, half a block of FP8) stays a matrix of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from streamglm.errors import CheckpointError
from streamglm.kernels import linear, matrix
from streamglm.kernels.matrix import BLOCK, Format, Matrix


class Weights:
    """Parameters whose names begin with `prefix`; `dtype` is that of activations."""

    def __init__(
        self, params: dict[str, torch.Tensor | Matrix], dtype: torch.dtype, prefix: str = ""
    ) -> None:
        self._params = params
        self._prefix = prefix
        self.dtype = dtype

    def under(self, name: str) -> Weights:
        """The parameters below `name`."""
        return Weights(self._params, self.dtype, f"{self._prefix}{name}.")

    def any(self) -> bool:
        """Whether any parameter of this prefix is left."""
        return any(name.startswith(self._prefix) for name in self._params)

    def finish(self) -> None:
        """Raises `CheckpointError` naming a parameter that nothing took."""
        for name in self._params:
            raise CheckpointError(
                f"{name}: {len(self._params)} tensors of the checkpoint have no place in the model"
            )

    def stack(self, name: str, *shape: int) -> Matrix:
        """A parameter of `shape`, [N, K] or [E, N, K], as a matrix of whatever format."""
        param = self._taken(name)
        if isinstance(param, torch.Tensor):
            self._check(name, tuple(param.shape), shape)
            return matrix.plain(param.to(self.dtype))
        held = (param.count, param.width, param.depth)
        self._check(name, held if len(shape) == 3 else held[1:], shape)
        return param

    def values(self, name: str, *shape: int) -> torch.Tensor:
        """A parameter of `shape` as values in float32."""
        param = self._taken(name)
        values = param.float() if isinstance(param, torch.Tensor) else param.values()
        if isinstance(param, Matrix) and len(shape) == 2:
            values = values[0]
        self._check(name, tuple(values.shape), shape)
        return values

    def plain(self, name: str, *shape: int) -> torch.Tensor:
        """`values` in the dtype of activations."""
        return self.values(name, *shape).to(self.dtype)

    def _taken(self, name: str) -> torch.Tensor | Matrix:
        full = self._prefix + name
        if full not in self._params:
            raise CheckpointError(f"{full}: the model needs it, and there is no such tensor")
        return self._params.pop(full)

    def _check(self, name: str, held: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        if held != wanted:
            raise CheckpointError(
                f"{self._prefix}{name}: shape {list(held)}, and config.json asks for {list(wanted)}"
            )


@dataclass(frozen=True, slots=True)
class Product:
    """Matrices of one input, side by side: [R, K] -> [R, sum of widths]."""

    parts: tuple[Matrix, ...]

    @classmethod
    def of(cls, *matrices: Matrix) -> Product:
        parts: list[Matrix] = []
        for one in matrices:
            if parts and _join(parts[-1], one):
                parts[-1] = below(parts[-1], one)
            else:
                parts.append(one)
        return cls(tuple(parts))

    @property
    def bytes(self) -> int:
        """What reading all of it once reads."""
        return sum(part.bytes for part in self.parts)

    def __call__(
        self, x: torch.Tensor, *, wide: bool, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """`wide` for the rows of a prompt, else the 1 to 32 of a window."""
        multiply = linear.prompt if wide else linear.window
        found = [multiply(x, part, dtype) for part in self.parts]
        return found[0] if len(found) == 1 else torch.cat(found, 1)


def _join(a: Matrix, b: Matrix) -> bool:
    """Whether b's rows can stand below those of a."""
    if a.format is not b.format or a.format is Format.NVFP4:
        return False
    return a.format is Format.PLAIN or a.width % BLOCK == 0


def below(a: Matrix, b: Matrix) -> Matrix:
    """The rows of a and below them those of b; of NVFP4 each keeps its scale of all."""
    numbers = _beside(a.numbers, b.numbers)
    assert numbers is not None
    return replace(
        a,
        numbers=numbers,
        scales=_beside(a.scales, b.scales),
        whole=_beside(a.whole, b.whole),
    )


def halves(gate: Matrix, up: Matrix) -> Matrix:
    """gate and up [1, I, K] as [1, 2 I, K] of one format; what does not join becomes plain."""
    if gate.format is up.format and (gate.format is not Format.FP8 or gate.width % BLOCK == 0):
        return below(gate, up)
    values = torch.cat([gate.values(), up.values()], 1)
    return matrix.plain(values.to(torch.bfloat16))


def _beside(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    if a is None or b is None:
        return None
    if a.dtype.itemsize == 1:  # torch.cat knows no float8
        return torch.cat([a.view(torch.uint8), b.view(torch.uint8)], 1).view(a.dtype)
    return torch.cat([a, b], 1)
