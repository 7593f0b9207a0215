"""Shapes that are served by name: `random:glm-5.3-flash`, the real numbers without a checkpoint.

Owns one `config.json` in code, read by the same reader as a file, so that a plan, a bench and a
random model have the checkpoint's own numbers, and how a model is cut to fewer layers. Knows no
weights. Values: the text part of
zai-org/GLM-5.3-Flash's `config.json` and `generation_config.json`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from streamglm.errors import CheckpointError, SettingError
from streamglm.model.spec import LayerKind, ModelSpec

RANDOM = "random:"
"""How a model without weights begins: what follows is a name, or a folder with a `config.json`."""
GLM_5_3_FLASH = f"{RANDOM}glm-5.3-flash"

_LAYERS = 45
_LATENT = frozenset(range(3, _LAYERS, 4))
"""Layers that attend to latents; all others, the last included, are linear attention."""
_DENSE = 3
"""Leading layers with one dense MLP."""


def glm_5_3_flash(layers: int | None = None) -> ModelSpec:
    """The spec of GLM-5.3-Flash: 34 KDA layers, 11 DSA layers and one MTP layer; or of its first
    `layers` layers and the MTP layer. Raises `SettingError`."""
    generation = {"eos_token_id": [154820, 154827, 154829]}
    return _cut(ModelSpec.from_config(config_of_glm(), generation), layers)


def random_spec(model: str, layers: int | None) -> ModelSpec:
    """The spec behind `random:glm-5.3-flash` or `random:FOLDER`, of its first `layers` layers.

    Raises `CheckpointError` and `SettingError`.
    """
    if model == GLM_5_3_FLASH:
        return glm_5_3_flash(layers)
    folder = Path(model.removeprefix(RANDOM))
    if not folder.is_dir():
        raise CheckpointError(f"{model}: no such shapes; {GLM_5_3_FLASH}, or {RANDOM}FOLDER")
    return _cut(ModelSpec.from_folder(folder), layers)


def _cut(spec: ModelSpec, layers: int | None) -> ModelSpec:
    if layers is None:
        return spec
    most, least = len(spec.layers), 1 + max(spec.layers.index(kind) for kind in LayerKind)
    if not least <= layers <= most:
        raise SettingError(
            f"--layers is {layers}, and the model has {most}: {least} is the least with both kinds"
        )
    return replace(spec, layers=spec.layers[:layers], sparse_mlp=spec.sparse_mlp[:layers])


def config_of_glm() -> dict[str, Any]:
    """The checkpoint's `config.json`, its text part."""
    kinds = [
        "deepseek_sparse_attention" if layer in _LATENT else "linear_attention"
        for layer in range(_LAYERS)
    ]
    return {
        "model_type": "glm5_next",
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "glm5_next_text",
            "vocab_size": 154_880,
            "hidden_size": 4096,
            "num_hidden_layers": _LAYERS,
            "layer_types": kinds,
            "max_position_embeddings": 1_048_576,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "attention_bias": False,
            "hc_mult": 4,
            "hc_eps": 1e-6,
            "hc_sinkhorn_iters": 20,
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
            "indexer_types": ["full"] * _LAYERS,
            "linear_attn_config": {
                "num_heads": 64,
                "head_dim": 128,
                "short_conv_kernel_size": 4,
                "gate_lower_bound": -5.0,
            },
            "intermediate_size": 12_288,
            "moe_intermediate_size": 2048,
            "swiglu_limit": 10.0,
            "mlp_layer_types": ["dense"] * _DENSE + ["sparse"] * (_LAYERS - _DENSE),
            "n_routed_experts": 288,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "num_nextn_predict_layers": 1,
        },
    }
