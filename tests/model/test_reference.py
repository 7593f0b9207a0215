"""Logits and greedy tokens equal transformers', on random checkpoints of its own making."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from streamglm.kernels.arguments import Array
from support.lanes import Lanes
from support.tiny import ODD, Folder, TinyShape, executor, lowest_pool_wins, tiny_model

LENGTH = 706
TOLERANCE = 1e-4
DECODED = 6

# Few heads: scores of exactly 0 abound, and with them ties.
TIES = replace(TinyShape(), index_n_heads=2, num_hidden_layers=4)
WIDE = replace(
    TinyShape(),
    vocab_size=160,
    hidden_size=96,
    num_hidden_layers=4,
    n_routed_experts=3,
    num_experts_per_tok=1,
    num_attention_heads=2,
    kv_lora_rank=80,
    qk_nope_head_dim=40,
    v_head_dim=16,
    index_kpool=8,
    index_topk=64,
    linear_num_heads=2,
    linear_head_dim=40,
    linear_conv_kernel_dim=2,
    swiglu_limit=2.0,
)
CASES = [(TinyShape(), 0), (TinyShape(), 1), (ODD, 2), (ODD, 3), (TIES, 8), (WIDE, 5)]
NAMES = ["default-0", "default-1", "odd-2", "odd-3", "ties-8", "wide-5"]


def ids(shape: TinyShape, seed: int, length: int = LENGTH) -> list[int]:
    draw = torch.Generator().manual_seed(seed)
    found: list[int] = torch.randint(0, shape.vocab_size, (length,), generator=draw).tolist()
    return found


@cache
def wanted(shape: TinyShape, seed: int) -> Array:
    """Transformers' logits at every position, with no choice that rounding could turn."""
    with torch.inference_mode(), lowest_pool_wins() as margins:
        tokens = torch.tensor([ids(shape, seed)])
        logits: Array = tiny_model(shape, seed)(input_ids=tokens).logits[0].numpy()
    assert min(margins) > 1e-6, f"seed {seed} chooses by {min(margins)}"
    return logits


def lengths(shape: TinyShape) -> list[int]:
    """Ends of tiles, both sides of the indexer's limit at every remainder, and a long one."""
    limit = shape.index_topk + shape.index_kpool - 1
    around = range(limit - shape.index_kpool, limit + shape.index_kpool + 1)
    return [1, 2, 3, 4, 5, 63, 64, 65, *around, 191, 256, 257, 385, LENGTH - DECODED]


@pytest.mark.parametrize(("shape", "seed"), CASES, ids=NAMES)
def test_logits_of_every_row_of_prompt_and_window(
    tiny: Folder, shape: TinyShape, seed: int
) -> None:
    lanes, tokens = Lanes(executor(tiny(shape, seed))), ids(shape, seed)
    for length in lengths(shape):
        lanes.prompt(0, tokens[:length])
        lanes.decode(0, tokens[length : length + DECODED])
        found = lanes.stacked(0)
        assert len(found) == length + DECODED
        error = np.abs(found - wanted(shape, seed)[: len(found)]).max(1)
        assert error.max() < TOLERANCE, f"prompt of {length}: row {error.argmax()}"
        lanes.end(0)


@pytest.mark.parametrize(
    "rows",
    [
        # lists and tiles of several chunks of keys, merged
        {"attend_rows": 48},
        # pages that are no power of two, and another grid of prompts
        {"page_rows": 96, "chunk_rows": 192, "kda_chunk_rows": 32, "attend_rows": 64},
        {"page_rows": 512, "chunk_rows": 1024, "kda_chunk_rows": 128},
    ],
)
def test_other_row_counts_change_nothing(tiny: Folder, rows: dict[str, int]) -> None:
    shape, seed = TinyShape(), 0
    lanes, tokens = Lanes(executor(tiny(shape, seed, **rows))), ids(shape, seed)
    for length in (3, 100, 129, 500):
        lanes.prompt(0, tokens[:length])
        lanes.decode(0, tokens[length : length + DECODED])
        found = lanes.stacked(0)
        error = np.abs(found - wanted(shape, seed)[: len(found)]).max(1)
        assert error.max() < TOLERANCE, f"prompt of {length}: row {error.argmax()}"
        lanes.end(0)


@pytest.mark.parametrize(("shape", "seed"), [(TinyShape(), 0), (ODD, 3)])
def test_greedy_tokens_are_those_of_generate(tiny: Folder, shape: TinyShape, seed: int) -> None:
    model: Any = tiny_model(shape, seed)
    lanes = Lanes(executor(tiny(shape, seed)))
    for length in (1, 66, 300):
        prompt = ids(shape, length, length)
        with torch.inference_mode(), lowest_pool_wins():
            tokens = model.generate(
                torch.tensor([prompt]), max_new_tokens=64, min_new_tokens=64, do_sample=False
            )[0, length:].tolist()
        found = [lanes.prompt(0, prompt)]
        while len(found) < 64:
            found.append(lanes.window({0: found[-1]})[0])
        assert found == tokens, f"prompt of {length}"
        lanes.end(0)
