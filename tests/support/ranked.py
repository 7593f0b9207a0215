"""The executors of W ranks in one process, driven as one: every step on all of them.

Owns the check that the ranks agree: in what they drew, and bit for bit in logits, latents and
pooled keys. What a lane carries is the ranks' heads beside one another. Owns no expectation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from streamglm.kernels.pages import Pages
from streamglm.model.caches import Caches
from streamglm.model.executor import Executor, Logits
from streamglm.model.spec import ModelSpec
from streamglm.pool.layout import RowFormat
from streamglm.pool.memory import HOST, Memory
from streamglm.pool.tensors import PoolTensors
from streamglm.sampling.lane import LaneSampler
from streamglm.step import Step, StepResult
from streamglm.weights import packed
from streamglm.weights.checkpoint import load
from support.peers import Sent, ThreadPeer, World


class Carried(Protocol):
    """What all lanes carry besides pages."""

    @property
    def kda(self) -> torch.Tensor: ...
    @property
    def conv(self) -> torch.Tensor: ...
    @property
    def tails(self) -> torch.Tensor: ...


class Driven(Protocol):
    """What tests drive lanes of: an executor, or the executors of several ranks."""

    @property
    def spec(self) -> ModelSpec: ...
    @property
    def pool(self) -> PoolTensors: ...
    @property
    def caches(self) -> Caches: ...
    @property
    def states(self) -> Carried: ...
    def run(self, step: Step) -> StepResult: ...
    def logits(self, step: Step) -> tuple[StepResult, Logits]: ...


@dataclass(frozen=True, slots=True)
class Beside:
    """What the lanes of all ranks carry, heads beside heads, tails beside tails."""

    kda: torch.Tensor
    conv: torch.Tensor
    tails: torch.Tensor


class RanksDisagree(AssertionError):
    """Two ranks drew, or computed, other values of what both must have."""


class Ranked:
    """`world` ranks on the checkpoint in `folder`, with poisoned pages and lanes."""

    def __init__(
        self,
        folder: Path,
        world: int,
        *,
        pages: int = 64,
        lanes: int = 8,
        slots: int = 0,
        rows: RowFormat = RowFormat.FP32,
        drafts: bool = False,
        kv_split: bool = False,
        memory: Memory = HOST,
    ) -> None:
        self.kv_split = kv_split
        self.sent: list[Sent] = []
        """What the ranks have sent in the last step."""
        self.world = World(world)
        self.spec = ModelSpec.from_folder(folder)

        def build(peer: ThreadPeer) -> Executor:
            return Executor(
                self.spec,
                _params(folder, self.spec, peer, memory),
                pages=pages,
                lanes=lanes,
                slots=slots,
                rows=rows,
                sampler=LaneSampler,
                drafts=drafts,
                poison=True,
                peers=peer,
                kv_split=kv_split,
                memory=memory,
            )

        self.executors = self.world.run(build)

    def blank(self) -> None:
        """As built: nothing in pages, rooms and buffers, and nothing counted. Lanes begin anew."""
        for one in self.executors:
            one.pool.latents.zero_()
            one.pool.keys.zero_()
            one.kept._buffers.clear()
            if one.exchange is not None:
                one.exchange.sent.clear()
                one.exchange._memory.zero_()
                one.exchange.carry_bytes = one.exchange._split.room.bytes

    @property
    def pool(self) -> PoolTensors:
        """Of rank 0: pages are the same on all."""
        return self.executors[0].pool

    @property
    def caches(self) -> Caches:
        """Of rank 0, after a look at the others': all hold the same bytes."""
        first, *others = (
            [page.host.tobytes() for page in (*self._latents(one), *one.caches.keys)]
            for one in self.executors
        )
        if any(other != first for other in others):
            raise RanksDisagree("the ranks' pages differ")
        return self.executors[0].caches

    def _latents(self, one: Executor) -> tuple[Pages, ...]:
        """Those that all ranks have."""
        return () if self.kv_split else one.caches.latents

    @property
    def states(self) -> Beside:
        """What the lanes carry: copies."""
        all_states = [one.states for one in self.executors]
        return Beside(
            kda=torch.cat([one.kda for one in all_states], 2),
            conv=torch.cat([one.conv for one in all_states], 3),
            tails=torch.cat([one.tails for one in all_states], 3),
        )

    def run(self, step: Step) -> StepResult:
        """`step` on every rank."""
        return self.logits(step)[0]

    def logits(self, step: Step) -> tuple[StepResult, Logits]:
        """`step` on every rank, and the logits of its rows."""
        (result, tap), *others = self.world.run(lambda peer: self.executors[peer.rank].logits(step))
        for other, logits in others:
            if other.drawn != result.drawn or logits.keys() != tap.keys():
                raise RanksDisagree(f"rank 0 drew {result.drawn}, another {other.drawn}")
            if not all(np.array_equal(row, logits[at], equal_nan=True) for at, row in tap.items()):
                raise RanksDisagree("the ranks' logits differ in bits")
        self.sent = list(self.world.record)
        self.world.record.clear()
        return result, tap


def _params(folder: Path, spec: ModelSpec, peer: ThreadPeer, memory: Memory) -> dict[str, Any]:
    """A rank's share, as it lies where kernels read it."""
    rank, world = peer.rank, peer.world
    if memory.kernels:
        return packed.read(folder, spec, memory.device, rank=rank, world=world).params
    return load(folder, spec, rank=rank, world=world).params
