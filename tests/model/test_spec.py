"""ModelSpec: what a config says is taken, and what it cannot say safely is refused by name."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streamglm import nano
from streamglm.errors import CheckpointError
from streamglm.model.spec import LayerKind, ModelSpec, read_json
from support.checkpoints import real_config, tiny_config

KDA, DSA = LayerKind.KDA, LayerKind.DSA


def read(config: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> ModelSpec:
    return ModelSpec.from_config(config, generation or {})


def refusal(config: Mapping[str, Any]) -> str:
    """The one line with which a config is refused."""
    with pytest.raises(CheckpointError) as caught:
        read(config)
    assert "\n" not in caught.value.message
    return caught.value.message


def without(config: dict[str, Any], name: str) -> dict[str, Any]:
    """The config with one text field, or one field of `linear_attn_config`, taken away."""
    config = copy.deepcopy(config)
    text = config["text_config"]
    del (text["linear_attn_config"] if name in text["linear_attn_config"] else text)[name]
    return config


def flat(config: dict[str, Any]) -> dict[str, Any]:
    """The config in transformers' own spelling: KDA fields beside the others."""
    config = copy.deepcopy(config)
    linear = config["text_config"].pop("linear_attn_config")
    config["text_config"] |= {
        "linear_num_heads": linear["num_heads"],
        "linear_head_dim": linear["head_dim"],
        "linear_conv_kernel_dim": linear["short_conv_kernel_size"],
        "linear_lower_bound": linear["gate_lower_bound"],
    }
    return config


def test_the_published_numbers() -> None:
    spec = read(real_config())
    assert (spec.vocab_size, spec.hidden_size, len(spec.layers)) == (154880, 4096, 45)
    assert (len(spec.kda_layers), spec.dsa_layers) == (34, tuple(range(3, 44, 4)))
    assert spec.layers[44] is KDA
    assert spec.sparse_mlp == (False,) * 3 + (True,) * 42
    assert (spec.pool, spec.topk_pools, spec.dense_limit) == (4, 512, 2051)
    assert (spec.kda_width, spec.conv_width, spec.gate_lower_bound) == (8192, 4, -5.0)
    assert (spec.streams, spec.hc_outputs, spec.sinkhorn_iters) == (4, 24, 20)
    assert (spec.latent_caches, spec.mtp_layers) == (12, 1)
    assert spec.eos_ids == (154820, 154827, 154829)
    assert (spec.rows.page, spec.rows.chunk, spec.rows.kda_chunk) == (512, 2048, 64)


@pytest.mark.parametrize(
    "spelling", ["deepseek_sparse_attention", "indexed_attention", "full_attention"]
)
def test_each_spelling_of_a_latent_layer_is_the_same_layer(spelling: str) -> None:
    kinds = ["linear_attention", "linear_attention", spelling, "linear_attention"]
    assert read(tiny_config(layer_types=kinds)).layers == (KDA, KDA, DSA, KDA)


def test_flat_and_nested_fields_of_linear_attention_agree() -> None:
    assert read(flat(tiny_config())) == read(tiny_config())


def test_a_nested_field_wins_over_a_flat_one() -> None:
    assert read(tiny_config(linear_num_heads=7)).kda_heads == 4


def test_a_text_config_alone_is_read_as_the_whole() -> None:
    text = tiny_config()["text_config"]
    assert read({**text, "streamglm": tiny_config()["streamglm"]}) == read(tiny_config())


@pytest.mark.parametrize(
    "name",
    [
        "index_kpool",
        "index_topk",
        "num_experts_per_tok",
        "swiglu_limit",
        "rms_norm_eps",
        "hc_sinkhorn_iters",
        "max_position_embeddings",
        "norm_topk_prob",
        "vocab_size",
        "head_dim",
        "gate_lower_bound",
    ],
)
def test_a_field_without_a_safe_default_must_be_there(name: str) -> None:
    assert name in refusal(without(tiny_config(), name))


@pytest.mark.parametrize("name", ["layer_types", "mlp_layer_types"])
def test_layer_lists_are_never_guessed(name: str) -> None:
    assert f"{name} must list 4 entries" in refusal(without(tiny_config(), name))


def test_no_next_token_layer_is_the_only_default() -> None:
    assert read(without(tiny_config(), "num_nextn_predict_layers")).mtp_layers == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden_size", "32"),
        ("hidden_size", 32.5),
        ("hidden_size", True),
        ("norm_topk_prob", 1),
        ("rms_norm_eps", "small"),
        ("swiglu_limit", [1.0]),
        ("index_kpool", None),
    ],
)
def test_a_field_of_a_wrong_type_is_named(name: str, value: object) -> None:
    assert name in refusal(tiny_config(**{name: value}))


