"""The next-token layer against golden outputs: whole, row by row, and behind a prompt in any
chunking.

The golden file is one tiny layer of the published formulas, built from transformers' attention and
experts, with 37 rows that all see each other. Its row i is row i + 1 here, where no row 0 is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open

from streamglm.kernels import linear
from streamglm.kernels.arguments import Array
from streamglm.model.batch import PromptBatch, WindowBatch
from streamglm.model.caches import Caches
from streamglm.model.mtp import Mtp
from streamglm.model.params import Params
from streamglm.model.peers import Alone
from streamglm.model.selfcheck import PROMPT, WINDOW
from streamglm.model.share import Share
from streamglm.model.spec import ModelSpec
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry, PageTables
from streamglm.pool.tensors import PoolTensors
from streamglm.step import (
    Chunk,
)

DATA = Path(__file__).parent.parent / "data" / "mtp.safetensors"
PREFIX = "model.language_model."
TOLERANCE = 1e-4


class Golden:
    """The layer of the golden file over poisoned pages, one lane of them."""

    def __init__(self) -> None:
        with safe_open(DATA, "pt") as file:
            text = json.loads(file.metadata()["text_config"])
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}
        config = {
            "model_type": "glm5_next_text",
            **text,
            "num_nextn_predict_layers": 1,
            "eos_token_id": [0],
            "streamglm": {"page_rows": 16, "chunk_rows": 256, "kda_chunk_rows": 16},
        }
        spec = ModelSpec.from_config(config, {})
        self.hidden = linear.padded_width(spec.hidden_size)
        shape = spec.cache_shape(value_itemsize=4)
        pool = PoolTensors(shape, 8, poison=True)
        self.geometry = Geometry.of(spec, pool.null)
        self.caches = Caches.of(pool)
        self.states = LaneStates(shape, 1, poison=True)
        self.states.begin(0)
        self.tables = PageTables(1, self.geometry)
        pages = (5, 2, 7)
        pool.take(pages)
        self.tables.begin(0, pages)
        params = Params(stacked(self.tensors, spec.n_routed_experts))
        self.blank = True
        """Row 0 is attended to by nobody."""
        self.layer = Mtp(Share(spec), params.under("layers.4"), self.hidden, self.geometry, Alone())
        self.embed = self.tensors[f"{PREFIX}embed_tokens.weight"]
        self.tokens: list[int] = self.tensors["case.tokens"].tolist()
        before = torch.zeros(1, spec.hidden_size)
        self.before = torch.cat([before, self.tensors["case.hidden"]])
        """The hidden before each of the 38 tokens; none before the first."""

    def fill(self, start: int, stop: int) -> None:
        """Rows [start, stop) as a chunk of a prompt."""
        chunk = Chunk(0, start, tuple(self.tokens[start:stop]), last=False)
        batch = PromptBatch.of((chunk,), self.tables, self.geometry)
        rows = torch.zeros(2, batch.rows, self.hidden)
        rows[0, : stop - start, : self.embed.shape[1]] = self.embed[self.tokens[start:stop]]
        rows[1, : stop - start, : self.embed.shape[1]] = self.before[start:stop]
        self.layer.fill(rows[0], rows[1], batch, self.states, self.caches, PROMPT)

    def window(self, start: int, stop: int) -> Array:
        """Rows [start, stop) as a window, all of which count -> [rows, hidden size]."""
        span = SimpleNamespace(lane=0, position=start, tokens=tuple(self.tokens[start:stop]))
        batch = WindowBatch.of(
            [span],
            self.tables,
            self.geometry,
            WINDOW,
            tail=self.states.tails.shape[2],
            blank=self.blank,
        )
        size = self.embed.shape[1]
        rows = np.zeros((2, batch.rows, self.hidden), np.float32)
        rows[0, : stop - start, :size] = self.embed[self.tokens[start:stop]].numpy()
        rows[1, : stop - start, :size] = self.before[start:stop].numpy()
        out = self.layer.window(rows[0], rows[1], batch, self.states, self.caches, WINDOW)
        cache = slice(self.layer.cache, self.layer.cache + 1)
        self.states.keep_tails(cache, 0, start, stop - start)
        return out[: stop - start, :size].copy()

    def wanted(self, start: int, stop: int) -> Array:
        """What rows [start, stop) give; row i here is the file's i - 1."""
        found: Array = self.tensors["case.expected"][start - 1 : stop - 1].numpy()
        return found


def stacked(tensors: Mapping[str, torch.Tensor], experts: int) -> dict[str, torch.Tensor]:
    """The parameters as the loader gives them: experts in one tensor, the gate's rows first."""
    found = {
        name.removeprefix(PREFIX): tensor.clone()
        for name, tensor in tensors.items()
        if ".experts." not in name
    }
    at = "layers.4.mlp.experts"

    def part(expert: int, name: str) -> torch.Tensor:
        return tensors[f"{PREFIX}{at}.{expert}.{name}_proj.weight"]

    both = [torch.cat([part(e, "gate"), part(e, "up")]) for e in range(experts)]
    found[f"{at}.gate_up_proj"] = torch.stack(both)
    found[f"{at}.down_proj"] = torch.stack([part(e, "down") for e in range(experts)])
    return found


def close(got: Array, want: Array) -> None:
    np.testing.assert_allclose(got, want, rtol=0.0, atol=TOLERANCE)


@pytest.fixture
def golden() -> Golden:
    return Golden()


def first_row(golden: Golden) -> None:
    """Row 0 of the prompt, which nobody may attend to."""
    golden.fill(0, 1)


def test_whole(golden: Golden) -> None:
    """In windows as wide as a tail allows, for the layer has no prompt form of its output."""
    first_row(golden)
    got = [golden.window(start, min(start + 16, 38)) for start in range(1, 38, 16)]
    close(np.concatenate(got), golden.wanted(1, 38))


def test_row_by_row(golden: Golden) -> None:
    first_row(golden)
    for row in range(1, 38):
        close(golden.window(row, row + 1), golden.wanted(row, row + 1))


@pytest.mark.parametrize("filled", [1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 37])
def test_behind_a_prompt_in_any_chunking(golden: Golden, filled: int) -> None:
    """A prompt's rows leave what rows behind it attend to: on both sides of pools and pages."""
    for start in range(0, filled, 16):
        golden.fill(start, min(start + 16, filled))
    for row in range(filled, 38):
        close(golden.window(row, row + 1), golden.wanted(row, row + 1))


def test_draft_logits_are_the_trunks_head_over_the_output(golden: Golden) -> None:
    """No second norm: the output is normed already."""
    first_row(golden)
    out = np.concatenate([golden.window(start, min(start + 16, 38)) for start in (1, 17, 33)])
    logits = torch.from_numpy(out) @ golden.tensors["lm_head.weight"].T
    close(logits.numpy(), golden.tensors["case.expected_draft_logits"].numpy())


def test_a_wrong_pairing_is_seen(golden: Golden) -> None:
    """The comparisons above can fail: with the hidden of the same row, they do."""
    golden.before = golden.before.roll(-1, 0)
    first_row(golden)
    assert np.abs(golden.window(1, 2) - golden.wanted(1, 2)).max() > 100 * TOLERANCE


def test_row_0_is_not_attended_to(golden: Golden) -> None:
    golden.blank = False
    first_row(golden)
    assert np.abs(golden.window(1, 2) - golden.wanted(1, 2)).max() > 100 * TOLERANCE
