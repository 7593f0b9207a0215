"""Formats: in which numbers a tensor is stored, told by what lies beside it.

Owns the names of packed tensors and of their scales, in every spelling that is read, and what must
hold of their dtypes and shapes. Imports no torch: the values are `quantize`'s. A checkpoint mixes
formats, so each tensor is told by itself, never by the configuration. For X.weight [O, I]:

    format       numbers                  scales                             scale of all
    plain        X.weight [O, I]
    FP8 blocks   X.weight [O, I]          X.weight_scale_inv, or             -
                 F8_E4M3                  X.weight_scale, one a block
    NVFP4        X.weight [O, I / 2]      X.weight_scale [O, I / 16]         X.weight_scale_2, times
    (ModelOpt)   U8, two a byte           F8_E4M3
    NVFP4 (c.-   X.weight_packed          X.weight_scale                     X.weight_global_scale,
    tensors)     [O, I / 2] U8            [O, I / 16] F8_E4M3                divided by
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from streamglm.errors import CheckpointError
from streamglm.weights.headers import Stored

PLAIN = ("BF16", "F16", "F32")
"""Numbers that are the weights."""
BLOCK = "F8_E4M3"
"""Numbers that are scaled by blocks, and the scales of NVFP4."""
PACKED = "U8"
"""Bytes of two numbers."""
GROUP = 16
"""Columns that share a scale of NVFP4."""

_PACKED_NAME = "_packed"
_BLOCK_SCALES = ("_scale_inv", "_scale")
_SCALE = "_scale"
_TIMES, _OVER = "_scale_2", "_global_scale"
_ACTIVATIONS = ("input_scale", "input_global_scale")
"""Beside X.weight, of use to who quantises activations."""

# Endings that tell of a format which is not read.
_UNREAD = ((".trellis", "EXL3"), (".scales", "MLX affine"))
READ = "BF16, F16, F32, FP8 blocks and NVFP4"


class Form(StrEnum):
    """What the numbers of a tensor are."""

    PLAIN = "plain"
    FP8 = "FP8 blocks"
    NVFP4 = "NVFP4"


@dataclass(frozen=True, slots=True)
class Parts:
    """Where one tensor's numbers and scales lie; the parts may lie in several files."""

    form: Form
    numbers: Stored
    scale: Stored | None = None
    whole: Stored | None = None
    """The scale of all of an NVFP4 tensor's numbers."""
    divides: bool = False
    """`whole` is what numbers are divided by, not multiplied with."""
    unused: tuple[Stored, ...] = ()

    def __iter__(self) -> Iterator[Stored]:
        """Everything in the files that belongs to the tensor."""
        yield from (part for part in (self.numbers, self.scale, self.whole) if part)
        yield from self.unused


def tensor_name(stored: str) -> str:
    """The name of the tensor whose numbers are stored under a name."""
    return stored.removesuffix(_PACKED_NAME) if stored.endswith(".weight_packed") else stored


def refuse_unread(stored: Mapping[str, Stored]) -> None:
    """Raise `CheckpointError` naming the first tensor of a format that is told by its name."""
    for ending, form in _UNREAD:
        for name, tensor in stored.items():
            if name.endswith(ending):
                raise _unread(tensor, form)


