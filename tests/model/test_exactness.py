"""A row's bits are its own: any chunking, neighbours, arrival order, lanes and pages.

Every executor here has poisoned pages and lanes, so that a read of what was not written turns a
comparison red (NaN equals nothing). Comparisons are of bits, on logits and on states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from streamglm.kernels.arguments import Array
from streamglm.step import Step
from support.lanes import Lanes, chunks
from support.tiny import ODD, Folder, TinyShape, executor

SHAPES = [TinyShape(), ODD]
LENGTHS = (1, 5, 64, 131, 200, 318)


def ids(seed: int, length: int) -> list[int]:
    draw = torch.Generator().manual_seed(seed)
    found: list[int] = torch.randint(0, 100, (length,), generator=draw).tolist()
    return found


def same(one: Sequence[Array], two: Sequence[Array]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def alone(lanes: Lanes, tokens: Sequence[int], decoded: int) -> tuple[Array, list[Array]]:
    """Logits and state of one stream with the executor to itself."""
    lanes.prompt(0, tokens[:-decoded])
    lanes.decode(0, tokens[-decoded:])
    found = lanes.stacked(0), lanes.state(0)
    lanes.end(0)
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=["default", "odd"])
def test_any_chunking(tiny: Folder, shape: TinyShape) -> None:
    lanes = Lanes(executor(tiny(shape, 0)))
    for length in (64, 255, 256, 257, 318, 700):
        tokens = ids(length, length + 3)
        want, state = alone(lanes, tokens, 3)
        for sizes in ((64,), (128,), (192,), (256,), (64, 192, 128)):
            lanes.prompt(0, tokens[:length], sizes)
            lanes.decode(0, tokens[length:])
            assert np.array_equal(lanes.stacked(0), want), f"{length} rows in {sizes}"
            assert same(lanes.state(0), state), f"{length} rows in {sizes}"
            lanes.end(0)


@pytest.mark.parametrize("shape", SHAPES, ids=["default", "odd"])
@pytest.mark.parametrize("neighbours", range(8))
def test_decode_beside_neighbours(tiny: Folder, shape: TinyShape, neighbours: int) -> None:
    lanes = Lanes(executor(tiny(shape, 0)), seed=neighbours)
    tokens = ids(1, 140)
    want, state = alone(lanes, tokens, 12)
    mine = neighbours // 2
    others = [lane for lane in range(neighbours + 1) if lane != mine]
    for lane in others:
        lanes.prompt(lane, ids(lane + 50, LENGTHS[lane % len(LENGTHS)]))
    lanes.prompt(mine, tokens[:-12])
    for step, token in enumerate(tokens[-12:]):
        rows = {lane: 7 * lane + step for lane in others} | {mine: token}
        lanes.window({lane: rows[lane] for lane in sorted(rows)})
    assert np.array_equal(lanes.stacked(mine), want)
    assert same(lanes.state(mine), state)


@pytest.mark.parametrize("shape", SHAPES, ids=["default", "odd"])
def test_lanes_that_come_and_go_in_any_order(tiny: Folder, shape: TinyShape) -> None:
    """Streams start in the middle of others, in gaps between lanes, in any order of rows; each
    has the bits that it has alone."""
    lanes = Lanes(executor(tiny(shape, 0)), seed=3)
    streams = {lane: ids(lane, LENGTHS[lane] + 6) for lane in range(6)}
    want = {lane: alone(lanes, tokens, 6) for lane, tokens in streams.items()}
    order = np.random.default_rng(5)
    waiting, running = [5, 0, 3, 1, 4, 2], list[int]()
    done: set[int] = set()
    while len(done) < len(streams):
        if waiting and len(running) < 4:
            lane = waiting.pop()
            lanes.prompt(lane, streams[lane][: LENGTHS[lane]], (64, 128))
            running.append(lane)
        order.shuffle(running)
        rows = {lane: streams[lane][len(lanes.logits[lane])] for lane in running}
        lanes.window(rows)
        for lane in [lane for lane in running if len(lanes.logits[lane]) == len(streams[lane])]:
            logits, state = want[lane]
            assert np.array_equal(lanes.stacked(lane), logits), f"lane {lane}"
            assert same(lanes.state(lane), state), f"lane {lane}"
            running.remove(lane)
            done.add(lane)
            lanes.end(lane)


@pytest.mark.parametrize("shape", SHAPES, ids=["default", "odd"])
def test_prompts_side_by_side_while_others_decode(tiny: Folder, shape: TinyShape) -> None:
    lanes = Lanes(executor(tiny(shape, 0)), seed=8)
    prompts = {lane: ids(90 + lane, length) for lane, length in ((0, 318), (2, 70), (5, 193))}
    want = {lane: alone(lanes, [*tokens, 3], 1)[0][:-1] for lane, tokens in prompts.items()}
    lanes.prompt(1, ids(1, 40))
    todo = {lane: chunks(lane, tokens, (128,)) for lane, tokens in prompts.items()}
    begins = tuple(lanes.begin(lane, 400) for lane in (5, 0, 2))
    while any(todo.values()):
        step = tuple(todo[lane].pop(0) for lane in (5, 0, 2) if todo[lane])
        lanes.run(Step(begins=begins, chunks=step))
        lanes.window({1: 4})
        begins = ()
    for lane in prompts:
        assert np.array_equal(lanes.stacked(lane), want[lane]), f"lane {lane}"


def test_lists_of_several_chunks_of_keys(tiny: Folder) -> None:
    """Merging is in the list's order: chunkings and neighbours change no bits of it either."""
    lanes = Lanes(executor(tiny(TinyShape(), 0, attend_rows=48)), seed=2)
    tokens = ids(9, 300)
    want, state = alone(lanes, tokens, 10)
    lanes.prompt(3, ids(4, 2))
    lanes.prompt(2, tokens[:290], (64,))
    for token in tokens[290:]:
        lanes.window({3: 5, 2: token})
    assert np.array_equal(lanes.stacked(2), want)
    assert same(lanes.state(2), state)


def test_any_pages(tiny: Folder) -> None:
    tokens = ids(4, 330)
    found = [alone(Lanes(executor(tiny(TinyShape(), 0)), seed), tokens, 30) for seed in (0, 1, 2)]
    for logits, state in found[1:]:
        assert np.array_equal(logits, found[0][0])
        assert same(state, found[0][1])


@pytest.mark.parametrize("shape", SHAPES, ids=["default", "odd"])
def test_a_row_does_not_know_what_follows(tiny: Folder, shape: TinyShape) -> None:
    lanes = Lanes(executor(tiny(shape, 0)))
    tokens = ids(6, 270)
    lanes.prompt(0, tokens)
    want = lanes.stacked(0)
    for length in (1, 2, 17, 63, 64, 65, 100, 129, 200, 257):
        lanes.prompt(1, tokens[:length])
        assert np.array_equal(lanes.stacked(1), want[:length]), f"prompt of {length}"
        lanes.end(1)


def test_a_lane_begins_blank_whatever_it_held(tiny: Folder) -> None:
    lanes = Lanes(executor(tiny(TinyShape(), 0)))
    tokens = ids(2, 150)
    want, state = alone(lanes, tokens, 5)
    lanes.prompt(0, ids(3, 99))
    lanes.decode(0, [1, 2, 3])
    lanes.end(0)
    logits, after = alone(lanes, tokens, 5)
    assert np.array_equal(logits, want)
    assert same(after, state)
