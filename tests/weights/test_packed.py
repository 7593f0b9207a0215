"""Weights for a GPU stay packed, and are the values that the CPU computes with, on every rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from streamglm.kernels.matrix import Format, Matrix
from streamglm.weights import checkpoint, packed
from streamglm.weights.packed import Params
from support.checkpoints import as_fp8, as_nvfp4, random_tensors, spec_of, tiny_config, write

Tensors = dict[str, torch.Tensor]
CPU = torch.device("cpu")
GATE_UP = "layers.1.mlp.experts.gate_up_proj"
DOWN = "layers.1.mlp.experts.down_proj"


def wide(**text: Any) -> dict[str, Any]:
    """A config with experts of 256 columns, so that ranks cut at blocks, and with one block more
    or less at three."""
    sizes = {"hidden_size": 32, "moe_intermediate_size": 256, "num_nextn_predict_layers": 0}
    return tiny_config(**{**sizes, "num_hidden_layers": 2, **text})


def short(config: dict[str, Any]) -> dict[str, Any]:
    text = config["text_config"]
    for name in ("layer_types", "mlp_layer_types", "indexer_types"):
        text[name] = text[name][: text["num_hidden_layers"]]
    text["linear_attn_config"] |= {"kda_layers": [0, 1], "full_attn_layers": []}
    return config


@pytest.fixture(scope="module")
def tensors() -> Tensors:
    return random_tensors(spec_of(short(wide())), seed=4)


def stored_as(form: str, tensors: Tensors) -> Tensors:
    if form == "bf16":
        return tensors
    return as_fp8(tensors, edge=128) if form == "fp8" else as_nvfp4(tensors, form)


def value(param: torch.Tensor | Matrix, like: torch.Tensor) -> torch.Tensor:
    return (param.values() if isinstance(param, Matrix) else param.float()).view(like.shape)


def loaded(folder: Path, rank: int = 0, world: int = 1) -> Params:
    return packed.read(folder, spec_of(short(wide())), CPU, rank=rank, world=world).params


@pytest.mark.parametrize("form", ["bf16", "fp8", "modelopt", "compressed-tensors"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_values_are_those_that_the_cpu_computes_with(
    tmp_path: Path, tensors: Tensors, form: str, world: int
) -> None:
    """To float32 rounding where they stay packed; to one of bfloat16 where ranks cut a block."""
    config = short(wide())
    write(tmp_path, config, stored_as(form, tensors), shards=2)
    for rank in range(world):
        want = checkpoint.load(tmp_path, spec_of(config), rank=rank, world=world).params
        found = loaded(tmp_path, rank, world)
        assert list(found) == list(want)
        for name, param in found.items():
            plain = isinstance(param, torch.Tensor) and param.dtype == torch.bfloat16
            bound = 2.0 ** (-8 if plain and form != "bf16" else -22)
            error = (value(param, want[name]) - want[name]).abs()
            assert (error <= bound * want[name].abs()).all(), name


@pytest.mark.parametrize(
    ("form", "world", "kept"),
    [
        ("bf16", 1, [None]),
        ("fp8", 1, [Format.FP8]),
        ("fp8", 2, [Format.FP8] * 2),
        ("fp8", 3, [Format.FP8, None, None]),
        ("modelopt", 1, [Format.NVFP4]),
        ("modelopt", 2, [Format.NVFP4] * 2),
        ("modelopt", 3, [Format.NVFP4] * 3),
        ("compressed-tensors", 2, [Format.NVFP4] * 2),
    ],
)
def test_experts_stay_packed_where_ranks_cut_at_scales(
    tmp_path: Path, tensors: Tensors, form: str, world: int, kept: list[Format | None]
) -> None:
    """Of 256 columns, three ranks hold 128, 64 and 64: two of them cut a block of FP8 in two."""
    write(tmp_path, short(wide()), stored_as(form, tensors))
    for rank in range(world):
        found = loaded(tmp_path, rank, world)
        for name in (GATE_UP, DOWN):
            param = found[name]
            if kept[rank] is None:
                assert isinstance(param, torch.Tensor)
                assert param.dtype == torch.bfloat16
            else:
                assert isinstance(param, Matrix)
                assert param.format is kept[rank]
                assert param.count == 3


def test_gate_and_up_keep_their_own_scales_of_all(tmp_path: Path, tensors: Tensors) -> None:
    stored = as_nvfp4(tensors, "modelopt")
    for number, name in enumerate(n for n in stored if n.endswith("_scale_2")):
        stored[name] = torch.tensor(0.25 + number)
    write(tmp_path, short(wide()), stored)
    param = loaded(tmp_path)[GATE_UP]
    assert isinstance(param, Matrix)
    assert param.whole is not None
    stem = "model.language_model.layers.1.mlp.experts"
    for expert in range(3):
        for half, part in enumerate(("gate_proj", "up_proj")):
            want = stored[f"{stem}.{expert}.{part}.weight_scale_2"]
            assert param.whole[expert, half] == want


def test_experts_of_several_formats_become_plain(tmp_path: Path, tensors: Tensors) -> None:
    """As layer 45 is, in some repositories; here within one stack."""
    config = short(wide())
    write(tmp_path, config, as_nvfp4(tensors, "modelopt", ("experts.0.up_proj.weight",)))
    param = loaded(tmp_path)[GATE_UP]
    assert isinstance(param, torch.Tensor)
    want = checkpoint.load(tmp_path, spec_of(config)).params[GATE_UP]
    assert ((param.float() - want).abs() <= 2.0**-8 * want.abs()).all()


def test_plain_parameters_keep_their_dtype(tmp_path: Path, tensors: Tensors) -> None:
    write(tmp_path, short(wide()), tensors)
    found = loaded(tmp_path)
    kinds = {name: p.dtype for name, p in found.items() if isinstance(p, torch.Tensor)}
    assert kinds["norm.weight"] == torch.bfloat16
    assert kinds["layers.0.self_attn.A_log"] == torch.float32


def test_progress_ends_at_the_whole(tmp_path: Path, tensors: Tensors) -> None:
    write(tmp_path, short(wide()), as_nvfp4(tensors, "modelopt"))
    told: list[tuple[int, int]] = []
    packed.read(
        tmp_path,
        spec_of(short(wide())),
        CPU,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)
