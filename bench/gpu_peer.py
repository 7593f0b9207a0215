"""transformers' own model at the same layers and shapes, random weights, one GPU, eager.

Owns its config and its two measurements. Knows nothing of ours. Its tokens are its own: weights are
drawn anew, so that only times are compared; that both compute the same model, the tests show.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from streamglm.model.shapes import config_of_glm
from streamglm.model.spec import ModelSpec

_WARM = 128
"""Tokens of a prompt that is not told of: what compiles or tunes itself does it there."""


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


def decode(
    spec: ModelSpec, contexts: Sequence[int], steps: int = 12
) -> dict[int, dict[str, float]]:
    """Of each context, shortest first: milliseconds of a prompt of so many tokens, and of a token
    behind it, one stream. One that does not fit beside the weights, and those behind it, are left
    out, and so is everything where transformers itself fails: a line says which and why."""
    found: dict[int, dict[str, float]] = {}
    at = _WARM
    try:
        model = _model(spec)
        with torch.inference_mode():
            _measured(model, spec, at, 1)
            for at in sorted(contexts):
                found[at] = _measured(model, spec, at, steps)
    except Exception as error:
        print(f"transformers at {at:,} tokens: {type(error).__name__}: {str(error)[:200]}")
    return found


def _measured(model: Any, spec: ModelSpec, context: int, steps: int) -> dict[str, float]:
    ids = torch.randint(2, spec.vocab_size, (1, context), device="cuda")
    prompts = []
    for _ in range(2):
        out = None  # so that its cache is not there twice
        began = _now()
        out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
        prompts.append(_now() - began)
    assert out is not None
    cache, token, seconds = out.past_key_values, out.logits[:, -1:].argmax(-1), []
    for _ in range(steps):
        began = _now()
        out = model(input_ids=token, past_key_values=cache, use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
        seconds.append(_now() - began)
    return {
        "prompt_tokens": context,
        "prompt_ms": 1e3 * min(prompts),
        "step_ms": 1e3 * median(seconds[2:] or seconds),
    }


def _now() -> float:
    """When all that was launched is done."""
    torch.cuda.synchronize()
    return time.perf_counter()
