"""transformers' own model at the same layers and shapes, random weights, one GPU, eager.

Owns its config and its two measurements. Knows nothing of ours. Its tokens are its own: weights are
drawn anew, so that only times are compared; that both compute the same model, the tests show.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from streamglm.model.shapes import config_of_glm
from streamglm.model.spec import ModelSpec


def _model(spec: ModelSpec) -> Any:
    from transformers.models.glm5_next.configuration_glm5_next import Glm5NextConfig
    from transformers.models.glm5_next.modeling_glm5_next import Glm5NextForConditionalGeneration

    layers = len(spec.layers)
    text: dict[str, Any] = dict(config_of_glm()["text_config"])
    text |= {
        "num_hidden_layers": layers,
        "layer_types": text["layer_types"][:layers],
        "mlp_layer_types": text["mlp_layer_types"][:layers],
        "indexer_types": text["indexer_types"][:layers],
        "pad_token_id": 0,
        "eos_token_id": [1],
    }
    text |= {f"linear_{name}": value for name, value in text.pop("linear_attn_config").items()}
    text["linear_conv_kernel_dim"] = text.pop("linear_short_conv_kernel_size")
    text["linear_lower_bound"] = text.pop("linear_gate_lower_bound")
    vision = {
        "depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32,
        "out_hidden_size": spec.hidden_size, "projection_intermediate_size": 32, "image_size": 28,
    }  # fmt: skip
    config = Glm5NextConfig(text_config=text, vision_config=vision)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            model = Glm5NextForConditionalGeneration(config)
    finally:
        torch.set_default_dtype(torch.float32)
    model = model.to_empty(device="cuda").eval()
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                scale = tensor.shape[-1] ** -0.5 if tensor.ndim > 1 else 0.1
                tensor.normal_(0.0, scale)
                if tensor.ndim == 1:
                    tensor.add_(1.0)
            else:
                tensor.zero_()
    return model


def decode(spec: ModelSpec, context: int, steps: int = 12) -> dict[str, float]:
    """Milliseconds of a prompt of `context` tokens, and of a token behind it, one stream."""
    model = _model(spec)
    ids = torch.randint(2, spec.vocab_size, (1, context), device="cuda")
    with torch.inference_mode():
        prompts = []
        for _ in range(2):
            torch.cuda.synchronize()
            began = time.perf_counter()
            out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
            torch.cuda.synchronize()
            prompts.append(time.perf_counter() - began)
        cache, seconds = out.past_key_values, []
        token = out.logits[:, -1:].argmax(-1)
        for _ in range(steps):
            torch.cuda.synchronize()
            began = time.perf_counter()
            out = model(input_ids=token, past_key_values=cache, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
    return {
        "prompt_tokens": context,
        "prompt_ms": 1e3 * min(prompts),
        "step_ms": 1e3 * median(seconds[2:]),
    }
