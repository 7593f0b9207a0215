"""Kernels compiled ahead, in a process whose Triton compiles for a GPU that is not there.

Owns what that process does. Run as a module it prints, as JSON, what came of every scene.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any
from unittest import mock

import torch
from triton.runtime import driver

from bench.compiled import nothing_runs
from streamglm import nano
from streamglm.kernels import ahead, rms_norm
from streamglm.model.device import ahead as foresee
from streamglm.model.executor import Executor
from streamglm.model.spec import ModelSpec
from streamglm.pool.layout import RowFormat
from streamglm.pool.memory import Memory
from streamglm.sampling.lane import LaneSampler
from streamglm.step import Begin, Chunk, Draw, Row, Step
from streamglm.weights import packed

_WIDTHS = (64, 128, 256, 272, 384)


def norms() -> None:
    """A few kernels that differ in their constants and alignments."""
    for width in _WIDTHS:
        weights = rms_norm.prepare(torch.ones(width), 1e-5)
        rms_norm.rms_norm(torch.ones(2, width), weights)


def scenes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    said: list[str] = []
    with nothing_runs():
        with ahead.recorded() as launches:
            norms()
            norms()
        found["recorded"] = len(launches)
        with mock.patch.object(sys, "executable", "/bin/false"):
            found["broken"] = ahead.compile_missing(launches, said.append, said.append, cores=2)
        found["why"] = said[-1]
        found["one core"] = ahead.compile_missing(launches, said.append, said.append, cores=1)
        found["compiled"] = ahead.compile_missing(launches, said.append, said.append, cores=2)
        found["again"] = ahead.compile_missing(launches, said.append, said.append, cores=2)
        late: list[str] = []
        ahead.tell_late(late.append)
        norms()
        found["late"] = list(late)
        rms_norm.rms_norm(torch.ones(2, 512), rms_norm.prepare(torch.ones(512), 1e-5))
        found["not recorded"] = len(late)
        target = driver.active.get_current_target()
    found["left"] = orphaned(pickle.dumps((launches, launches * 2000, target, 2)))
    return found


def model() -> dict[str, Any]:
    """What is foreseen of the built-in model, against steps as replies take them."""
    folder = nano.folder()
    spec, cpu = ModelSpec.from_folder(folder), torch.device("cpu")
    with nothing_runs():
        executor = Executor(
            spec,
            packed.read(folder, spec, cpu).params,
            pages=64,
            lanes=3,
            sampler=LaneSampler,
            drafts=bool(spec.mtp_layers),
            rows=RowFormat.BF16,
            memory=Memory(cpu, torch.bfloat16, kernels=True),
        )
        states = executor.states
        held = [states.kda, states.conv, states.tails, *_pages(executor)]
        before = [one.clone() for one in held]
        foreseen = foresee.launches(executor)
        same = all(
            torch.equal(one.view(torch.uint8), was.view(torch.uint8))
            for one, was in zip(held, before, strict=True)
        )
        with ahead.recorded() as met, foresee.Zeros():
            for step in _replies():
                executor.run(step)
    known = {one.source().hash() for one in foreseen}
    unforeseen = sorted({one.name for one in met if one.source().hash() not in known})
    return {"met": len(met), "unforeseen": unforeseen, "same": same}


def _pages(executor: Executor) -> list[torch.Tensor]:
    return [one.values for one in (*executor.caches.latents, *executor.caches.keys)]


def _replies() -> list[Step]:
    """Two prompts in chunks, then windows of one lane and of two, with drafts and with noise."""
    keyed = Draw(temperature=1.0, top_k=40, top_p=0.8, min_p=0.1, seed=5)
    greedy = Draw(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)
    begins = (
        Begin(0, tuple(range(20)), greedy, drafts=True),
        Begin(1, tuple(range(20, 60)), keyed),
    )
    first = Chunk(0, 0, (7,) * 70, last=True, ahead=1)
    return [
        Step(begins=begins, chunks=(first, Chunk(1, 0, (9,) * 192, last=False))),
        Step(chunks=(Chunk(1, 192, (9,) * 77, last=True),)),
        Step(rows=(Row(0, 70, 5, (), 1),)),
        Step(rows=(Row(0, 71, 5, (6, 7), 1), Row(1, 269, 8))),
        Step(rows=(Row(1, 270, 8),)),
        Step(ends=(0, 1)),
    ]


def orphaned(work: bytes) -> int:
    """The status with which the processes end when their stdin does, in the middle of much work:
    every one of them holds stdout, so all have ended."""
    with subprocess.Popen(
        [sys.executable, "-m", "streamglm.kernels.compiling"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        child.communicate(work, timeout=60)
    return child.returncode


if __name__ == "__main__":
    sys.stdout.write(json.dumps(model() | scenes()))
