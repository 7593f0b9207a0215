"""A tokenizer and a layout made once, and a small model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from streamglm.model.spec import ModelSpec
from streamglm.nano import folder
from streamglm.nano.training import shape, tokens, weights
from streamglm.nano.training.layout import Layout


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return tokens.train()


@pytest.fixture(scope="session")
def template() -> str:
    return (folder() / "chat_template.jinja").read_text("utf-8")


@pytest.fixture(scope="session")
def layout(tokenizer: Tokenizer, template: str) -> Layout:
    return Layout(tokenizer, template)


@pytest.fixture(scope="session")
def data(tokenizer: Tokenizer, template: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tokenizer and template."""
    made = tmp_path_factory.mktemp("data")
    tokenizer.save(str(made / "tokenizer.json"))
    (made / "chat_template.jinja").write_text(template, "utf-8")
    return made


@pytest.fixture(scope="session")
def small_config() -> dict[str, Any]:
    """Two KDA and two latent layers, a quarter as wide, a quarter of the selection. Eight index
    heads, so that no two pools tie at a score of zero, where libraries choose differently."""
    config = shape.config()
    text = config["text_config"]
    kinds = ["linear_attention", "deepseek_sparse_attention"] * 2
    text.update(
        hidden_size=64, num_hidden_layers=4, layer_types=kinds, num_attention_heads=4,
        num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=32, index_n_heads=8, index_head_dim=16,
        intermediate_size=64, moe_intermediate_size=16, n_routed_experts=4, index_topk=32,
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"], indexer_types=["full"] * 4,
    )  # fmt: skip
    text["linear_attn_config"].update(num_heads=4, head_dim=16)
    text["linear_attn_config"].update(kda_layers=[0, 2], full_attn_layers=[1, 3])
    config["vision_config"].update(out_hidden_size=64)
    return config


@pytest.fixture(scope="session")
def spec(small_config: dict[str, Any]) -> ModelSpec:
    return ModelSpec.from_config(small_config, shape.generation())


@pytest.fixture
def params(spec: ModelSpec) -> dict[str, torch.Tensor]:
    """Shaken parameters, so that no term of a formula is zero or one by its start."""
    random = torch.Generator().manual_seed(5)
    made = weights.initial(spec, 1)
    for name, p in made.items():
        size = 0.3 if p.ndim == 1 and not name.endswith("norm.weight") else 0.1
        p += torch.randn(p.shape, generator=random) * size
        if name == "embed_tokens.weight":
            p += torch.randn(p.shape, generator=random)
    return made


@pytest.fixture(scope="session")
def untrained(
    data: Path,
    spec: ModelSpec,
    small_config: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A checkpoint folder of the small shape that has learned nothing but to end its replies."""
    made = tmp_path_factory.mktemp("untrained")
    for name in ("tokenizer.json", "chat_template.jinja"):
        (made / name).write_bytes((data / name).read_bytes())
    (made / "config.json").write_text(json.dumps(small_config))
    (made / "generation_config.json").write_text(json.dumps(shape.generation()))
    params = weights.initial(spec, 1)
    # a constant direction in every hidden, and the end token's row along it
    params["norm.weight"].zero_()
    params["norm.weight"][0] = 1.0
    params["embed_tokens.weight"][:, 0] = 9.0
    params["lm_head.weight"][tokens.token_id("<|user|>"), 0] = 9.0
    weights.save(spec, params, made / "model.safetensors")
    return made
