"""Runs a `Step`: ends, moves, begins, puts, one prompt pass, saves, writes, one window pass, and
the drafts behind both.

Owns the model, the lanes' states, the pool's tensors, kept states and each lane's sampler. Knows no
requests, never chooses a page or a slot, and takes a step as one that fits: the rank has checked
it. Invariant: a step that raises leaves its lanes undefined.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
import numpy as np
import torch

from streamglm.kernels import linear
from streamglm.kernels.arguments import Array
from streamglm.model import alike, selfcheck
from streamglm.model.caches import Caches
from streamglm.model.device.passes import DevicePasses
from streamglm.model.drafter import Drafter, Followed
from streamglm.model.exchange import Exchange
from streamglm.model.glm import Glm
from streamglm.model.kept import KeptTensors
from streamglm.model.mtp import Mtp
from streamglm.model.params import Params
from streamglm.model.passes import Hidden, HostPasses, Passes
from streamglm.model.peers import Alone, Peers
from streamglm.model.share import Share
from streamglm.model.spec import ModelSpec
from streamglm.model.split import Split
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry, PageTables
from streamglm.model.verify import MakeSampler, Sampler, accept
from streamglm.pool.device import DevicePool
from streamglm.pool.layout import RowFormat
from streamglm.pool.memory import HOST, Memory
from streamglm.pool.region import Region
from streamglm.pool.tensors import PoolTensors, Raw
from streamglm.step import (
    Arrive,
    Begin,
    Carry,
    Chunk,
    Drawn,
    Put,
    Record,
    Row,
    Step,
    StepResult,
)


class Records(Protocol):
    """The rank's side of the disk; `ranks/records.py` is one."""

    def stage(self, record: Record, sections: Sequence[Raw]) -> None:
        """Write copies that are nobody else's; returns at once."""
        ...

    def take(self, job: int, count: int) -> list[list[Raw]]:
        """The next `count` records that a job has read and verified."""
        ...


