"""What an executor takes, holds and gives back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from streamglm.errors import CheckpointError
from streamglm.model.executor import Executor
from streamglm.model.spec import ModelSpec
from streamglm.sampling.lane import LaneSampler
from streamglm.step import Draw, Row, Step
from streamglm.weights.checkpoint import load
from support.checkpoints import random_tensors, spec_of, tiny_config, write
from support.lanes import GREEDY, Lanes, chunks
from support.tiny import Folder, TinyShape, executor


@pytest.fixture
def checkpoint(tmp_path: Path) -> tuple[ModelSpec, dict[str, torch.Tensor]]:
    """A checkpoint with a next-token layer, as the loader hands it over."""
    config = tiny_config()
    folder = write(tmp_path, config, random_tensors(spec_of(config)))
    return spec_of(config), load(folder, spec_of(config)).params


def build(
    spec: ModelSpec,
    params: dict[str, torch.Tensor],
    log: Callable[[str], None] = lambda line: None,
    *,
    drafts: bool = False,
) -> Executor:
    return Executor(spec, params, pages=5, lanes=3, sampler=LaneSampler, drafts=drafts, log=log)


def test_it_takes_every_parameter_and_the_next_token_layer_with_them(
    checkpoint: tuple[ModelSpec, dict[str, torch.Tensor]],
) -> None:
    spec, params = checkpoint
    engine = build(spec, params, drafts=True)
    assert params == {}
    assert engine.drafter is not None
    assert engine.bytes.pool == 5 * spec.cache_shape().page_bytes
    assert engine.pool.latents.shape[0] == 2  # one latent layer, and the next-token layer


def test_it_runs_without_a_next_token_layer_and_says_so(
    checkpoint: tuple[ModelSpec, dict[str, torch.Tensor]],
) -> None:
    spec, params = checkpoint
    for name in [name for name in params if name.startswith("layers.4.")]:
        del params[name]
    lines: list[str] = []
    engine = build(spec, params, lines.append, drafts=True)
    assert engine.drafter is None
    assert engine.spec.mtp_layers == 0
    assert engine.pool.latents.shape[0] == 1
    assert [line for line in lines if "without drafts" in line]


def test_a_missing_a_misshapen_and_a_spare_tensor_are_named(
    checkpoint: tuple[ModelSpec, dict[str, torch.Tensor]],
) -> None:
    spec, params = checkpoint
    name = "layers.4.self_attn.kv_b_proj.weight"
    whole = params.pop(name)
    with pytest.raises(
        CheckpointError, match=r"layers\.4\.self_attn\.kv_b_proj\.weight: .*no such"
    ):
        build(spec, dict(params))
    with pytest.raises(CheckpointError, match=r"kv_b_proj\.weight: shape \[3, 16\]"):
        build(spec, params | {name: whole[:3]})
    with pytest.raises(CheckpointError, match=r"kv_b_proj\.weight: torch\.bfloat16"):
        build(spec, params | {name: whole.bfloat16()})
    with pytest.raises(CheckpointError, match=r"layers\.9\.spare: 1 tensors"):
        build(spec, params | {name: whole, "layers.9.spare": whole})


def test_a_step_gives_tokens_in_its_own_order_and_its_seconds(tiny: Folder) -> None:
    lanes = Lanes(executor(tiny(TinyShape(), 0)))
    lanes.prompt(2, [5, 6, 7])
    begins = (lanes.begin(3, 100), lanes.begin(0, 100))
    parts = (*chunks(3, [9] * 10, ()), *chunks(0, [8] * 64 + [1], (64,))[:1])
    result = lanes.executor.run(Step(begins=begins, chunks=parts, rows=(Row(2, 3, 4),)))
    assert [drawn.lane for drawn in result.drawn] == [3, 2]
    assert result.prompt_seconds > 0.0
    assert result.window_seconds > 0.0
    assert lanes.executor.run(Step(ends=(2, 3, 0))).drawn == ()


def test_the_tap_changes_nothing(tiny: Folder) -> None:
    engine = executor(tiny(TinyShape(), 0))
    lanes = Lanes(engine)
    token = lanes.prompt(0, list(range(2, 90)))
    tapped = [token, *(lanes.window({0: 3})[0] for _ in range(5))]
    begin = lanes.begin(1, 200)
    result = engine.run(Step(begins=(begin,), chunks=tuple(chunks(1, list(range(2, 90)), ()))))
    plain = [*result.drawn[0].tokens]
    steps = (Step(rows=(Row(1, position, 3),)) for position in range(88, 93))
    plain.extend(engine.run(step).drawn[0].tokens[0] for step in steps)
    assert plain == tapped


def test_of_a_chunk_the_last_row_alone_can_be_tapped(tiny: Folder) -> None:
    """Red where `ends` takes every row, or another one than the last."""
    engine = executor(tiny(TinyShape(), 0))
    lanes = Lanes(engine)
    lanes.prompt(0, list(range(2, 90)))
    begin = lanes.begin(1, 200)
    chunked = tuple(chunks(1, list(range(2, 90)), (64,)))
    for chunk in chunked:
        step = Step(begins=(begin,) if chunk is chunked[0] else (), chunks=(chunk,))
        _, tap = engine.logits(step, ends=True)
        last = chunk.start + len(chunk.tokens) - 1
        assert list(tap) == [(1, last)]
        assert tap[1, last].tobytes() == lanes.logits[0][last].tobytes()


def test_a_seeded_draw_is_the_same_in_any_company(tiny: Folder) -> None:
    engine = executor(tiny(TinyShape(), 0))
    draw = Draw(temperature=0.9, top_k=0, top_p=0.95, min_p=0.0, seed=42)

    def reply(lanes: Lanes, lane: int, beside: dict[int, Draw]) -> list[int]:
        prompt = list(range(3, 83))
        for other, theirs in beside.items():
            first = lanes.begin(other, 200, theirs)
            lanes.run(Step(begins=(first,), chunks=tuple(chunks(other, prompt[other:], ()))))
        begin = lanes.begin(lane, 200, draw)
        found = [lanes.run(Step(begins=(begin,), chunks=tuple(chunks(lane, prompt, ()))))[lane]]
        for _ in range(20):
            found.append(lanes.window(dict.fromkeys(beside, 5) | {lane: found[-1]})[lane])
        for used in (lane, *beside):
            lanes.end(used)
        return found

    alone = reply(Lanes(engine), 0, {})
    beside = reply(Lanes(engine, 7), 3, {1: GREEDY, 2: draw, 6: Draw(1.3, 5, 1.0, 0.0, 42)})
    assert beside == alone
    assert len(set(alone)) > 5  # it is a draw


def test_ids_without_text_are_not_drawn(tiny: Folder) -> None:
    folder = tiny(TinyShape(), 0)
    spec = ModelSpec.from_folder(folder)
    spells = partial(LaneSampler, spelled=7)
    engine = Executor(spec, load(folder, spec).params, pages=20, lanes=1, sampler=spells)
    lanes = Lanes(engine)
    begin = lanes.begin(0, 300, Draw(5.0, 0, 1.0, 0.0, 1))
    token = lanes.run(Step(begins=(begin,), chunks=tuple(chunks(0, [3, 4], ()))))[0]
    found = [token, *(lanes.window({0: 3})[0] for _ in range(60))]
    assert set(found) == set(range(7))
