"""Two groups of ranks on one model, one with the latent split: every step on both.

Owns the comparison: what was drawn and drafted, logits, what lanes carry, pooled keys on every
rank, and the latent rows of every page in use, which lie on its owner alone. Owns no expectation of
what the values are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from streamglm.model.caches import Caches
from streamglm.model.executor import Logits
from streamglm.model.spec import ModelSpec
from streamglm.pool.layout import RowFormat
from streamglm.pool.tensors import PoolTensors
from streamglm.step import Begin, Chunk, Row, Step, StepResult
from support.drafted import GREEDY, Drafted
from support.peers import Sent
from support.ranked import Beside, Ranked


class SplitDiffers(AssertionError):
    """The split gave other values than ranks that all hold every row."""


class Both:
    """`world` ranks without the split and as many with it, over the same page ids."""

    def __init__(
        self,
        folder: Path,
        world: int,
        *,
        pages: int = 96,
        lanes: int = 8,
        slots: int = 0,
        rows: RowFormat = RowFormat.FP32,
        drafts: bool = False,
    ) -> None:
        ranked = [
            Ranked(
                folder,
                world,
                pages=pages,
                lanes=lanes,
                slots=slots,
                rows=rows,
                drafts=drafts,
                kv_split=kv_split,
            )
            for kv_split in (False, True)
        ]
        self.whole, self.split = ranked
        self.world = world
        self.sent: list[Sent] = []
        """What the split's ranks have sent in the last step."""
        self.leases: dict[int, tuple[int, ...]] = {}

    def blank(self) -> None:
        """As built."""
        self.leases.clear()
        self.whole.blank()
        self.split.blank()

    @property
    def spec(self) -> ModelSpec:
        return self.whole.spec

    @property
    def pool(self) -> PoolTensors:
        return self.whole.pool

    @property
    def caches(self) -> Caches:
        return self.whole.caches

    @property
    def states(self) -> Beside:
        return self.whole.states

    def run(self, step: Step) -> StepResult:
        return self.logits(step)[0]

    def logits(self, step: Step) -> tuple[StepResult, Logits]:
        """`step` on both; whatever differs is an error."""
        for lane in step.ends:
            del self.leases[lane]
        self.leases |= {begin.lane: begin.pages for begin in step.begins}
        want, wanted = self.whole.logits(step)
        result, tap = self.split.logits(step)
        self.sent = self.split.sent
        if result.drawn != want.drawn:
            raise SplitDiffers(f"drawn {result.drawn}, not {want.drawn}")
        if tap.keys() != wanted.keys() or not all(
            np.array_equal(row, wanted[at]) for at, row in tap.items()
        ):
            raise SplitDiffers("logits differ in bits")
        self._compare()
        return result, tap

    def _compare(self) -> None:
        one, two = self.whole.states, self.split.states
        for table in ("kda", "conv", "tails"):
            mine, other = getattr(one, table), getattr(two, table)
            for lane in self.leases:
                if not np.array_equal(_bits(mine[:, lane]), _bits(other[:, lane])):
                    raise SplitDiffers(f"{table} of lane {lane} differ")
        whole = self.whole.executors[0].pool
        for executor in self.split.executors:
            pool = executor.pool
            for lane, pages in self.leases.items():
                keys = list(pages)
                if not torch.equal(pool.keys[:, keys], whole.keys[:, keys]):
                    raise SplitDiffers(f"pooled keys of lane {lane} differ")
                own = pool.region.own(pages)
                if own and not torch.equal(pool.latents[:, own], whole.latents[:, keys]):
                    raise SplitDiffers(f"latent rows of lane {lane} differ at their owner")
            null = pool.latents[:, pool.region.null]
            if null.any():
                raise SplitDiffers("the null page was written")

    def counted(self) -> Counter[str]:
        """Bytes that the split's ranks say they sent, since the start."""
        total: Counter[str] = Counter()
        for executor in self.split.executors:
            assert executor.exchange is not None
            total += executor.exchange.sent
        return total


def _bits(values: torch.Tensor) -> npt.NDArray[np.int32]:
    return values.contiguous().view(torch.int32).numpy()


class Owned(Drafted):
    """Lanes over `Both`, each on pages of one class, in an order that nothing can assume."""

    executor: Both

    def own(self, owner: int) -> None:
        """The next lane's pages are of this class."""
        world = self.executor.world
        count = self.executor.pool.pages
        usable = [page for page in self._free if page < count - world]
        self._free = sorted(usable, key=lambda page: page % world == owner)


class Driver:
    """Lanes of `Both`, each on shuffled pages of one class, step by step."""

    def __init__(self, both: Both) -> None:
        self.both = both
        self.position: dict[int, int] = {}
        self.token: dict[int, int] = {}
        self._owned = Owned(both, seed=3)
        self._begins: list[Begin] = []

    def begin(self, lane: int, owner: int, rows: int) -> None:
        """With the next step; the lane is to have `rows` rows at most."""
        self._owned.own(owner)
        pages = tuple(self._owned._free.pop() for _ in range(-(-rows // self.both.spec.rows.page)))
        assert {page % self.both.world for page in pages} == {owner}
        self._begins.append(Begin(lane, pages, GREEDY))
        self.position[lane] = 0

    def chunks(self, *parts: tuple[int, Sequence[int], bool]) -> None:
        """(lane, tokens, last) of each chunk of one prompt pass."""
        chunks = [Chunk(lane, self.position[lane], tuple(part), last) for lane, part, last in parts]
        self._run(Step(begins=tuple(self._begins), chunks=tuple(chunks)))
        self._begins.clear()
        for chunk in chunks:
            self.position[chunk.lane] += len(chunk.tokens)

    def window(self, *lanes: int) -> None:
        """One row a lane, of what was drawn there."""
        self._run(Step(rows=tuple(Row(at, self.position[at], self.token[at]) for at in lanes)))
        for lane in lanes:
            self.position[lane] += 1

    def _run(self, step: Step) -> StepResult:
        result = self.both.run(step)
        self.token |= {one.lane: max(one.tokens[0], 0) for one in result.drawn}
        return result

    def kinds(self) -> set[str]:
        """The ways that the last step's prompt rows or window rows have crossed."""
        return {one.call for one in self.both.sent if one.call in ("trade", "spread")}