Logits = dict[tuple[int, int], Array]
"""(lane, position) of a row -> its logits [vocab]."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """What an executor has allocated besides weights."""

    pool: int
    """Pages, without the null page."""
    null: int
    """The null page."""
    lanes: int
    """Fixed parts of all lanes."""
    slots: int
    """Fixed parts of kept states that share pages: all slots, full or not."""
    buffers: int
    """Kept states that have rows of their own, on the device."""
    host: int
    """The same in host memory."""
    room: int = 0
    """What crosses between ranks that split latent rows."""


class Executor:
    """One rank's model with its memory.

    `rows` is the format of pages, `slots` the places for kept states that share them. Takes the
    tensors out of `params` as it fuses them; raises `CheckpointError` naming one that is missing,
    misshapen or of no use. `sampler` makes what a lane draws with; the model itself knows no
    sampling. `params` are those of `peers.rank` in `peers.world`, and every rank runs the same
    steps in the same order. Without `drafts` a window has one row a lane, and the next-token layer
    has no cache. With `kv_split` each rank holds the latent rows of one class of pages.
    On a GPU windows are replayed from `graphs`.
    """

    def __init__(
        self,
        spec: ModelSpec,
        params: dict[str, Any],
        *,
        pages: int,
        lanes: int,
        slots: int = 0,
        rows: RowFormat = RowFormat.FP32,
        sampler: MakeSampler,
        drafts: bool = False,
        poison: bool = False,
        records: Records | None = None,
        peers: Peers | None = None,
        kv_split: bool = False,
        memory: Memory = HOST,
        graphs: bool = True,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        peers = peers or Alone()
        layer = f"layers.{len(spec.layers)}."
        if spec.mtp_layers and not any(name.startswith(layer) for name in params):
            log("the checkpoint holds no next-token layer: running without drafts of its own")
            spec = replace(spec, mtp_layers=0)
        self.spec = spec
        self.peers = peers
        self._make_sampler = sampler
        self._records = records
        share = Share(spec, peers.rank, peers.world)
        shape = spec.cache_shape(
            rows, world=peers.world, value_itemsize=memory.values.itemsize, drafts=drafts
        )
        region = Region(pages, peers.rank, peers.world) if kv_split else Region(pages)
        if memory.kernels:
            self.pool: PoolTensors = DevicePool(shape, pages, memory, poison=poison)
        else:
            self.pool = PoolTensors(shape, pages, region=region, poison=poison)
        self.caches = Caches.of(self.pool)
        self.states = LaneStates(shape, lanes, poison=poison, memory=memory)
        self.kept = KeptTensors(shape, slots, self.states, self.pool, poison=poison, memory=memory)
        self._geometry = Geometry.of(spec, self.pool.null, region.null)
        split = Split.of(share, region) if region.split else None
        self.exchange: Exchange | None = None
        """Of ranks that split latent rows."""
        if split is not None:
            self.exchange = Exchange(split, peers, self.caches.latents[0], poison=poison)
        self._tables = PageTables(lanes, self._geometry, split)
        self._samplers: dict[int, Sampler] = {}
        parts = (self.states, self.caches, self._tables, self._geometry)
        if memory.kernels:
            on_device = DevicePasses(share, params, memory, *parts, peers, graphs=graphs)
            self.passes: Passes = on_device
            self.numerics = on_device.numerics
            self.exact_tiles = True
        else:
            self._on_host(share, params, peers, log)
        self.drafter: Drafter | None = None
        if spec.mtp_layers and drafts:
            cache = len(spec.dsa_layers)
            self.drafter = Drafter(self.passes, self.states, self._geometry, cache)
        self._followed: set[int] = set()
        """Lanes that the next-token layer follows."""

    def _on_host(
        self, share: Share, params: dict[str, Any], peers: Peers, log: Callable[[str], None]
    ) -> None:
        """The model in float32, proved on this machine."""
        spec, given = share.spec, Params(params)
        self.glm = Glm(share, given, self._geometry, peers, self.exchange)
        mtp: Mtp | None = None
        if spec.mtp_layers:
            hidden = linear.padded_width(spec.hidden_size)
            layer = given.under(f"layers.{len(spec.layers)}")
            mtp = Mtp(share, layer, hidden, self._geometry, peers, self.exchange)
        given.finish()
        weights = [*self.glm.weights(), *(mtp.weights() if mtp else ())]
        self.proof = selfcheck.agreed(selfcheck.prove(weights, share.held, log), peers, log)
        alike.check(self.glm, self.proof, peers)
        tilings = (self.proof.prompt, self.proof.window)
        self.exact_tiles = all(tiling.sizes != (1,) and tiling.entries for tiling in tilings)
        """Whether the self-check held, so that rows are computed side by side."""
        self.numerics = f"tiles {self.proof.prompt.sizes} {self.proof.window.sizes}"
        self.passes = HostPasses(
            self.glm,
            mtp,
            self.proof,
            self.states,
            self.caches,
            self._tables,
            self._geometry,
            self.exchange,
        )

    @property
    def bytes(self) -> Bytes:
        """Bytes allocated at this moment; only those of copies change."""
        return Bytes(
            pool=self.pool.bytes,
            null=self.pool.null_bytes,
            lanes=self.states.bytes,
            slots=self.kept.slots.bytes,
            buffers=self.kept.buffer_bytes,
            host=self.kept.host_bytes,
            room=0 if self.exchange is None else self.exchange.bytes,
        )

    @torch.inference_mode()
    def run(self, step: Step) -> StepResult:
        """Execute `step`."""
        return self._run(step, None)

    @torch.inference_mode()
    def logits(self, step: Step, *, ends: bool = False) -> tuple[StepResult, Logits]:
        """`run`, and the logits of every row of the step: the same rows, read before the draw.
        With `ends`, of a chunk's rows the last alone: those of a whole prompt are gigabytes."""
        tap = _Tap(ends=ends)
        return self._run(step, tap), tap.rows

    @np.errstate(all="ignore")  # a lane that is not finite fails by its token, and by that alone
    def _run(self, step: Step, tap: _Tap | None) -> StepResult:
        before = self._sent()
        for lane in step.ends:
            self.states.end(lane)
            del self._samplers[lane]
        for move in step.moves:
            self.kept.move(move)
        carries = {carry.lane: carry for carry in step.carries}
        for begin in step.begins:
            self._begin(begin, carries.get(begin.lane))
        for put in step.puts:
            self._put(put)
        began = time.perf_counter()
        found = self._prompt(step.chunks, tap) if step.chunks else []
        for save in step.saves:
            self.kept.save(save, self._tables.pages(save.lane, save.at))
        for write in step.writes:
            for record, sections in self.kept.copies(write):
                self._disk.stage(record, sections)
        between = time.perf_counter()
        if step.rows:
            found += self._window(step.rows, tap)
        ended = time.perf_counter()
        drawn = self._drafted(found)
        drafted = time.perf_counter()
        sent = dict(self._sent() - before)
        return StepResult(drawn, between - began, ended - between, drafted - ended, sent)

    def _sent(self) -> Counter[str]:
        """Bytes that this rank has sent to others, by what."""
        if self.peers.world == 1:
            return Counter()
        sent = Counter({call: self.peers.sent[call] for call in ("add", "join")})
        return sent if self.exchange is None else sent + self.exchange.sent

    def _begin(self, begin: Begin, carry: Carry | None) -> None:
        restore = None if isinstance(begin.restore, Arrive) else begin.restore
        kept = 0 if restore is None or carry is not None else restore.at // self._geometry.page
        self.pool.take(begin.pages[kept:])
        self._tables.begin(begin.lane, begin.pages)
        self.passes.begin(begin.lane)
        if restore is None:
            self.states.begin(begin.lane)
        elif carry is not None and self.exchange is not None:
            self.kept.carry(restore, carry, self.exchange)
        else:
            self.kept.restore(restore, begin.lane, begin.pages[:kept])
        self._samplers[begin.lane] = self._make_sampler(begin.draw, begin.seen)
        self._followed.discard(begin.lane)
        if self.drafter is not None:
            self.drafter.begin(begin.lane)
        if begin.drafts:
            self._followed.add(begin.lane)

    @property
    def _disk(self) -> Records:
        assert self._records is not None, "a step for the disk, and this executor has none"
        return self._records

    def _put(self, put: Put) -> None:
        """Pages from the disk, and at the end what the lane goes on from."""
        rows = self._geometry.page
        pages = self._tables.pages(put.lane, put.stop * rows)[put.first :]
        taken = self._disk.take(put.job, len(pages))
        if self.exchange is not None and pages:
            taken = self.exchange.bring(pages, taken, self.pool.sections[0][0])
        for page, sections in zip(pages, taken, strict=True):
            self.pool.put(page, sections)
        if put.seal:
            (fixed,) = self._disk.take(put.job, 1)
            self.kept.seal(put.lane, fixed)

    def _prompt(self, chunks: Sequence[Chunk], tap: _Tap | None) -> list[_Found]:
        batch, rows = self.passes.prompt(chunks)
        if self.drafter is not None:
            self.drafter.fill(batch, rows)
        hidden = self.passes.hidden(rows)
        if tap is not None:
            for c in batch.chunks:
                skipped = c.rows - 1 if tap.ends else 0
                logits = self.passes.logits(hidden[c.first + skipped : c.first + c.rows], ())
                tap.take(c.lane, c.start + skipped, logits)
        if not batch.last:
            return []
        last = [chunk for chunk in chunks if chunk.last]
        ends = [chunk.start + len(chunk.tokens) - 1 for chunk in last]
        samplers = [self._samplers[chunk.lane] for chunk in last]
        asks = [(sampler, at + 1) for sampler, at in zip(samplers, ends, strict=True)]
        logits = self.passes.logits(hidden[batch.last], asks)
        found = []
        for place, (chunk, at) in enumerate(zip(last, ends, strict=True)):
            sampler = self.passes.sampler(samplers[place])
            drawn = accept(chunk.lane, sampler, logits[place : place + 1], at)
            found.append(_Found(drawn, at, hidden, batch.last[place], chunk.ahead))
        return found

    def _window(self, rows: Sequence[Row], tap: _Tap | None) -> list[_Found]:
        asks = [
            (self._samplers[row.lane], row.position + 1 + place)
            for row in rows
            for place in range(len(row.tokens))
        ]
        window = self.passes.window(rows, asks)
        found = []
        for row, span in zip(rows, window.spans, strict=True):
            sampler, logits = self.passes.sampler(self._samplers[row.lane]), window.logits[span]
            drawn = accept(row.lane, sampler, logits, row.position, row.drafts)
            found.append(_Found(drawn, row.position, window.hidden, span.start, row.ahead))
            if tap is not None:
                tap.take(row.lane, row.position, logits[: len(drawn.tokens)])
        self._commit(rows, [len(one.drawn.tokens) for one in found])
        return found

    def _commit(self, rows: Sequence[Row], counts: Sequence[int]) -> None:
        """Of each lane's rows the first `counts` stay; what a lane carries is as if there had been
        no others."""
        several = [(row.lane, count) for row, count in zip(rows, counts, strict=True) if row.drafts]
        self.passes.replay(several)
        if not several:
            return
        trunk = slice(0, len(self.spec.dsa_layers))
        for row, count in zip(rows, counts, strict=True):
            if row.drafts:
                self.states.keep_tails(trunk, row.lane, row.position, count)

    def _drafted(self, found: Sequence[_Found]) -> tuple[Drawn, ...]:
        """What was drawn, with the drafts that were asked for behind it."""
        drawn = tuple(one.drawn for one in found)
        if self.drafter is None:
            return drawn
        followed = [one.followed() for one in found if one.drawn.lane in self._followed]
        drafts = self.drafter.draft([one for one in followed if one.tokens], self._samplers)
        return tuple(
            msgspec.structs.replace(one, drafts=drafts[one.lane]) if one.lane in drafts else one
            for one in drawn
        )


class _Tap(msgspec.Struct):
    """Logits that somebody looks at."""

    ends: bool
    """Of a chunk the last row alone."""
    rows: Logits = {}

    def take(self, lane: int, first: int, logits: Sequence[Any]) -> None:
        """Rows from position `first` on."""
        self.rows.update({(lane, first + i): np.asarray(row) for i, row in enumerate(logits)})


class _Found(msgspec.Struct, frozen=True):
    """What one lane drew, and from which rows."""

    drawn: Drawn
    position: int
    """Of the first row."""
    hidden: Hidden
    """[rows, hidden padded], of the whole pass"""
    first: int
    """Of the lane's rows in it."""
    ahead: int

    def followed(self) -> Followed:
        tokens = tuple(token for token in self.drawn.tokens if token >= 0)
        hidden = self.hidden[self.first : self.first + len(tokens)]
        return Followed(self.drawn.lane, self.position + 1, tokens, hidden, self.ahead)
