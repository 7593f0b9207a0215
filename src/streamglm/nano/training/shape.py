"""Nano's `config.json` and `generation_config.json`: the real files' fields, small numbers.

Owns the shape. Every kind of layer occurs, a page holds 64 rows and a prompt chunk 256, so that
a short chat meets pages, chunks, marks and sparse selection.
"""

from __future__ import annotations

from typing import Any

from streamglm.model.spec import ModelSpec
from streamglm.nano.training import tokens

CONTEXT = 32_768
_KINDS = (["linear_attention"] * 3 + ["deepseek_sparse_attention"]) * 2
_END = [tokens.token_id(token) for token in tokens.END]


def spec() -> ModelSpec:
    """The shape as the numbers that a server reads from it."""
    return ModelSpec.from_config(config(), generation())


def config() -> dict[str, Any]:
    """`config.json`. The vision part is as small as its classes allow: no weights go with it."""
    return {
        "architectures": ["Glm5NextForConditionalGeneration"],
        "model_type": "glm5_next",
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        "image_token_id": tokens.token_id("<|image|>"),
        "video_token_id": tokens.token_id("<|video|>"),
        "image_start_token_id": tokens.token_id("<|begin_of_image|>"),
        "image_end_token_id": tokens.token_id("<|end_of_image|>"),
        "video_start_token_id": tokens.token_id("<|begin_of_video|>"),
        "video_end_token_id": tokens.token_id("<|end_of_video|>"),
        "text_config": _text(),
        "vision_config": _vision(),
        "streamglm": {"page_rows": 64, "chunk_rows": 256},
    }


def generation() -> dict[str, Any]:
    """`generation_config.json`."""
    return {
        "eos_token_id": _END,
        "pad_token_id": _END[0],
        "do_sample": True,
        "temperature": 1.0,
        "top_p": 0.95,
    }


def _text() -> dict[str, Any]:
    count = len(_KINDS)
    return {
        "model_type": "glm5_next_text",
        "dtype": "bfloat16",
        "vocab_size": tokens.VOCAB_SIZE,
        "hidden_size": 256,
        "num_hidden_layers": count,
        "layer_types": _KINDS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "eos_token_id": _END,
        "pad_token_id": _END[0],
        # hyper-connections
        "mhc": True,
        "hc_mult": 4,
        "hc_eps": 1e-6,
        "hc_sinkhorn_iters": 20,
        # latent attention and its indexer
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": 0,
        "q_lora_rank": 128,
        "kv_lora_rank": 128,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 0,
        "qk_head_dim": 32,
        "v_head_dim": 32,
        "mla_use_nope": True,
        "index_n_heads": 4,
        "index_head_dim": 64,
        "index_topk": 128,
        "index_kpool": 4,
        "index_kpool_compress": True,
        "index_kpool_always_select_tail": True,
        "index_share_for_mtp_iteration": True,
        "indexer_types": ["full"] * count,
        # linear attention
        "linear_attn_config": {
            "num_heads": 8,
            "head_dim": 32,
            "short_conv_kernel_size": 4,
            "gate_lower_bound": -5.0,
            "kda_layers": [i for i, kind in enumerate(_KINDS) if kind == "linear_attention"],
            "full_attn_layers": [i for i, kind in enumerate(_KINDS) if kind != "linear_attention"],
        },
        # feed-forward
        "intermediate_size": 512,
        "moe_intermediate_size": 64,
        "swiglu_limit": 10.0,
        "first_k_dense_replace": 1,
        "mlp_layer_types": ["dense"] + ["sparse"] * (count - 1),
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "routed_scaling_factor": 2.5,
        "moe_router_dtype": "float32",
        # next-token layer
        "num_nextn_predict_layers": 1,
    }


def _vision() -> dict[str, Any]:
    return {
        "model_type": "glm5_next_vision",
        "depth": 1,
        "hidden_size": 32,
        "num_heads": 2,
        "intermediate_size": 32,
        "out_hidden_size": 256,
        "projection_intermediate_size": 32,
        "image_size": 28,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "attention_bias": True,
    }
