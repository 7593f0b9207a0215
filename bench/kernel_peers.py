"""Other implementations of an operator that are installed, on the tensors of its contract.

Owns the names of peers and how each is called. A peer that is not installed is left out. Whoever
times them has checked that they compute the same.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from streamglm.kernels import launch
from streamglm.kernels.contract import STORED, TRITON, Call, Values, vector
from streamglm.kernels.matrix import Format
from streamglm.kernels.mlp.device_contract import LIMIT

Make = Callable[[Values], Call]


def of(op: str) -> Iterator[tuple[str, Make]]:
    """(name, what makes its call) of every peer of the operator that is installed."""
    for ours, name, package, make in PEERS:
        if op == ours and importlib.util.find_spec(package):
            yield name, make


def _tensor(values: Values, name: str) -> torch.Tensor:
    return vector(values[name], TRITON, STORED[values["itemsize"]])


def _weight(values: Values, name: str) -> torch.Tensor:
    assert values[name].format is Format.PLAIN
    weight: torch.Tensor = values[name].numbers[0].to(launch.device())
    return weight


def _linear(values: Values) -> Call:
    x, weight, out = _tensor(values, "x"), _weight(values, "weight"), STORED[values["out"]]
    return lambda: {"y": F.linear(x, weight).to(out)}


def _mlp(values: Values) -> Call:
    x = _tensor(values, "x")
    gate_up, down = _weight(values, "gate_up"), _weight(values, "down")

    def call() -> dict[str, torch.Tensor]:
        gate, up = F.linear(x, gate_up).chunk(2, 1)
        hidden = F.silu(gate.clamp(max=LIMIT)) * up.clamp(-LIMIT, LIMIT)
        return {"y": F.linear(hidden, down)}

    return call


def _rms_norm(values: Values) -> Call:
    """Without padding, which no library's norm knows of."""
    assert values["count"] == values["x"].shape[1]
    x = _tensor(values, "x")
    weight = vector(values["weight"], TRITON).to(x.dtype)
    return lambda: {"y": F.rms_norm(x, (x.shape[1],), weight, 1e-5)}


def _layer_norm(values: Values) -> Call:
    x = _tensor(values, "x")
    weight, bias = (vector(values[name], TRITON).to(x.dtype) for name in ("weight", "bias"))
    return lambda: {"y": F.layer_norm(x, (x.shape[1],), weight, bias, 1e-6)}


def _pack(values: Values) -> Call:
    memory = vector(values["memory"], TRITON, torch.uint8)
    pages = vector(values["sources"], TRITON, torch.int64)
    return lambda: {"packed": memory.index_select(1, pages)}


PEERS: tuple[tuple[str, str, str, Make], ...] = (
    ("linear.window.plain", "torch (cuBLAS)", "torch", _linear),
    ("linear.prompt.plain", "torch (cuBLAS)", "torch", _linear),
    ("mlp.window.plain", "torch", "torch", _mlp),
    ("mlp.prompt.plain", "torch", "torch", _mlp),
    ("rms_norm", "torch", "torch", _rms_norm),
    ("layer_norm", "torch", "torch", _layer_norm),
    ("page_move.pack", "torch", "torch", _pack),
)
"""(the operator's name, the peer's name, its package, what makes its call)"""
