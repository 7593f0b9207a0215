"""A checkpoint written by transformers loads as it lies, tensor for tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.glm5_next.configuration_glm5_next import Glm5NextConfig
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextForConditionalGeneration

from streamglm.model.spec import ModelSpec
from streamglm.weights.checkpoint import load

TEXT = {
    "vocab_size": 70,
    "hidden_size": 32,
    "intermediate_size": 40,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "n_routed_experts": 3,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "v_head_dim": 16,
    "qk_nope_head_dim": 8,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "eos_token_id": [1],
    "index_topk": 64,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "index_kpool": 4,
    "linear_head_dim": 8,
    "linear_num_heads": 4,
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
}
VISION = {
    "depth": 1,
    "hidden_size": 32,
    "num_heads": 2,
    "intermediate_size": 32,
    "out_hidden_size": 32,
    "projection_intermediate_size": 32,
    "image_size": 28,
}
# Names inside transformers -> ours, where they differ.
RENAMED = (("forget_gate.", ""), ("attn_hc.", "hc_attn_"), ("ffn_hc.", "hc_ffn_"))


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(5)
    config = Glm5NextConfig(text_config=TEXT, vision_config=VISION)
    return Glm5NextForConditionalGeneration(config)


def _ours(name: str) -> str:
    name = name.removeprefix("model.language_model.")
    for theirs, ours in RENAMED:
        name = name.replace(theirs, ours)
    return name


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(torch.float32, "5GB"), (torch.float32, "50KB"), (torch.bfloat16, "50KB")],
    ids=["one-file", "shards", "bf16-shards"],
)
def test_saved_by_transformers(tmp_path: Path, model: Any, dtype: torch.dtype, size: str) -> None:
    saved = model.to(dtype)
    saved.save_pretrained(tmp_path, max_shard_size=size)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (size == "50KB")
    result = load(tmp_path, ModelSpec.from_folder(tmp_path))
    theirs = {_ours(n): t for n, t in saved.state_dict().items() if "model.visual." not in n}
    assert result.params.keys() == theirs.keys()
    assert not result.mtp
    assert result.skipped_vision > 0
    for name, tensor in theirs.items():
        assert torch.equal(result.params[name], tensor.float().view_as(result.params[name])), name
