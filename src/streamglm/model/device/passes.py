"""The passes over one rank's memory on kernels: `model/passes.py` has what they promise.

Owns which buffers a window runs in, whether it is replayed from a graph, and the tokens that are
drawn on the device. Knows no steps. A window has the buffers of the next width above its rows; the
rows behind them are nobody's. Invariant: a graph holds the launches that an eager pass makes, over
the same buffers, so their bits are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from streamglm import kernels
from streamglm.errors import SettingError
from streamglm.kernels.matrix import Matrix
from streamglm.model.batch import PromptBatch, Span
from streamglm.model.caches import Caches
from streamglm.model.device.draws import Offered, Row, greedy, plain
from streamglm.model.device.graphs import Captured
from streamglm.model.device.index import (
    PromptIndex,
    WindowBuffers,
    WindowIndex,
    WindowRows,
)
from streamglm.model.device.kda import Held
from streamglm.model.device.mtp import NextToken
from streamglm.model.device.trunk import Trunk
from streamglm.model.device.weights import Weights
from streamglm.model.passes import Window
from streamglm.model.peers import Peers
from streamglm.model.share import Share
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry, PageTables
from streamglm.model.verify import Sampler
from streamglm.pool.memory import Memory
from streamglm.step import Chunk, Draw

WIDTHS = (1, 2, 4, 8, 16, 32)
"""Rows of a window's buffers; the last is the widest window."""
POOLS = (0, 4096, 32768)
"""Pools that a window scores at most; 0 while every row sees all its tokens, and behind the last
all that a lane can have."""
_CHUNK = 64
"""Rows of a chunk of the KDA kernel."""


@dataclass(frozen=True, slots=True)
class Out:
    """What one window leaves in its buffers, until the next of the same kind."""

    hidden: torch.Tensor
    logits: torch.Tensor
    tokens: torch.Tensor
    """[R] int64: of each row what its draw gives, -1 where it gives none"""
    held: list[Held]


@dataclass(frozen=True, slots=True)
class Kind:
    """Windows that are the same launches."""

    width: int
    pools: int
    verify: bool
    keyed: bool
    """Whether some row is drawn with noise: then all rows are sorted."""


@dataclass(frozen=True, slots=True)
class After:
    """The same of the next-token layer's windows."""

    width: int
    pools: int
    follows: bool


