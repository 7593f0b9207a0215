"""A stub rank that meets the others for real, and adds one sum with them in every step.

Tokens are the stub's. With the seed `LATE`, the last rank stands still before the sum, so that all
others wait for it in the middle of an exchange; with the model `late`, before it meets them.
"""

from __future__ import annotations

import os
import time

import numpy as np

from streamglm.model.peers import Peers
from streamglm.ranks.meeting import meet
from streamglm.ranks.wire import Hello, Report
from streamglm.ranks.worker import Executes, Told
from streamglm.step import Step, StepResult
from support import stub

TRADING = f"{__name__}:build"
LATE = 9006


class Trading:
    """The stub's executor behind a sum."""

    def __init__(self, executor: Executes, peers: Peers) -> None:
        self._executor = executor
        self._peers = peers

    def run(self, step: Step) -> StepResult:
        seeds = {begin.draw.seed for begin in step.begins}
        if LATE in seeds and self._peers.rank == self._peers.world - 1:
            _late()
        ones = np.ones((1, 16), np.float32)
        assert (self._peers.add(ones) == self._peers.world).all()
        return self._executor.run(step)


def _late() -> None:
    os.write(1, b"late\n")  # the server's stdout: a test can wait for it
    time.sleep(600)


def build(hello: Hello, told: Told) -> tuple[Executes, Report]:
    """As `stub.build`, once all ranks have met."""
    if hello.settings.model == "late" and hello.rank == hello.world - 1:
        _late()
    peers = meet(hello, told)
    executor, report = stub.build(hello, told)
    return Trading(executor, peers), report
