"""Tiny checkpoints of transformers' own making: the oracle, and an executor of the same weights.

Owns random models that meet every mechanism: clipping MLPs, random hyper-connections, decays and
router biases, odd sizes. Owns no expectation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import torch
from transformers.models.glm5_next.configuration_glm5_next import Glm5NextConfig
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextForConditionalGeneration

from streamglm.model.executor import Executor
from streamglm.model.spec import ModelSpec
from streamglm.sampling.lane import LaneSampler
from streamglm.weights.checkpoint import load


class Folder(Protocol):
    """Where a checkpoint of (shape, seed) lies; row counts go into its `streamglm` object."""

    def __call__(self, shape: TinyShape, seed: int, **rows: int) -> Path: ...


END = 1
"""The end token. Its row of the head is zero, so that it is never the highest logit."""


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Fields of transformers' text config. With 16 index heads no two scores are both 0, so that
    transformers' selection, which leaves ties to chance, is defined."""

    vocab_size: int = 333
    hidden_size: int = 64
    num_hidden_layers: int = 5
    intermediate_size: int = 96
    moe_intermediate_size: int = 40
    n_routed_experts: int = 6
    num_experts_per_tok: int = 2
    n_shared_experts: int = 1
    num_attention_heads: int = 4
    q_lora_rank: int = 48
    kv_lora_rank: int = 32
    qk_nope_head_dim: int = 16
    v_head_dim: int = 24
    index_n_heads: int = 16
    index_head_dim: int = 16
    index_topk: int = 128
    index_kpool: int = 4
    linear_num_heads: int = 4
    linear_head_dim: int = 16
    linear_conv_kernel_dim: int = 4
    swiglu_limit: float = 0.5
    norm_topk_prob: bool = True


ODD = TinyShape(
    vocab_size=101,
    hidden_size=40,
    num_hidden_layers=4,
    intermediate_size=56,
    moe_intermediate_size=24,
    n_routed_experts=5,
    num_experts_per_tok=3,
    n_shared_experts=2,
    num_attention_heads=3,
    q_lora_rank=20,
    kv_lora_rank=24,
    qk_nope_head_dim=12,
    v_head_dim=20,
    index_n_heads=11,
    index_head_dim=24,
    index_topk=96,
    linear_num_heads=3,
    linear_head_dim=24,
    linear_conv_kernel_dim=3,
    norm_topk_prob=False,
)
"""No size is a multiple of 16."""


def tiny_model(shape: TinyShape, seed: int) -> Any:
    """A random `Glm5NextForConditionalGeneration` in float32."""
    sizes = asdict(shape)
    text = sizes | {
        "num_key_value_heads": shape.num_attention_heads,
        "max_position_embeddings": 32768,
        # equal, so that `generate` takes no token of a prompt for padding
        "pad_token_id": END,
        "eos_token_id": [END],
        "mlp_layer_types": ["dense"] + ["sparse"] * (shape.num_hidden_layers - 1),
    }
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "num_heads": 2,
        "intermediate_size": 32,
        "out_hidden_size": shape.hidden_size,
        "projection_intermediate_size": 32,
        "image_size": 28,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = Glm5NextConfig(text_config=text, vision_config=vision)
        model = Glm5NextForConditionalGeneration(config).eval().float()
        _fill(model)
    return model


@torch.no_grad()
def _fill(model: torch.nn.Module) -> None:
    """Values that are far from every special case of an initialisation."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith(("hc.base", "hc.scale")):
            tensor.normal_(0.0, 0.5)
        elif name.endswith("A_log"):
            tensor.uniform_(-1.0, 1.0)
        elif name.endswith("dt_bias"):
            tensor.normal_()
        elif name.endswith(("e_score_correction_bias", "norm.bias")):
            tensor.normal_(0.0, 0.1)
        elif tensor.ndim == 1 and "language_model" in name:
            tensor.normal_(1.0, 0.2)
        elif tensor.ndim >= 2:
            tensor.normal_(0.0, 0.5 * tensor.shape[-1] ** -0.5)
        if name == "lm_head.weight":
            tensor[END] = 0.0


def write(model: Any, folder: Path, **rows: int) -> ModelSpec:
    """The checkpoint as transformers writes it, plus our row counts (64 a page, 256 a chunk)."""
    model.save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["streamglm"] = {"page_rows": 64, "chunk_rows": 256} | rows
    path.write_text(json.dumps(config))
    return ModelSpec.from_folder(folder)


def executor(folder: Path, *, pages: int = 64, lanes: int = 8, poison: bool = True) -> Executor:
    """The engine on the folder's weights, with poisoned pages."""
    spec = ModelSpec.from_folder(folder)
    loaded = load(folder, spec)
    return Executor(
        spec, loaded.params, pages=pages, lanes=lanes, sampler=LaneSampler, poison=poison
    )


@contextmanager
def lowest_pool_wins() -> Iterator[list[float]]:
    """Transformers' selection with ties to the lower pool, which its `topk` leaves open.

    Yields a list that collects, for every row that had to choose, the distance between the last
    chosen score and the best refused one.
    """
    margins: list[float] = []
    original = torch.Tensor.topk

    def topk(self: torch.Tensor, k: int, dim: int = -1, **options: Any) -> Any:
        if self.ndim != 3 or options:
            return original(self, k, dim, **options)
        found = self.sort(dim=dim, descending=True, stable=True)
        if self.shape[-1] > k:
            last, refused = found.values[..., k - 1], found.values[..., k]
            gaps = (last - refused)[refused > torch.finfo(refused.dtype).min]
            margins.extend(gaps[gaps > 0].tolist())
        return torch.return_types.topk((found.values[..., :k], found.indices[..., :k]))

    with mock.patch.object(torch.Tensor, "topk", topk):
        yield margins