class DevicePasses:
    """Raises `SettingError` for what has not been run on a GPU yet, and `CheckpointError` as
    `Weights` does. Takes the parameters out of `params`."""

    def __init__(
        self,
        share: Share,
        params: dict[str, torch.Tensor | Matrix],
        memory: Memory,
        states: LaneStates,
        caches: Caches,
        tables: PageTables,
        geometry: Geometry,
        peers: Peers,
        *,
        graphs: bool = True,
    ) -> None:
        spec = share.spec
        _refuse(spec.rows.kda_chunk, spec.rows.window)
        assert tables.split is None, "--kv-split is refused before anything loads"
        self._memory, self._states, self._caches = memory, states, caches
        self._sent = peers.sent
        self._tables, self._geometry = tables, geometry
        weights = Weights(params, memory.values)
        self.trunk = Trunk(share, weights, geometry, peers)
        self.next_token: NextToken | None = None
        if spec.mtp_layers:
            layer = weights.under(f"layers.{len(spec.layers)}")
            self.next_token = NextToken(share, layer, geometry, peers)
        weights.finish()
        self._spelled = spec.vocab_size
        self.owed = states.owed
        lanes = states.hidden.shape[0]
        pages = min(geometry.null, -(-spec.max_positions // geometry.page) + 1)
        self._table = torch.zeros(lanes, pages, dtype=torch.int32, device=memory.device)
        self._buffers = {
            trunk: {width: WindowBuffers(width, geometry.pool, memory.device) for width in WIDTHS}
            for trunk in (True, False)
        }
        self.graphs: dict[Kind, Captured[Out]] | None = {} if memory.on_gpu and graphs else None
        """None: eager."""
        self._graphs_after: dict[After, Captured[torch.Tensor]] = {}
        size = spec.hidden_size if self.next_token is not None else 0
        self._beside = torch.zeros(WIDTHS[-1], size, dtype=memory.values, device=memory.device)
        """What the next-token layer's rows stand beside."""
        self.last: tuple[Kind, WindowRows, Out] | None = None
        """The window before, which `replay` is about."""
        self.numerics = _numerics(memory)

    def begin(self, lane: int) -> None:
        row = torch.from_numpy(self._tables.host[lane, : self._table.shape[1]])
        self._table[lane, : len(row)] = row.to(self._memory.device, torch.int32)

    def prompt(self, chunks: Sequence[Chunk]) -> tuple[PromptIndex, torch.Tensor]:
        batch = PromptBatch.of(chunks, self._tables, self._geometry, reads=False)
        tail = self._states.tails.shape[2]
        device = self._memory.device
        index = PromptIndex.of(batch, self._tables, self._geometry, device, tail=tail)
        return index, self.trunk.prompt(index, self._states, self._caches)

    def hidden(self, rows: torch.Tensor) -> torch.Tensor:
        return rows

    def window(self, rows: Sequence[Span], asks: Sequence[tuple[Sampler, int]]) -> Window:
        found = WindowRows.of(rows, self._geometry.pool, None)
        count = len(found.tokens)
        draws = [(self._draw(sampler), position) for sampler, position in asks]
        buffers = self._buffers[True][_width(count)]
        kind = Kind(
            width=buffers.rows,
            pools=self._pools(found.most),
            verify=count > len(rows),
            keyed=any(draw.temperature > 0.0 for draw, _ in draws),
        )
        out = self._run(kind, buffers, found, draws)
        buffers.ask(out.tokens)
        self.last = kind, found, out  # what follows, up to the wait, is while the device computes
        spans = tuple(slice(first, first + taken) for first, taken, _ in found.lanes)
        hidden = out.hidden[:count]
        tokens = buffers.told()
        logits = [Row(out.logits, place, token) for place, token in enumerate(tokens[:count])]
        return Window(spans, hidden, logits)

    def _run(
        self,
        kind: Kind,
        buffers: WindowBuffers,
        rows: WindowRows,
        draws: Sequence[tuple[Draw, int]],
    ) -> Out:
        buffers.settle()
        if self.graphs is not None and kind not in self.graphs:
            buffers.idle()  # over rows of nobody, so that it moves nothing
            buffers.load()
            index = buffers.index(self._table, kind.pools, kind.verify)
            self.graphs[kind] = Captured(lambda: self._eager(kind, index), self._sent)
            buffers.settle()
        self._fill(buffers, rows)
        if kind.keyed:
            buffers.draw(draws)
        buffers.load()
        if self.graphs is None:
            return self._eager(kind, buffers.index(self._table, kind.pools, kind.verify))
        return self.graphs[kind].replay()

    def _fill(self, buffers: WindowBuffers, rows: WindowRows) -> None:
        buffers.fill(rows, self._tables, self._geometry, self._states.tails.shape[2])

    def _eager(self, kind: Kind, index: WindowIndex) -> Out:
        hidden, held = self.trunk.window(index, self._states, self._caches)
        logits = self.trunk.logits(hidden)
        if kind.keyed:
            from streamglm.kernels.draw import kernel

            tokens = kernel.draw(logits, index.numbers, index.counts, self._spelled)
        else:
            tokens = greedy(logits)
        return Out(hidden, logits, tokens, held if kind.verify else [])

    def logits(self, hidden: torch.Tensor, asks: Sequence[tuple[Sampler, int]]) -> list[Row]:
        logits = self.trunk.logits(hidden)
        if not asks:
            return [Row(logits, place, None) for place in range(len(logits))]
        draws = [(self._draw(sampler), position) for sampler, position in asks]
        found = plain(logits, draws, self._spelled).tolist()
        return [Row(logits, place, token) for place, token in enumerate(found)]

    def sampler(self, sampler: Sampler) -> Offered:
        return Offered(sampler)

    def _draw(self, sampler: Sampler) -> Draw:
        """How a row is drawn on the device; of a lane that the host draws for, somehow."""
        if sampler.plain is None:
            return Draw(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)
        if sampler.spelled is not None:
            self._spelled = sampler.spelled
        return sampler.plain

    def replay(self, accepted: Sequence[tuple[int, int]]) -> None:
        """In a verify window no state has moved: lanes of one row move now too."""
        assert self.last is not None
        kind, window, out = self.last
        if not kind.verify:
            return
        counts = dict(accepted)
        rows = [(first, counts.get(lane, 1), lane) for first, _, lane in window.lanes]
        rows += [(0, 0, 0)] * (kind.width - len(rows))
        table = torch.tensor(rows, dtype=torch.int32)
        if self.graphs is None:
            self.trunk.replay(out.held, table.to(self._memory.device), self._states)
        else:
            replay = self.trunk.replay
            self.graphs[kind].then(table, lambda there: replay(out.held, there, self._states))

    def fill(self, batch: PromptIndex, before: torch.Tensor) -> None:
        assert self.next_token is not None
        embedded = self.trunk.embed(batch.tokens)
        self.next_token.fill(embedded, before, batch, self._states, self._caches)

    def follow(self, rows: Sequence[Span], hidden: torch.Tensor) -> None:
        """Lane by lane in windows that are not too wide."""
        first = 0
        while rows:
            count, taken = len(rows[0].tokens), 1
            while taken < len(rows) and count + len(rows[taken].tokens) <= WIDTHS[-1]:
                count, taken = count + len(rows[taken].tokens), taken + 1
            self._after(rows[:taken], hidden[first : first + count], None, follows=True)
            rows, first = rows[taken:], first + count

    def out(
        self, rows: Sequence[Span], hidden: torch.Tensor, bases: Sequence[int] | None
    ) -> torch.Tensor:
        return self._after(rows, hidden, bases, follows=False)

    def _after(
        self,
        rows: Sequence[Span],
        hidden: torch.Tensor,
        bases: Sequence[int] | None,
        *,
        follows: bool,
    ) -> torch.Tensor:
        """The next-token layer over rows beside the hidden of the row before each: what comes out,
        or, where it `follows`, the embedding of the rows."""
        found = WindowRows.of(rows, self._geometry.pool, bases)
        buffers = self._buffers[False][_width(len(found.tokens))]
        after = After(buffers.rows, self._pools(found.most), follows)
        beside = self._beside[: buffers.rows]
        index = buffers.index(self._table, after.pools, verify=False)
        buffers.settle()
        if self.graphs is not None and after not in self._graphs_after:
            buffers.idle()
            buffers.load()
            self._graphs_after[after] = Captured(
                lambda: self._next(index, beside, follows), self._sent
            )
            buffers.settle()
        self._fill(buffers, found)
        buffers.load()
        beside[: len(hidden)] = hidden
        if self.graphs is None:
            out = self._next(index, beside, follows)
        else:
            out = self._graphs_after[after].replay()
        return out[: len(found.tokens)]

    def _next(self, index: WindowIndex, beside: torch.Tensor, follows: bool) -> torch.Tensor:
        assert self.next_token is not None
        embedded = self.trunk.embed(index.tokens)
        if not follows:
            return self.next_token.window(embedded, beside, index, self._states, self._caches)
        self.next_token.follow(embedded, beside, index, self._states, self._caches)
        return embedded

    @property
    def reaches(self) -> list[int]:
        """Tokens of the longest row of each kind of window, ascending."""
        g = self._geometry
        whole = min(self._table.shape[1], g.null) * g.page
        ends = [g.limit, *(pools * g.pool for pools in POOLS[1:]), whole]
        return sorted({min(end, whole) for end in ends})

    def _pools(self, most: int) -> int:
        """Pools that are scored where the longest row sees `most` tokens."""
        g = self._geometry
        if most <= g.limit:
            return 0
        whole = self._table.shape[1] * g.page // g.pool
        return min((pools for pools in POOLS[1:] if pools * g.pool >= most), default=whole)


def _width(rows: int) -> int:
    return next(width for width in WIDTHS if width >= rows)


def _refuse(kda_chunk: int, window: int) -> None:
    if kda_chunk != _CHUNK:
        raise SettingError(
            f"config.json: streamglm.kda_chunk_rows is {kda_chunk}, and kernels take {_CHUNK} rows "
            "at a time: --device cpu serves it"
        )
    if window > WIDTHS[-1]:
        raise SettingError(
            f"config.json: streamglm.window_rows is {window}, and a window on a GPU has "
            f"{WIDTHS[-1]} rows at most"
        )


def _numerics(memory: Memory) -> str:
    """What a row's bits may depend on beside weights and tokens. Kernels change with their tiles,
    and a state that was kept under others is not resumed."""
    parts: list[Any] = [memory.values, f"kernels {_sources()}"]
    if memory.on_gpu:
        import triton

        parts += [f"triton {triton.__version__}", torch.cuda.get_device_name(memory.device)]
    return ", ".join(map(str, parts))


def _sources() -> str:
    """A digest of the operators' code."""
    digest = hashlib.sha256()
    for file in sorted(Path(kernels.__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