def parts(name: str, shape: tuple[int, ...], stored: Mapping[str, Stored]) -> Parts:
    """The parts of tensor `name`, whose values have `shape`.

    Raises `CheckpointError` naming what is missing or does not fit, with both shapes.
    """
    plain, packed = stored.get(name), stored.get(name + _PACKED_NAME)
    if plain and packed:
        raise CheckpointError(f"{name}: the files hold {packed.name} as well")
    numbers = packed or plain
    assert numbers, f"{name} is not in the files"
    if packed or numbers.dtype == PACKED:
        return _nvfp4(name, shape, numbers, stored)
    if numbers.shape != shape:
        raise CheckpointError(
            f"{name}: its shape is {list(numbers.shape)}, and the model's is {list(shape)}"
        )
    if numbers.dtype in PLAIN:
        return Parts(Form.PLAIN, numbers)
    if numbers.dtype != BLOCK:
        raise CheckpointError(
            f"{name}: its numbers are {numbers.dtype}; read are {', '.join(PLAIN)}, {BLOCK}, "
            f"{PACKED} of NVFP4"
        )
    scale = next((stored[name + end] for end in _BLOCK_SCALES if name + end in stored), None)
    if scale is None:
        raise _missing(name + _BLOCK_SCALES[0], f"the tensor is {BLOCK}")
    _check_blocks(shape, scale)
    return Parts(Form.FP8, numbers, scale, unused=_activations(name, stored))


def _nvfp4(
    name: str, shape: tuple[int, ...], numbers: Stored, stored: Mapping[str, Stored]
) -> Parts:
    if numbers.dtype != PACKED or not name.endswith(".weight"):
        raise CheckpointError(f"{numbers.name}: {numbers.dtype}, and packed numbers are {PACKED}")
    scale = stored.get(name + _SCALE)
    if scale is None:
        raise _missing(name + _SCALE, f"{numbers.name} is packed")
    if scale.dtype == PACKED:
        raise _unread(numbers, "MXFP4")
    if len(shape) != 2 or shape[1] % GROUP:
        raise CheckpointError(
            f"{numbers.name}: packed, and {list(shape)} is no matrix with a multiple of {GROUP} "
            "columns"
        )
    _check(numbers, PACKED, (shape[0], shape[1] // 2), shape)
    _check(scale, BLOCK, (shape[0], shape[1] // GROUP), shape)
    ending = _OVER if numbers.name.endswith(_PACKED_NAME) else _TIMES
    whole = stored.get(name + ending)
    if whole is None:
        raise _missing(name + ending, f"{numbers.name} is packed")
    if whole.dtype != "F32" or prod(whole.shape) != 1:
        raise CheckpointError(
            f"{whole.name}: {whole.dtype} {list(whole.shape)}, and it must be one F32"
        )
    return Parts(
        Form.NVFP4, numbers, scale, whole, ending == _OVER, unused=_activations(name, stored)
    )


def _activations(name: str, stored: Mapping[str, Stored]) -> tuple[Stored, ...]:
    stem = name.removesuffix("weight")
    return tuple(stored[stem + end] for end in _ACTIVATIONS if stem + end in stored)


def _check(part: Stored, dtype: str, want: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if part.dtype != dtype or part.shape != want:
        raise CheckpointError(
            f"{part.name}: {part.dtype} {list(part.shape)}, and NVFP4 of {list(shape)} has "
            f"{dtype} {list(want)} there"
        )


def _check_blocks(shape: tuple[int, ...], scale: Stored) -> None:
    fits = (
        scale.dtype in PLAIN
        and len(shape) == len(scale.shape) == 2
        and all(tile(n, g) for n, g in zip(shape, scale.shape, strict=True))
    )
    if not fits:
        raise CheckpointError(
            f"{scale.name}: {scale.dtype} {list(scale.shape)} is no grid of scales for "
            f"{list(shape)}"
        )


def tile(size: int, grid: int) -> int:
    """Edge of a scale block: the power of two that cuts `size` into `grid` blocks, the last one
    perhaps shorter; 0 when there is none. 4096 by 32 is 128, 200 by 2 is 128 as well."""
    edge = 1
    while -(-size // edge) > max(grid, 1):
        edge *= 2
    return edge if -(-size // edge) == grid else 0


def _missing(name: str, why: str) -> CheckpointError:
    return CheckpointError(f"{name}: missing, and {why}")


def _unread(tensor: Stored, form: str) -> CheckpointError:
    return CheckpointError(
        f"{tensor.name}: {tensor.dtype} {list(tensor.shape)} is {form}, which is not read here; "
        f"read are {READ}"
    )
