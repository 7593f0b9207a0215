"""Parameters: how they start, and how they become a checkpoint.

Owns initial values, what the checkpoint keeps in float32, and the rename to hub names, which is
the loader's own table read backwards. Knows no training.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from streamglm.model.spec import ModelSpec
from streamglm.weights.layout import layout

FLOAT32 = ("_base", "_scale", "A_log", "dt_bias", "e_score_correction_bias")
"""Endings of names that the real checkpoint keeps in float32; the rest is bfloat16."""


def initial(spec: ModelSpec, seed: int) -> dict[str, Tensor]:
    """Fresh float32 parameters under the server's names."""
    random = torch.Generator().manual_seed(seed)
    return {
        name: _initial(name, shape, spec, random) for name, shape in layout(spec).params.items()
    }


def _initial(name: str, shape: tuple[int, ...], spec: ModelSpec, random: torch.Generator) -> Tensor:
    def normal(std: float) -> Tensor:
        return torch.randn(shape, generator=random) * std

    if name.endswith(("norm.weight", "layernorm.weight")):
        return torch.ones(shape)
    if name.endswith(("k_norm.bias", "A_log", "e_score_correction_bias", "compress_ape")):
        return torch.zeros(shape)
    if name.endswith("_base"):
        return _hyper_base(name, spec)
    if name.endswith("_scale"):
        return torch.full(shape, 0.5)
    if name.endswith("dt_bias"):
        # decays a step between exp(-0.005) and exp(-0.5): memories of 2 to 200 tokens
        decay = torch.exp(
            torch.empty(shape).uniform_(math.log(1e-3), math.log(1e-1), generator=random)
        )
        return decay + torch.log(-torch.expm1(-decay))
    if name.endswith("conv1d.weight"):
        taps = normal(0.1)
        taps[:, -1] += 1.0
        return taps
    if name.endswith(("embed_tokens.weight", "lm_head.weight", "hc_attn_fn", "hc_ffn_fn")):
        return normal(0.02)
    return normal(
        shape[-1] ** -0.5
        * (0.5 if name.endswith(("o_proj.weight", "down_proj.weight", "down_proj")) else 1.0)
    )


def _hyper_base(name: str, spec: ModelSpec) -> Tensor:
    """Each site starts by reading mostly one stream, writing all, and mixing little, so that the
    streams come apart and depth starts out as in an ordinary residual network."""
    count = spec.streams
    layer = int(name.split(".")[1])
    reads = torch.full((count,), -1.5)
    reads[(2 * layer + ("ffn" in name)) % count] = 1.5
    comb = torch.eye(count) * 4.0
    return torch.cat([reads, torch.zeros(count), comb.flatten()])


def to_hub(spec: ModelSpec, params: dict[str, Tensor]) -> dict[str, Tensor]:
    """The checkpoint's tensors, in the dtypes that the real one has."""
    tensors = {}
    for source in layout(spec).sources.values():
        part = params[source.param].detach()[tuple(slice(s.start, s.stop) for s in source.into)]
        exact = source.name.endswith(FLOAT32)
        dtype = torch.float32 if exact else torch.bfloat16
        tensors[source.name] = part.reshape(source.shape).to(dtype).contiguous().cpu()
    return tensors


def from_hub(spec: ModelSpec, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The parameters of a checkpoint in float32; the inverse of `to_hub` but for rounding."""
    table = layout(spec)
    params = {name: torch.empty(shape) for name, shape in table.params.items()}
    for source in table.sources.values():
        into = tuple(slice(s.start, s.stop) for s in source.into)
        place = params[source.param][into]
        place.copy_(tensors[source.name].float().reshape(place.shape))
    return params


def save(spec: ModelSpec, params: dict[str, Tensor], file: Path) -> None:
    """Write `model.safetensors`."""
    save_file(to_hub(spec, params), file, metadata={"format": "pt"})
    file.chmod(0o644)  # the writer makes it private; whoever installs the package reads it


def load(spec: ModelSpec, file: Path) -> dict[str, Tensor]:
    """Read a `model.safetensors` of this shape."""
    return from_hub(spec, load_file(file))
