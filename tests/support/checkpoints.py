"""Small checkpoints for tests: configs, seeded tensors under hub names, folders with holes.

Owns no expectation. Names and shapes come from the loader's table, which `tests/weights`
checks against the published header totals and against transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from streamglm.model.spec import ModelSpec
from streamglm.weights.layout import layout

FLOAT32 = ("_base", "_scale", "A_log", "dt_bias", "e_score_correction_bias")
"""Endings of the tensors that the official checkpoint keeps in float32."""
FP8_PARTS = (
    "gate_proj.weight",
    "up_proj.weight",
    "down_proj.weight",
    "q_a_proj.weight",
    "q_b_proj.weight",
    "kv_a_proj_with_mqa.weight",
)
"""Endings of the tensors that the official FP8 checkpoint stores in blocks; `o_proj` of latent
layers besides."""

EXPERT_PARTS = tuple(f"experts.{expert}.{part}" for expert in range(3) for part in FP8_PARTS[:3])
"""Endings of the routed experts' tensors in `tiny_config`, which NVFP4 checkpoints pack."""


def real_config() -> dict[str, Any]:
    """The published `config.json` of GLM-5.3-Flash, its text fields."""
    kinds = ["deepseek_sparse_attention" if i % 4 == 3 else "linear_attention" for i in range(45)]
    text = {
        "model_type": "glm5_next_text",
        "vocab_size": 154880,
        "hidden_size": 4096,
        "num_hidden_layers": 45,
        "layer_types": kinds,
        "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 42,
        "intermediate_size": 12288,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 288,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "swiglu_limit": 10.0,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "attention_bias": False,
        "max_position_embeddings": 1_048_576,
        "num_attention_heads": 64,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 256,
        "qk_rope_head_dim": 0,
        "v_head_dim": 256,
        "index_n_heads": 32,
        "index_head_dim": 128,
        "index_topk": 2048,
        "index_kpool": 4,
        "index_kpool_always_select_tail": True,
        "indexer_types": ["full"] * 45,
        "hc_mult": 4,
        "hc_eps": 1e-6,
        "hc_sinkhorn_iters": 20,
        "num_nextn_predict_layers": 1,
        "eos_token_id": [154820, 154827, 154829],
        "pad_token_id": 154820,
        "linear_attn_config": {
            "num_heads": 64,
            "head_dim": 128,
            "short_conv_kernel_size": 4,
            "gate_lower_bound": -5.0,
            "kda_layers": [i for i in range(45) if i % 4 != 3],
            "full_attn_layers": [i for i in range(45) if i % 4 == 3],
        },
    }
    return {"model_type": "glm5_next", "tie_word_embeddings": False, "text_config": text}


def tiny_config(**text: Any) -> dict[str, Any]:
    """A config of four layers K K D K with odd head counts; `text` overrides text fields."""
    config = real_config()
    config["text_config"] |= {
        "vocab_size": 70,
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention"] * 2 + ["deepseek_sparse_attention", "linear_attention"],
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        "indexer_types": ["full"] * 4,
        "intermediate_size": 40,
        "moe_intermediate_size": 16,
        "n_routed_experts": 3,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 1024,
        "num_attention_heads": 5,
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "v_head_dim": 16,
        "index_n_heads": 2,
        "index_head_dim": 16,
        "index_topk": 64,
        "eos_token_id": [1],
        "pad_token_id": 0,
    }
    config["text_config"]["linear_attn_config"] |= {"num_heads": 4, "head_dim": 8}
    config["text_config"] |= text
    config["streamglm"] = {"page_rows": 64, "chunk_rows": 256}
    return config


def spec_of(config: Mapping[str, Any]) -> ModelSpec:
    """The spec of a config, without a generation config."""
    return ModelSpec.from_config(config, {})


def random_tensors(spec: ModelSpec, *, seed: int = 0) -> dict[str, torch.Tensor]:
    """Every text tensor of `spec` under its hub name, BF16 and F32 as officially stored."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(source.shape, generator=generator).to(
            torch.float32 if name.endswith(FLOAT32) else torch.bfloat16
        )
        for name, source in layout(spec).sources.items()
    }


def as_fp8(tensors: Mapping[str, torch.Tensor], *, edge: int) -> dict[str, torch.Tensor]:
    """The same tensors with those of `FP8_PARTS` in blocks of `edge`, scales beside them."""
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        stored[name] = tensor
        if name.endswith(FP8_PARTS):
            grid = [ceil(n / edge) for n in tensor.shape]
            stored[name] = tensor.to(torch.float8_e4m3fn)
            stored[f"{name}_scale_inv"] = 0.5 + torch.arange(grid[0] * grid[1]).view(grid) / 8
    return stored


def as_nvfp4(
    tensors: Mapping[str, torch.Tensor], spelling: str, names: tuple[str, ...] = EXPERT_PARTS
) -> dict[str, torch.Tensor]:
    """The same tensors with those whose names end with `names` in NVFP4 of random bits, as
    "modelopt" or "compressed-tensors" spells it."""
    generator = torch.Generator().manual_seed(5)
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if not name.endswith(names):
            stored[name] = tensor
            continue
        rows, columns = tensor.shape
        bits = torch.randint(256, (rows, columns // 2), generator=generator).to(torch.uint8)
        scales = torch.rand(rows, columns // 16, generator=generator).to(torch.float8_e4m3fn)
        stored[f"{name}_scale"] = scales
        if spelling == "modelopt":
            stored[name], stored[f"{name}_scale_2"] = bits, torch.tensor(0.3)
        else:
            stored[f"{name}_packed"], stored[f"{name}_global_scale"] = bits, torch.tensor([3.3])
    return stored


def write(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    *,
    shards: int = 1,
) -> Path:
    """Write a checkpoint folder. With several shards, tensors go round them by turns, so that a
    tensor and its scales, or the three parts of a convolution, lie in different files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    if shards == 1:
        save_file(whole, folder / "model.safetensors")
        return folder
    files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    placed = {name: files[i % shards] for i, name in enumerate(whole)}
    for file in files:
        save_file({n: t for n, t in whole.items() if placed[n] == file}, folder / file)
    index = {"metadata": {}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
