"""The shipped folder: what training writes, in the real checkpoint's spelling and formats."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from streamglm.model.spec import LayerKind, ModelSpec
from streamglm.nano import folder
from streamglm.nano.training import export, tokens
from streamglm.weights.checkpoint import load
from streamglm.weights.fit import check_files, check_tokenizer
from streamglm.weights.headers import catalogue
from support.checkpoints import FLOAT32

FILES = [
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
]


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return ModelSpec.from_folder(folder())


def _read(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder() / name).read_bytes())
    return value


def test_training_writes_the_shipped_small_files(tmp_path: Path) -> None:
    """Byte for byte, the tokenizer's merges included: they come from the generators, so a change of
    any wording shows here, and asks for new weights."""
    export.write_files(tmp_path)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == sorted(set(FILES) - {export.TEMPLATE, "model.safetensors"})
    assert sorted(path.name for path in folder().iterdir()) == FILES
    for name in written:
        assert (tmp_path / name).read_bytes() == (folder() / name).read_bytes(), name


def test_the_folder_is_found_without_torch() -> None:
    code = "import sys, streamglm.nano as n; n.folder(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_weights_fit_the_model_and_the_tokenizer(spec: ModelSpec) -> None:
    assert check_files(folder()).mtp
    assert check_tokenizer(spec, folder()) == spec.vocab_size == tokens.VOCAB_SIZE


def test_anyone_may_read_the_weights_and_they_stay_small() -> None:
    stat = (folder() / "model.safetensors").stat()
    assert stat.st_mode & 0o444 == 0o444
    assert stat.st_size <= 16 * 2**20


def test_it_has_about_eight_million_parameters() -> None:
    count = sum(math.prod(stored.shape) for stored in catalogue(folder()).tensors.values())
    assert 7.5e6 < count < 8.5e6


def test_tensors_have_the_formats_of_the_real_checkpoint() -> None:
    for name, stored in catalogue(folder()).tensors.items():
        assert stored.dtype == ("F32" if name.endswith(FLOAT32) else "BF16"), name


def test_a_short_chat_meets_every_mechanism(spec: ModelSpec) -> None:
    kda, dsa = LayerKind.KDA, LayerKind.DSA
    assert spec.layers == (kda, kda, kda, dsa) * 2
    assert spec.sparse_mlp == (False, *[True] * 7)
    assert (spec.mtp_layers, spec.rows.page, spec.rows.chunk, spec.index_topk) == (1, 64, 256, 128)
    assert spec.max_positions == 32_768


def test_the_config_is_spelled_as_the_real_one() -> None:
    config = _read("config.json")
    text = config["text_config"]
    assert text["layer_types"].count("deepseek_sparse_attention") == 2
    assert text["linear_attn_config"]["full_attn_layers"] == [3, 7]
    assert text["linear_attn_config"]["gate_lower_bound"] == -5.0
    assert config["image_token_id"] == tokens.token_id("<|image|>") == 2046


def test_end_tokens_are_those_of_its_own_tokenizer(spec: ModelSpec) -> None:
    assert (
        spec.eos_ids == tuple(tokens.token_id(token) for token in tokens.END) == (2012, 2019, 2021)
    )
    generation = _read("generation_config.json")
    assert generation["eos_token_id"] == list(spec.eos_ids)
    assert (generation["pad_token_id"], generation["temperature"]) == (2012, 1.0)
    assert generation["top_p"] == 0.95


def test_loading_is_told_to_the_end(spec: ModelSpec) -> None:
    told: list[tuple[int, int]] = []
    params = load(folder(), spec, progress=lambda done, total: told.append((done, total))).params
    assert told[-1][0] == told[-1][1] > 15 * 2**20
    assert all(bool(torch.isfinite(param).all()) for param in params.values())
