"""Nano's weights: seeded noise at scales under which a reply reads as varied text.

Owns the scale of each tensor. The table of names and shapes is the loader's own, so what is
written here is what a server expects. Invariant: a seed and numpy's PCG64 decide every bit.

The scales keep every path of the model alive: unit-size inputs to each layer, attention that
picks rather than averages, decays from fast to nearly none, gates on both sides of the clamp, and
logits with a spread of about four, so that greedy choices stand far above rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from streamglm.model.spec import ModelSpec
from streamglm.nano import tokens
from streamglm.weights.layout import Source, layout

SEED = 20261129

Noise = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Noise]


def _normal(std: float, mean: float = 0.0) -> Draw:
    return lambda rng, shape: mean + std * rng.standard_normal(shape)


def _uniform(low: float, high: float) -> Draw:
    return lambda rng, shape: rng.uniform(low, high, shape)


def _fan_in(gain: float) -> Draw:
    """Outputs of size `gain` for inputs of size one."""
    return lambda rng, shape: gain / sqrt(shape[-1]) * rng.standard_normal(shape)


# Endings of names that the checkpoint keeps in float32, with how they are drawn.
_FLOAT32: tuple[tuple[str, Draw], ...] = (
    ("_base", _normal(0.5)),
    ("_scale", _normal(0.1, 0.6)),
    ("A_log", _uniform(-0.5, 0.5)),
    ("dt_bias", _uniform(-6.0, 0.0)),
    ("e_score_correction_bias", _normal(0.05)),
)
# The first ending that fits decides; the last rule fits every matrix.
_BFLOAT16: tuple[tuple[str, Draw], ...] = (
    ("norm.weight", _normal(0.1, 1.0)),
    ("k_norm.bias", _normal(0.1)),
    ("layernorm.weight", _normal(0.1, 1.0)),
    ("embed_tokens.weight", _normal(0.6)),
    ("conv1d.weight", _normal(0.5)),
    ("index_kpool_compress_ape", _normal(0.5)),
    ("q_b_proj.weight", _fan_in(2.5)),
    ("mlp.gate.weight", _fan_in(1.5)),
    ("gate_proj.weight", _fan_in(1.2)),
    ("", _fan_in(1.0)),
)

# Lengths of the output rows of added tokens: a reply thinks, answers and ends; the other added
# tokens are left to a trained model, and their rows are short.
_MARKUP = {"</think>": 1.6, "<|user|>": 1.22, "<|endoftext|>": 0.9}
_UNUSED = 0.05


def _rule(rules: tuple[tuple[str, Draw], ...], name: str) -> Draw | None:
    return next((draw for ending, draw in rules if name.endswith(ending)), None)


def tensors(spec: ModelSpec, tokenizer: Tokenizer) -> dict[str, torch.Tensor]:
    """Hub name -> tensor, BF16 where the real checkpoint has it and F32 where it has that."""
    rng = np.random.default_rng(SEED)
    return {
        name: _tensor(source, rng, spec, tokenizer) for name, source in layout(spec).sources.items()
    }


def _tensor(
    source: Source, rng: np.random.Generator, spec: ModelSpec, tokenizer: Tokenizer
) -> torch.Tensor:
    if source.name == "lm_head.weight":
        return _bfloat16(_head(rng, spec, tokenizer))
    exact = _rule(_FLOAT32, source.name)
    if exact is not None:
        return torch.from_numpy(exact(rng, source.shape).astype(np.float32))
    draw = _rule(_BFLOAT16, source.name)
    assert draw is not None
    return _bfloat16(draw(rng, source.shape))


def _bfloat16(noise: Noise) -> torch.Tensor:
    return torch.from_numpy(noise.astype(np.float32)).to(torch.bfloat16)


def _head(rng: np.random.Generator, spec: ModelSpec, tokenizer: Tokenizer) -> Noise:
    """Rows of the output matrix; how long a row is decides how often its token is drawn."""
    rows = _fan_in(4.0)(rng, (spec.vocab_size, spec.hidden_size))
    lengths = np.array([_length(tokenizer.decode([i])) for i in range(spec.vocab_size)])
    for token in tokens.ADDED:
        lengths[tokens.token_id(token)] = _MARKUP.get(token, _UNUSED)
    scaled: Noise = rows * lengths[:, None]
    return scaled


def _length(text: str) -> float:
    """Whole words are preferred, bytes that are no character by themselves are rare."""
    if not text.isprintable() or "\ufffd" in text:
        return 0.6
    return 1.1 if len(text.strip()) > 1 else 0.9
