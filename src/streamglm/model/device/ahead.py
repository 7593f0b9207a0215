"""The launches of a model, found without making them: what a start compiles before it serves.

Owns which steps reach every kernel: prompts near and far, windows of each width and reach, drawn
greedily and with noise, verify windows, the next-token layer. Knows no compiler. The steps run on
the executor's own tensors, so that a launch is asked for as it will be: with the dtypes, strides
and alignments of what lies there. Invariant: no kernel runs, new tensors are zeros, which are valid
ids everywhere, and rows go to a lane and a page that nobody has, so a lane that begins later finds
what it would have found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from streamglm.kernels import ahead
from streamglm.kernels.ahead import Launch
from streamglm.model.device.feed import SparseMlp
from streamglm.model.device.passes import WIDTHS, DevicePasses
from streamglm.model.device.trunk import Layer, Trunk
from streamglm.model.executor import Executor
from streamglm.step import Begin, Chunk, Draw, Row, Step

_GREEDY = Draw(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)
_KEYED = Draw(temperature=0.7, top_k=0, top_p=0.9, min_p=0.0, seed=1)
_EMPTY = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)
_AHEAD = 2
"""Drafts behind a row: the second goes by what the first left."""

Say = Callable[[str], None]


def prepare(executor: Executor, say: Say, phase: Say) -> None:
    """Compile what the executor is going to launch and Triton's cache lacks, side by side; then
    say of each kernel that is compiled after all. Before the first lane begins. Raises nothing:
    what fails is said, and kernels are compiled when they are launched."""
    cores = max(1, len(os.sched_getaffinity(0)) // executor.peers.world)  # each rank has its share
    try:
        ahead.compile_missing(launches(executor), say, phase, cores=cores)
    except Exception as error:
        line = str(error).partition("\n")[0]
        say(f"kernels are compiled when they are launched: {type(error).__name__}: {line}")
    ahead.tell_late(say)


def launches(executor: Executor) -> list[Launch]:
    """What steps of every kind launch that this process has not launched yet."""
    passes = executor.passes
    assert isinstance(passes, DevicePasses)
    with ahead.recorded() as found, _eager(passes), _one_of_each(passes.trunk), Zeros():
        for step in _steps(executor, passes.reaches):
            executor.run(step)
    return found


class Zeros(TorchFunctionMode):
    """New tensors are zeros: kernels that do not run leave nothing else in them."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        return made.zero_() if func in _EMPTY else made


@contextmanager
def _eager(passes: DevicePasses) -> Iterator[None]:
    graphs, passes.graphs = passes.graphs, None
    try:
        yield
    finally:
        passes.graphs, passes.last = graphs, None


@contextmanager
def _one_of_each(trunk: Trunk) -> Iterator[None]:
    """Layers of one kind, in one format, launch the same: one of them is walked."""
    layers = trunk.layers
    trunk.layers = list({_kind(layer): layer for layer in reversed(layers)}.values())
    try:
        yield
    finally:
        trunk.layers = layers


def _kind(layer: Layer) -> tuple[Any, ...]:
    """What the launches of a layer go by."""
    mlp = layer.feed.mlp
    matrices = [part for product in layer.attention.products for part in product.parts]
    matrices += mlp.matrices
    if isinstance(mlp, SparseMlp):
        matrices += mlp.stacks.gate_up, mlp.stacks.down
    held = tuple((one.format, one.count, one.width, one.depth) for one in matrices)
    return type(layer.attention), type(mlp), held


def _steps(executor: Executor, reaches: list[int]) -> Iterator[Step]:
    """`reaches`: tokens up to which a window's kernels are the same, and beyond."""
    spec, lanes = executor.spec, executor.states.hidden.shape[0]
    page, tile, limit = spec.rows.page, spec.rows.kda_chunk, spec.dense_limit
    drafts = executor.drafter is not None
    count = -(-reaches[-1] // page)
    several = _AHEAD if drafts else 0
    for draw in (_GREEDY, _KEYED):
        pages = (0,) * count
        yield Step(begins=tuple(Begin(lane, pages, draw, drafts=drafts) for lane in range(lanes)))
        for start, rows in _prompts(limit, tile, reaches[-1]):
            yield Step(chunks=(Chunk(0, start, (0,) * rows, last=True, ahead=several),))
        for reach in reaches:
            for width in WIDTHS:
                each = min(spec.rows.verify if drafts else 1, reach)
                if width <= min(lanes, spec.rows.window):
                    single = (Row(lane, reach - 1, 0, (), several) for lane in range(width))
                    yield Step(rows=tuple(single))
                if 1 < width <= each:
                    yield Step(rows=(Row(0, reach - width, 0, (0,) * (width - 1), several),))
                elif each < width <= min(lanes * each, spec.rows.window) and each > 1:
                    full = (0,) * (each - 1)
                    yield Step(
                        rows=tuple(
                            Row(lane, reach - each, 0, full, several)
                            for lane in range(width // each)
                        )
                    )
        yield Step(ends=tuple(range(lanes)))


def _prompts(limit: int, tile: int, end: int) -> Iterator[tuple[int, int]]:
    """Start and rows of chunks: within the dense limit, across it and behind it, few rows and
    many."""
    for rows in (1, tile, 4 * tile + 2, 32 * tile):
        yield 0, min(rows, end)
    behind = -(-limit // tile) * tile
    for rows in (1, 2 * tile + 2, 16 * tile):
        if behind + rows <= end:
            yield behind, rows
