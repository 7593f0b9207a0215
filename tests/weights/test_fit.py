"""Files that do not fit the model are refused by tensor name, before a rank is started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from streamglm.errors import CheckpointError
from streamglm.weights.checkpoint import load
from streamglm.weights.fit import check_files, check_tokenizer
from streamglm.weights.formats import tile
from support.checkpoints import as_fp8, as_nvfp4, random_tensors, spec_of, tiny_config, write

TEXT = "model.language_model."
MTP = f"{TEXT}layers.4."
NORM = f"{TEXT}layers.1.input_layernorm.weight"
DOWN = f"{TEXT}layers.1.mlp.experts.2.down_proj.weight"

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def tensors() -> Tensors:
    return random_tensors(spec_of(tiny_config()))


def refusal(folder: Path, tensors: Tensors, **text: Any) -> str:
    """The one line with which these tensors are refused, by the check and by the loader alike."""
    config = tiny_config(**text)
    write(folder, config, tensors, shards=2)
    with pytest.raises(CheckpointError) as caught:
        check_files(folder)
    with pytest.raises(CheckpointError) as again:
        load(folder, spec_of(config))
    assert again.value.message == caught.value.message
    assert "\n" not in caught.value.message
    return caught.value.message


def test_the_check_imports_no_torch(tmp_path: Path) -> None:
    write(tmp_path, tiny_config(), random_tensors(spec_of(tiny_config())))
    code = (
        "import sys, pathlib\n"
        "from streamglm.weights.fit import check_files\n"
        "check_files(pathlib.Path(sys.argv[1]))\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == 0


def test_a_tensor_gone_from_shard_and_index_is_named(tmp_path: Path, tensors: Tensors) -> None:
    del tensors[NORM]
    assert refusal(tmp_path, tensors) == f"{NORM}: missing ([32])"


def test_more_missing_tensors_are_counted(tmp_path: Path, tensors: Tensors) -> None:
    lost = [name for name in tensors if ".layers.1.mlp.experts.0." in name]
    for name in lost:
        del tensors[name]
    assert refusal(tmp_path, tensors) == f"{lost[0]}: missing ([16, 32]), and 2 more"


def test_a_misshapen_tensor_is_named_with_both_shapes(tmp_path: Path, tensors: Tensors) -> None:
    tensors[DOWN] = torch.zeros(16, 32)
    assert refusal(tmp_path, tensors) == (
        f"{DOWN}: its shape is [16, 32], and the model's is [32, 16]"
    )


def test_an_unknown_tensor_is_named(tmp_path: Path, tensors: Tensors) -> None:
    tensors[f"{TEXT}layers.1.mlp.extra.weight"] = torch.zeros(3)
    tensors["model.audio.weight"] = torch.zeros(3)
    said = refusal(tmp_path, tensors)
    assert "no tensor of this model, and 1 more" in said
    assert said.startswith((f"{TEXT}layers.1.mlp.extra.weight", "model.audio.weight"))


def test_vision_tensors_are_skipped_and_counted(tmp_path: Path, tensors: Tensors) -> None:
    tensors |= {f"model.visual.blocks.{i}.norm1.weight": torch.zeros(3) for i in range(5)}
    assert check_files(write(tmp_path, tiny_config(), tensors)).skipped_vision == 5


def test_no_next_token_layer_at_all_is_served_and_told(tmp_path: Path, tensors: Tensors) -> None:
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(MTP)}
    plan = check_files(write(tmp_path, tiny_config(), kept))
    assert not plan.mtp
    assert not any(param.startswith("layers.4.") for param in plan.params)


def test_half_a_next_token_layer_is_refused(tmp_path: Path, tensors: Tensors) -> None:
    layer = [name for name in tensors if name.startswith(MTP)]
    del tensors[f"{MTP}eh_proj.weight"]
    assert refusal(tmp_path, tensors) == (
        f"{MTP}eh_proj.weight: missing; the next-token layer has {len(layer) - 1} of its "
        f"{len(layer)} tensors"
    )


def test_a_next_token_layer_that_the_config_denies_is_refused(
    tmp_path: Path, tensors: Tensors
) -> None:
    said = refusal(tmp_path, tensors, num_nextn_predict_layers=0)
    assert said.startswith(MTP)
    assert "no tensor of this model" in said


def test_fp8_without_its_scales_is_refused(tmp_path: Path, tensors: Tensors) -> None:
    stored = as_fp8(tensors, edge=16)
    del stored[f"{DOWN}_scale_inv"]
    assert refusal(tmp_path, stored) == f"{DOWN}_scale_inv: missing, and the tensor is F8_E4M3"


@pytest.mark.parametrize("shape", [(1, 3), (0, 1), (2,)])
def test_a_grid_of_scales_that_does_not_fit_is_refused(
    tmp_path: Path, tensors: Tensors, shape: tuple[int, ...]
) -> None:
    stored = as_fp8(tensors, edge=16)
    stored[f"{DOWN}_scale_inv"] = torch.zeros(shape)
    assert refusal(tmp_path, stored) == (
        f"{DOWN}_scale_inv: F32 {list(shape)} is no grid of scales for [32, 16]"
    )


def test_scales_of_a_tensor_that_is_not_fp8_are_left_over(tmp_path: Path, tensors: Tensors) -> None:
    tensors[f"{DOWN}_scale_inv"] = torch.ones(1, 1)
    assert refusal(tmp_path, tensors).startswith(f"{DOWN}_scale_inv: in ")


def test_integers_are_no_weights(tmp_path: Path, tensors: Tensors) -> None:
    tensors[DOWN] = torch.zeros(32, 16, dtype=torch.int8)
    assert refusal(tmp_path, tensors) == (
        f"{DOWN}: its numbers are I8; read are BF16, F16, F32, F8_E4M3, U8 of NVFP4"
    )


def modelopt(tensors: Tensors) -> Tensors:
    """`tensors` with one of them as ModelOpt packs it."""
    return as_nvfp4(tensors, "modelopt", (DOWN,))


def compressed(tensors: Tensors) -> Tensors:
    """`tensors` with one of them as compressed-tensors packs it."""
    return as_nvfp4(tensors, "compressed-tensors", (DOWN,))


def test_scales_of_activations_are_no_weights(tmp_path: Path, tensors: Tensors) -> None:
    stored = modelopt(tensors)
    stored[f"{DOWN.removesuffix('weight')}input_scale"] = torch.ones(())
    config = tiny_config()
    assert check_files(write(tmp_path, config, stored), spec_of(config)).mtp


@pytest.mark.parametrize(
    ("pack", "gone"),
    [
        (modelopt, "_scale"),
        (modelopt, "_scale_2"),
        (compressed, "_scale"),
        (compressed, "_global_scale"),
    ],
)
def test_nvfp4_without_a_scale_is_refused(
    tmp_path: Path, tensors: Tensors, pack: Callable[[Tensors], Tensors], gone: str
) -> None:
    stored = pack(tensors)
    del stored[DOWN + gone]
    numbers = DOWN + ("_packed" if pack is compressed else "")
    assert refusal(tmp_path, stored) == f"{DOWN}{gone}: missing, and {numbers} is packed"


def test_packed_numbers_of_another_shape_are_refused(tmp_path: Path, tensors: Tensors) -> None:
    stored = modelopt(tensors)
    stored[DOWN] = torch.zeros(32, 16, dtype=torch.uint8)
    assert refusal(tmp_path, stored) == (
        f"{DOWN}: U8 [32, 16], and NVFP4 of [32, 16] has U8 [32, 8] there"
    )


def test_scales_of_another_group_are_refused(tmp_path: Path, tensors: Tensors) -> None:
    stored = compressed(tensors)
    stored[f"{DOWN}_scale"] = torch.zeros(32, 2).to(torch.float8_e4m3fn)
    assert refusal(tmp_path, stored) == (
        f"{DOWN}_scale: F8_E4M3 [32, 2], and NVFP4 of [32, 16] has F8_E4M3 [32, 1] there"
    )


def test_a_scale_of_all_that_is_many_is_refused(tmp_path: Path, tensors: Tensors) -> None:
    stored = modelopt(tensors)
    stored[f"{DOWN}_scale_2"] = torch.ones(2)
    assert refusal(tmp_path, stored) == f"{DOWN}_scale_2: F32 [2], and it must be one F32"


def test_a_tensor_packed_and_plain_is_refused(tmp_path: Path, tensors: Tensors) -> None:
    stored = compressed(tensors) | {DOWN: tensors[DOWN]}
    assert refusal(tmp_path, stored) == f"{DOWN}: the files hold {DOWN}_packed as well"


def test_columns_that_groups_do_not_fill_are_refused(tmp_path: Path, tensors: Tensors) -> None:
    name = "model.language_model.layers.0.mlp.down_proj.weight"  # [32, 40]
    stored = {**tensors, name: torch.zeros(32, 20, dtype=torch.uint8)}
    stored[f"{name}_scale"] = torch.zeros(32, 2).to(torch.float8_e4m3fn)
    assert refusal(tmp_path, stored) == (
        f"{name}: packed, and [32, 40] is no matrix with a multiple of 16 columns"
    )


def test_mxfp4_is_refused_by_name(tmp_path: Path, tensors: Tensors) -> None:
    stored = modelopt(tensors)
    stored[f"{DOWN}_scale"] = torch.zeros(32, 1, dtype=torch.uint8)
    said = refusal(tmp_path, stored)
    assert said == (
        f"{DOWN}: U8 [32, 8] is MXFP4, which is not read here; "
        "read are BF16, F16, F32, FP8 blocks and NVFP4"
    )


@pytest.mark.parametrize(("ending", "form"), [("trellis", "EXL3"), ("scales", "MLX affine")])
def test_formats_that_are_not_read_are_refused_by_name(
    tmp_path: Path, tensors: Tensors, ending: str, form: str
) -> None:
    tensors[DOWN.removesuffix("weight") + ending] = torch.zeros(4, 4, dtype=torch.int16)
    assert f"is {form}, which is not read here" in refusal(tmp_path, tensors)


@pytest.mark.parametrize(
    ("size", "grid", "edge"),
    [(4096, 32, 128), (12288, 96, 128), (200, 2, 128), (48, 1, 64), (256, 3, 0), (7, 0, 0)],
)
def test_the_edge_of_a_block_follows_from_the_grid(size: int, grid: int, edge: int) -> None:
    assert tile(size, grid) == edge


def _tokenizer(folder: Path, base: int, added: int) -> Path:
    vocab = {f"t{i}": i for i in range(base)}
    tokens = [{"id": base + i, "content": f"a{i}"} for i in range(added)]
    value = {"model": {"type": "BPE", "vocab": vocab}, "added_tokens": tokens}
    (folder / "tokenizer.json").write_text(json.dumps(value))
    return folder


def test_a_tokenizer_with_one_id_too_many_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        check_tokenizer(spec_of(tiny_config(vocab_size=70)), _tokenizer(tmp_path, 60, 11))
    assert caught.value.message == (
        "tokenizer.json spells 71 ids, and config.json has vocab_size 70"
    )


@pytest.mark.parametrize(("base", "added"), [(60, 10), (60, 3), (64, 0)])
def test_a_tokenizer_that_fits_tells_how_many_ids_it_spells(
    tmp_path: Path, base: int, added: int
) -> None:
    spec = spec_of(tiny_config(vocab_size=70))
    assert check_tokenizer(spec, _tokenizer(tmp_path, base, added)) == base + added


def test_a_checkpoint_may_have_no_tokenizer(tmp_path: Path) -> None:
    assert check_tokenizer(spec_of(tiny_config()), tmp_path) is None


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model": {"vocab": {}}}'])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(CheckpointError, match="not a tokenizer"):
        check_tokenizer(spec_of(tiny_config()), tmp_path)
