"""What random weights take, before any is made: the parameters, and their bytes.

Owns the bytes of a random model, as `fit` owns those of a checkpoint's files; `random` makes them.
Imports no torch. Invariant: the bytes of a plan are those of the parameters that `random` gives.
"""

from __future__ import annotations

from math import prod

from streamglm.model.spec import ModelSpec
from streamglm.weights.fit import Plan
from streamglm.weights.layout import layout

FLOAT32 = ("_base", "_scale", "A_log", "dt_bias", "e_score_correction_bias")
"""Endings of what the official checkpoint keeps in float32."""
_BLOCK, _SCALED, _PADDED = 128, 16, 128
"""Columns of a scale of FP8 and of NVFP4, and what a row of NVFP4 is filled up to."""


def plan(spec: ModelSpec, experts: str) -> Plan:
    """Of every parameter of `spec`, with routed experts as `--expert-format` says; bytes with
    their scales."""
    params = shapes(spec)
    total = sum(_bytes(name, shape, experts) for name, shape in params.items())
    return Plan((), params, mtp=bool(spec.mtp_layers), skipped_vision=0, total_bytes=total)


def shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Every parameter's shape; stacks of experts have three sizes."""
    last = f"layers.{len(spec.layers)}."
    return {
        name: shape
        for name, shape in layout(spec).params.items()
        if spec.mtp_layers or not name.startswith(last)
    }


def _bytes(name: str, shape: tuple[int, ...], experts: str) -> int:
    numbers = prod(shape)
    if len(shape) < 3 or experts == "bf16":
        return numbers * (4 if name.endswith(FLOAT32) else 2)
    count, n, k = shape
    if experts == "fp8":
        return numbers + 4 * count * -(-n // _BLOCK) * -(-k // _BLOCK)
    rows = count * n * -(-k // _PADDED)
    return rows * (_PADDED // 2 + _PADDED // _SCALED) + 4 * count
