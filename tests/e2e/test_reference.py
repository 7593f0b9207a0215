"""A checkpoint that nobody here wrote gives transformers' tokens, over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from support.server import serving
from support.tiny import TinyShape, tiny_model

NEW = 64


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_greedy_tokens_over_http_equal_generate(tmp_path: Path, seed: int) -> None:
    model = tiny_model(TinyShape(), seed)
    model.save_pretrained(tmp_path)
    draw = torch.Generator().manual_seed(seed)
    with serving(tmp_path) as server:
        for length in (1, 5, 64, 130 + seed, 300):
            prompt = torch.randint(0, 300, (1, length), generator=draw)
            with torch.inference_mode():
                wanted = model.generate(
                    prompt, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False
                )[0, length:].tolist()
            reply = server.complete(
                prompt[0].tolist(), max_tokens=NEW, temperature=0, ignore_eos=True
            )
            assert reply["choices"][0]["token_ids"] == wanted, f"prompt of {length}"
