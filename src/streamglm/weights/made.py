"""What random weights take, before any is made: the parameters, and their bytes.

Owns the bytes of a random model, as `fit` owns those of a checkpoint's files, and which regions of
a parameter a rank takes; `random` makes them. Imports no torch. Invariant: the bytes of a plan are
those of the parameters that `random` gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from streamglm.model.share import Span
from streamglm.model.spec import ModelSpec
from streamglm.weights.fit import Plan
from streamglm.weights.layout import layout

FLOAT32 = ("_base", "_scale", "A_log", "dt_bias", "e_score_correction_bias")
"""Endings of what the official checkpoint keeps in float32."""
_BLOCK, _SCALED, _PADDED = 128, 16, 128
"""Columns of a scale of FP8 and of NVFP4, and what a row of NVFP4 is filled up to."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A region of a whole parameter and where a rank has it, one span a dimension; of a stack
    without the experts, which all are cut alike."""

    source: tuple[Span, ...]
    into: tuple[Span, ...]

    def whole(self, rows: int, columns: int) -> bool:
        """Whether it begins and ends at multiples of so many rows and columns, in both."""
        units = (rows, columns)
        return all(
            edge % unit == 0
            for spans in (self.source, self.into)
            for span, unit in zip(spans, units, strict=True)
            for edge in (span.start, span.stop)
        )


def plan(spec: ModelSpec, experts: str, *, rank: int = 0, world: int = 1) -> Plan:
    """Of every parameter of `spec` that `rank` of `world` takes, with routed experts as
    `--expert-format` says; bytes with their scales."""
    params, cut = shapes(spec, rank=rank, world=world), pieces(spec, rank, world)
    total = sum(_bytes(name, shape, experts, cut.get(name, ())) for name, shape in params.items())
    return Plan((), params, mtp=bool(spec.mtp_layers), skipped_vision=0, total_bytes=total)


def shapes(spec: ModelSpec, *, rank: int = 0, world: int = 1) -> dict[str, tuple[int, ...]]:
    """Every parameter's shape; stacks of experts have three sizes."""
    last = f"layers.{len(spec.layers)}."
    return {
        name: shape
        for name, shape in layout(spec, rank=rank, world=world).params.items()
        if spec.mtp_layers or not name.startswith(last)
    }


def pieces(spec: ModelSpec, rank: int, world: int) -> dict[str, tuple[Piece, ...]]:
    """What `rank` of `world` takes of the parameters that are cut, and of no others."""
    if world == 1:
        return {}
    all_of, own = layout(spec), layout(spec, rank=rank, world=world)
    found: dict[str, tuple[Piece, ...]] = {}
    for name, source in own.sources.items():
        stack = len(own.params[source.param]) == 3
        if source.cut is None or (stack and source.into[0].start):
            continue
        there, into = (one.into[stack:] for one in (all_of.sources[name], source))
        span = there[source.cut]
        part = Span(span.start + source.part.start, span.start + source.part.stop)
        region = (*there[: source.cut], part, *there[source.cut + 1 :])
        found[source.param] = (*found.get(source.param, ()), Piece(region, into))
    return found


def kept(experts: str, cut: tuple[Piece, ...]) -> str:
    """The format of a stack that is cut so: bf16 where a scale would be cut in two."""
    units = {"fp8": (_BLOCK, _BLOCK), "nvfp4": (1, _SCALED), "bf16": (1, 1)}[experts]
    return experts if all(piece.whole(*units) for piece in cut) else "bf16"


def _bytes(name: str, shape: tuple[int, ...], experts: str, cut: tuple[Piece, ...]) -> int:
    numbers = prod(shape)
    format = kept(experts, cut) if len(shape) == 3 else "bf16"
    if format == "bf16":
        return numbers * (4 if name.endswith(FLOAT32) else 2)
    count, n, k = shape
    if format == "fp8":
        return numbers + 4 * count * -(-n // _BLOCK) * -(-k // _BLOCK)
    rows = count * n * -(-k // _PADDED)
    return rows * (_PADDED // 2 + _PADDED // _SCALED) + 4 * count