@pytest.mark.parametrize("name", ["hidden_size", "num_attention_heads", "index_kpool"])
def test_a_size_below_one_is_refused(name: str) -> None:
    assert refusal(tiny_config(**{name: 0})) == f"config.json: {name} is 0, below 1"


def test_a_whole_number_is_a_number_with_a_point_too() -> None:
    assert read(tiny_config(swiglu_limit=10)).swiglu_limit == 10.0


def test_an_unknown_layer_type_is_named_with_the_known_ones() -> None:
    kinds = ["linear_attention", "sliding_attention", "full_attention", "linear_attention"]
    said = refusal(tiny_config(layer_types=kinds))
    assert "'sliding_attention'" in said
    assert "deepseek_sparse_attention" in said


def test_a_list_of_layers_of_another_length_is_refused() -> None:
    assert "(it has 3)" in refusal(tiny_config(layer_types=["linear_attention"] * 3))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden_act", "gelu"),
        ("qk_rope_head_dim", 64),
        ("n_group", 2),
        ("topk_group", 2),
        ("attention_bias", True),
        ("index_kpool_always_select_tail", False),
        ("tie_word_embeddings", True),
        ("indexer_types", ["full", "shared", "full", "full"]),
        ("num_nextn_predict_layers", 2),
        ("index_topk", 66),
        ("num_experts_per_tok", 4),
    ],
)
def test_what_this_engine_cannot_honour_is_refused_by_name(name: str, value: object) -> None:
    assert name in refusal(tiny_config(**{name: value}))


def test_another_architecture_is_refused() -> None:
    said = refusal({"model_type": "glm4_moe"})
    assert "'glm4_moe'" in said
    assert "'glm5_next'" in said


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ({"page_rows": 96}, "page_rows is 96"),
        ({"page_rows": 0}, "page_rows is 0"),
        ({"page_rows": 64, "chunk_rows": 96}, "chunk_rows is 96"),
        ({"page_rows": 128, "chunk_rows": 64}, "chunk_rows is 64"),
    ],
)
def test_row_counts_that_do_not_nest_are_refused(rows: dict[str, int], named: str) -> None:
    assert named in refusal(tiny_config() | {"streamglm": rows})


def test_row_counts_come_from_the_file() -> None:
    rows = {"page_rows": 128, "chunk_rows": 384, "kda_chunk_rows": 32, "attend_rows": 64}
    spec = read(tiny_config() | {"streamglm": rows})
    assert (spec.rows.page, spec.rows.chunk) == (128, 384)
    assert (spec.rows.kda_chunk, spec.rows.attend) == (32, 64)


def test_a_pool_must_not_straddle_pages() -> None:
    config = tiny_config(index_kpool=3, index_topk=63)
    assert "not a multiple of index_kpool 3" in refusal(config)


@pytest.mark.parametrize(
    ("generation", "eos"),
    [({}, (1,)), ({"eos_token_id": 5}, (5,)), ({"eos_token_id": [6, 7]}, (6, 7))],
)
def test_end_tokens_come_from_the_generation_config_first(
    generation: dict[str, Any], eos: tuple[int, ...]
) -> None:
    assert read(tiny_config(), generation).eos_ids == eos


def test_a_folder_needs_its_config_and_not_its_generation_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    assert ModelSpec.from_folder(tmp_path) == read(tiny_config())
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 9}')
    assert ModelSpec.from_folder(tmp_path).eos_ids == (9,)


@pytest.mark.parametrize(
    ("text", "said"), [(None, "cannot be read"), ("{", "not JSON"), ("[]", "holds list")]
)
def test_a_config_that_is_no_object_is_named(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=rf"^config\.json: .*{said}"):
        read_json(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"streamglm": {"page_rows": "x"}}, "streamglm.page_rows"),
        ({"streamglm": {"kda_chunk_rows": 0}}, "streamglm.kda_chunk_rows"),
        ({"streamglm": 7}, "streamglm"),
        ({"text_config": [1]}, "text_config"),
    ],
    ids=["text", "zero", "not-an-object", "list"],
)
def test_a_field_of_another_kind_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    raw = read_json(nano.folder() / "config.json")
    with pytest.raises(CheckpointError, match=re.escape(named)):
        ModelSpec.from_config(raw | change, {})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rms_norm_eps", float("nan")),
        ("linear_attn_config", [1]),
        ("layer_types", [["linear_attention"]] * 8),
        ("eos_token_id", ["a"]),
    ],
    ids=["nan", "list", "list-in-list", "text-id"],
)
def test_a_text_field_of_another_kind_is_refused_by_name(field: str, value: object) -> None:
    raw = read_json(nano.folder() / "config.json")
    text = raw["text_config"] | {field: value}
    with pytest.raises(CheckpointError, match=field):
        ModelSpec.from_config(raw | {"text_config": text}, {})
