"""Flat rows of conversations, made by worker processes ahead of the step that needs them.

Owns packing and the processes. Knows no model. Invariant: seed and step number decide a row,
whatever the number of workers.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Generator
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamglm.nano.training import scene
from streamglm.nano.training.dice import Dice
from streamglm.nano.training.layout import ALIGN, Encoded, Layout
from streamglm.nano.training.schedule import Course, Phase

SHORTEST = 96
"""Room below which no further conversation is begun."""
LONG_FROM = 3000
"""Length from which a conversation is filled with long texts."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A flat row on the host. `weight[t]`, `kind[t]` and `turn[t]` speak of predicting
    `targets[t]`, the token after `ids[t]`; `turn` counts answers over the whole row, from 1."""

    ids: npt.NDArray[np.uint16]
    targets: npt.NDArray[np.uint16]
    weight: npt.NDArray[np.float32]
    kind: npt.NDArray[np.uint8]
    turn: npt.NDArray[np.int32]
    start: npt.NDArray[np.int32]
    edges: npt.NDArray[np.int64]
    tiles: npt.NDArray[np.int64]


class Packer:
    """Fills rows of `tokens` tokens."""

    def __init__(self, layout: Layout, tokens: int, tiles: int) -> None:
        assert tokens % ALIGN == 0
        self.layout = layout
        self.tokens = tokens
        self.tiles = tiles

    def row(self, phase: Phase, seed: int) -> Packed:
        """The row of a seed."""
        dice = Dice(seed)
        talks: list[Encoded] = []
        room = self.tokens
        cumulative = np.cumsum([share / length for length, share in phase.lengths]).tolist()
        for length, share in reversed(phase.lengths):
            # the longest first, one by chance of its share: few fit, and none fits at the end
            if length >= LONG_FROM:
                expected = share * self.tokens / length
                count = int(expected) + dice.chance(expected - int(expected))
                for _ in range(count):
                    if room >= length:
                        room -= self._add(talks, dice, length, min(length, room))
        while room >= SHORTEST:
            length = dice.weighted([length for length, _ in phase.lengths], cumulative)
            if length >= LONG_FROM:
                continue
            room -= self._add(talks, dice, length, min(length, room))
        return self._packed(talks, dice)

    def _add(self, talks: list[Encoded], dice: Dice, length: int, limit: int) -> int:
        """Append one conversation; the room it takes."""
        target = int(length * (0.4 + 0.6 * dice.unit()))
        mixture = scene.LONG if length >= LONG_FROM else scene.SHORT
        talk = scene.compose(dice, min(target, limit), mixture)
        encoded = self.layout.encode(talk, limit)
        if len(encoded.ids) < 2:
            return 0
        talks.append(encoded)
        return -(-len(encoded.ids) // ALIGN) * ALIGN

    def _packed(self, talks: list[Encoded], dice: Dice) -> Packed:
        total = self.tokens
        ids = np.zeros(total, np.uint16)
        targets = np.zeros(total, np.uint16)
        weight = np.zeros(total, np.float32)
        kind = np.zeros(total, np.uint8)
        turn = np.zeros(total, np.int32)
        start = np.zeros(total, np.int32)
        edges = [0]
        answers = 0
        for talk in talks:
            at, count = edges[-1], len(talk.ids)
            end = at + -(-count // ALIGN) * ALIGN
            ids[at : at + count] = talk.ids
            targets[at : at + count - 1] = talk.ids[1:]
            weight[at : at + count - 1] = talk.weight[1:]
            kind[at : at + count - 1] = talk.kind[1:]
            numbers = talk.turn[1:].astype(np.int32)
            turn[at : at + count - 1] = np.where(numbers > 0, numbers + answers, 0)
            answers += int(talk.turn.max(initial=0))
            start[at:end] = at
            edges.append(end)
        if edges[-1] < total:
            start[edges[-1] :] = edges[-1]
            edges.append(total)
        tiles = self._tiles(weight, dice)
        return Packed(ids, targets, weight, kind, turn, start, np.array(edges, np.int64), tiles)

    def _tiles(self, weight: npt.NDArray[np.float32], dice: Dice) -> npt.NDArray[np.int64]:
        """Tiles for the indexer's loss: three in four hold something to be learned."""
        learned = np.flatnonzero(weight.reshape(-1, ALIGN).max(1) >= 1.0)
        count = self.tokens // ALIGN
        picked = [
            int(learned[dice.below(len(learned))])
            if len(learned) and dice.chance(0.75)
            else dice.below(count)
            for _ in range(self.tiles)
        ]
        return np.array(picked, np.int64)


def row_seed(course: Course, step: int) -> int:
    return course.seed * 1_000_003 + step


def _work(folder: Path, course: Course, first: int, stride: int, out: Queue[Packed]) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    packer = Packer(Layout.from_folder(folder), course.tokens, course.tiles)
    for step in range(first, course.steps, stride):
        out.put(packer.row(course.phase(step), row_seed(course, step)))


def stream(folder: Path, course: Course, first: int, workers: int) -> Generator[Packed, None, None]:
    """The rows of steps `first`, `first` + 1, ... in order. `folder` holds tokenizer and template.
    Closing the iterator ends the processes."""
    context = multiprocessing.get_context("spawn")
    queues: list[Queue[Packed]] = [context.Queue(maxsize=6) for _ in range(workers)]
    processes = [
        context.Process(target=_work, args=(folder, course, first + i, workers, queue), daemon=True)
        for i, queue in enumerate(queues)
    ]
    for process in processes:
        process.start()
    try:
        for step in range(first, course.steps):
            yield queues[(step - first) % workers].get()
    finally:
        for process in processes:
            process.terminate()
