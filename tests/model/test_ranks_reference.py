"""One, two and three ranks have transformers' logits and greedy tokens, and agree in every bit.

Checkpoints of 4, 8 and 7 heads, as transformers writes them; prompts behind the dense limit twice
over, with page tables of more than 32 entries. Each fault at the end is one way to share a model
out wrongly, and the same comparison must then fail.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextForConditionalGeneration

from streamglm import nano
from streamglm.kernels.arguments import Array
from streamglm.kernels.tiling import Tiling
from streamglm.model.block import Block
from streamglm.model.experts import DenseMlp, SparseMlp
from streamglm.model.kda import KdaLayer
from streamglm.model.latent import LatentLayer
from streamglm.model.peers import Alone
from streamglm.model.share import Share, Span, share
from streamglm.weights import layout
from support.lanes import Lanes
from support.peers import ThreadPeer
from support.ranked import Ranked, RanksDisagree
from support.tiny import ODD, Folder, TinyShape, lowest_pool_wins, tiny_model

FOUR = TinyShape()
EIGHT = replace(FOUR, num_attention_heads=8, linear_num_heads=8)
SEVEN = replace(ODD, num_attention_heads=7, linear_num_heads=7)
SHAPES = {"4 heads": (FOUR, 0), "8 heads": (EIGHT, 4), "7 heads": (SEVEN, 2)}
ROWS = {"page_rows": 16, "chunk_rows": 128, "kda_chunk_rows": 16}
PROMPT, DECODED = 540, 12
NANO_PROMPT = random.Random(4).choices(range(2, 300), k=290)
TOLERANCE = 1e-4


def ids(shape: TinyShape, seed: int, length: int) -> list[int]:
    draw = torch.Generator().manual_seed(seed)
    found: list[int] = torch.randint(2, shape.vocab_size, (length,), generator=draw).tolist()
    return found


@cache
def wanted(shape: TinyShape, seed: int) -> tuple[list[int], Array]:
    """Transformers' greedy tokens behind the prompt, and its logits at every position."""
    return reference(tiny_model(shape, seed), ids(shape, seed, PROMPT))


@cache
def wanted_of_nano() -> tuple[list[int], Array]:
    model: Any = Glm5NextForConditionalGeneration.from_pretrained(
        nano.folder(), dtype=torch.float32
    )
    return reference(model.eval(), NANO_PROMPT)


def reference(model: Any, prompt: Sequence[int]) -> tuple[list[int], Array]:
    with torch.inference_mode(), lowest_pool_wins() as margins:
        tokens = model.generate(
            torch.tensor([prompt]), max_new_tokens=DECODED, min_new_tokens=DECODED, do_sample=False
        )
        logits: Array = model(input_ids=tokens[:, :-1]).logits[0].numpy()
    assert min(margins) > 1e-6, f"the reference chooses by {min(margins)}"
    return tokens[0, len(prompt) :].tolist(), logits


def found(folder: Path, world: int, prompt: Sequence[int]) -> tuple[list[int], Array]:
    """The ranks' greedy tokens, and their logits at every position."""
    ranked = Ranked(folder, world, pages=80)
    lanes = Lanes(ranked)
    tokens = [lanes.prompt(3, prompt)]
    while len(tokens) < DECODED:
        tokens.append(lanes.window({3: tokens[-1]})[3])
    assert ranked.caches is not None  # every page has the same bytes on all ranks
    return tokens, lanes.stacked(3)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("case", SHAPES)
def test_tokens_and_logits_are_those_of_transformers(tiny: Folder, case: str, world: int) -> None:
    shape, seed = SHAPES[case]
    assert PROMPT > 2 * (shape.index_topk + shape.index_kpool - 1)
    assert PROMPT // ROWS["page_rows"] > 32
    tokens, logits = found(tiny(shape, seed, **ROWS), world, ids(shape, seed, PROMPT))
    want, rows = wanted(shape, seed)
    assert tokens == want
    assert np.abs(logits - rows).max() < TOLERANCE


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_built_in_model_too(world: int) -> None:
    """Trained weights, whose logits are larger and whose choices are sharp."""
    tokens, logits = found(nano.folder(), world, NANO_PROMPT)
    want, rows = wanted_of_nano()
    assert tokens == want
    assert np.abs(logits - rows).max() < TOLERANCE


# -- shared out wrongly

Fault = Callable[[pytest.MonkeyPatch], None]


def own_first(patch: pytest.MonkeyPatch) -> None:
    """Each rank adds the others' to its own partial sum: right but for the order, so that the ranks
    differ in a last bit."""

    def add(self: ThreadPeer, partial: Any) -> Any:
        mine = torch.as_tensor(partial)
        parts = list(self._meet("add", tuple(mine.shape), mine))
        total = parts.pop(self.rank).clone()
        for part in parts:
            total += part
        return total.numpy() if isinstance(partial, np.ndarray) else total

    patch.setattr(ThreadPeer, "add", add)


def one_is_left_out(patch: pytest.MonkeyPatch) -> None:
    """The last rank's partial sums are nothing."""
    honest = ThreadPeer.add

    def add(self: ThreadPeer, partial: Any) -> Any:
        return honest(self, partial * (self.rank < self.world - 1))

    patch.setattr(ThreadPeer, "add", add)


def not_added(kind: Any) -> Fault:
    """What this kind of layer gives stays a partial sum."""

    def fault(patch: pytest.MonkeyPatch) -> None:
        honest = kind.__init__

        def init(self: Any, *arguments: Any, **options: Any) -> None:
            honest(self, *arguments, **options)
            self._peers = Alone()

        patch.setattr(kind, "__init__", init)

    return fault


def added_after_the_mixing(patch: pytest.MonkeyPatch) -> None:
    """The sum is of streams behind the hyper-connection, not of what enters it."""
    honest = Block._feed

    def feed(self: Any, streams: Any, rows: int, tiling: Tiling) -> Any:
        peers, self._mlp._peers = self._mlp._peers, Alone()
        mixed = honest(self, streams, rows, tiling)
        self._mlp._peers = peers
        return peers.add(mixed.reshape(len(mixed), -1)).reshape(mixed.shape)

    patch.setattr(Block, "_feed", feed)


def rows_of_the_head_at_anothers_place(patch: pytest.MonkeyPatch) -> None:
    honest = ThreadPeer.join

    def join(self: ThreadPeer, part: Any, widths: Sequence[int]) -> Any:
        whole = honest(self, part, widths)
        return whole if len(set(widths)) == 1 else np.roll(whole, widths[0], 1)

    patch.setattr(ThreadPeer, "join", join)


def columns_of_another_rank(patch: pytest.MonkeyPatch) -> None:
    honest = Share.columns
    patch.setattr(Share, "columns", lambda self, inner: honest(replace(self, rank=0), inner))


def heads_of_another_rank(patch: pytest.MonkeyPatch) -> None:
    """The third rank has the second one's."""

    def part(total: int, rank: int, world: int) -> Span:
        return share(total, min(rank, 1) if total == 7 else rank, world)

    patch.setattr(layout, "share", part)


FAULTS = [
    own_first,
    one_is_left_out,
    *(not_added(kind) for kind in (KdaLayer, LatentLayer, DenseMlp, SparseMlp)),
    added_after_the_mixing,
    rows_of_the_head_at_anothers_place,
    columns_of_another_rank,
    heads_of_another_rank,
]


def test_each_way_to_share_out_wrongly_shows(tiny: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, prompt = tiny(SEVEN, 2, **ROWS), ids(SEVEN, 2, 20)
    alone = found(folder, 1, prompt)[1]

    def right() -> bool:
        try:
            return bool(np.abs(found(folder, 3, prompt)[1] - alone).max() < TOLERANCE)
        except RanksDisagree:
            return False

    assert right()
    for fault in FAULTS:
        with monkeypatch.context() as patch:
            fault(patch)
            assert not right(), fault
    assert right()
