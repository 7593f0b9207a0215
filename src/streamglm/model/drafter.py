"""The next-token layer at work: it follows lanes, and drafts behind them.

Owns which rows of the layer's cache are computed when. Knows no steps and accepts nothing. Rows of
the cache, as half-open ranges of positions; `known` tokens of the lane are known, prompt and reply:

    [1, prompt)           filled by the prompt pass, from the trunk's hiddens
    [prompt, known)       followed, from the trunk's hiddens of accepted rows: at the latest when
                          drafts are asked for, or when a verify window of them is owed
    [known, known + n)    drafted, from the layer's own output; the next rows overwrite them

Invariant: a row that was followed holds what the true hidden gives, whatever was drafted before, so
the drafts of a lane are a function of its tokens: a resumed lane drafts as a fresh one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from streamglm.kernels.arguments import Array
from streamglm.kernels.tiling import Tiling
from streamglm.model.batch import PromptBatch, WindowBatch
from streamglm.model.caches import Caches
from streamglm.model.glm import Glm
from streamglm.model.mtp import Mtp
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry, PageTables
from streamglm.model.verify import Sampler


class _Rows(NamedTuple):
    """Tokens of a lane from `position` on."""

    lane: int
    position: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Followed:
    """What one lane has drawn: `tokens` from `position` on."""

    lane: int
    position: int
    tokens: tuple[int, ...]
    hidden: Array
    """[tokens, hidden padded]; the trunk's of the row before each."""
    ahead: int
    """Drafts that are asked for."""


class Drafter:
    """The layer over one executor's lanes. `tilings` are those of prompts and of windows."""

    def __init__(
        self,
        mtp: Mtp,
        glm: Glm,
        states: LaneStates,
        caches: Caches,
        tables: PageTables,
        geometry: Geometry,
        tilings: tuple[Tiling, Tiling],
    ) -> None:
        self._mtp = mtp
        self._glm = glm
        self._states = states
        self._caches = caches
        self._tables = tables
        self._geometry = geometry
        self._prompt, self._window = tilings
        self._cache = slice(mtp.cache, mtp.cache + 1)
        self._owed: dict[int, tuple[int, ...]] = {}
        """By lane: tokens whose rows are owed; the hiddens before them are in the lane's state."""

    def fill(self, batch: PromptBatch, hidden: torch.Tensor) -> None:
        """Rows of prompts: hidden [rows, hidden padded] are the trunk's of the same rows. Each
        lane's last one waits for the next token."""
        before = torch.zeros_like(hidden)
        before[1:] = hidden[:-1]
        size = self._states.hidden.shape[1]
        for c in batch.chunks:
            before[c.first, :size] = self._states.hidden[c.lane]
            self._states.hidden[c.lane] = hidden[c.first + c.rows - 1, :size]
        embedded = self._glm.embed(batch.tokens)
        self._mtp.fill(embedded, before, batch, self._states, self._caches, self._prompt)

    def begin(self, lane: int) -> None:
        """The lane is another's: nothing is owed."""
        self._owed.pop(lane, None)

    def draft(
        self, followed: Sequence[Followed], samplers: Mapping[int, Sampler]
    ) -> dict[int, tuple[int, ...]]:
        """Follow the lanes, and draft where drafts are asked for: lane to tokens. A draft is what
        the lane's own sampler draws from the layer's logits, with the noise of that position."""
        drafting = [one for one in followed if one.ahead]
        self._follow([late for one in followed if (late := self._late(one)) is not None])
        self._follow([new for one in followed if (new := self._new(one)) is not None])
        if not drafting:
            return {}
        rows = [_last(one) for one in drafting]
        hidden = self._out(rows, np.stack([one.hidden[-1] for one in drafting]), None)
        for row in rows:
            self._states.keep_tails(self._cache, row.lane, row.position, 1)
        return self._chain(drafting, hidden, samplers)

    def _late(self, one: Followed) -> tuple[_Rows, Array] | None:
        """The owed rows, where they may not wait: for drafts, or for room."""
        owed = self._owed.get(one.lane, ())
        store = self._states.owed_host[one.lane]
        if not owed or not (one.ahead or len(owed) + len(one.tokens) > len(store)):
            return None
        del self._owed[one.lane]
        hidden = np.zeros((len(owed), one.hidden.shape[1]), np.float32)
        hidden[:, : store.shape[1]] = store[: len(owed)]
        return _Rows(one.lane, one.position - len(owed), owed), hidden

    def _new(self, one: Followed) -> tuple[_Rows, Array] | None:
        """The new rows where drafts are asked for, all but the last, which will do more; else they
        are owed."""
        if one.ahead:
            tokens = one.tokens[:-1]
            return (_Rows(one.lane, one.position, tokens), one.hidden[:-1]) if tokens else None
        owed = self._owed.get(one.lane, ())
        store = self._states.owed_host[one.lane]
        store[len(owed) : len(owed) + len(one.tokens)] = one.hidden[:, : store.shape[1]]
        self._owed[one.lane] = owed + one.tokens
        return None

    def _follow(self, late: Sequence[tuple[_Rows, Array]]) -> None:
        """Rows of which nothing but the cache is wanted, at most a verify window a lane."""
        if not late:
            return
        rows = [one for one, _ in late]
        batch, padded = self._batch(rows, np.concatenate([hidden for _, hidden in late]), None)
        embedded = self._glm.embed_host(batch.tokens)
        self._mtp.follow(embedded, padded, batch, self._states, self._caches, self._window)
        for row in rows:
            self._states.keep_tails(self._cache, row.lane, row.position, len(row.tokens))

    def _chain(
        self, drafting: Sequence[Followed], hidden: Array, samplers: Mapping[int, Sampler]
    ) -> dict[int, tuple[int, ...]]:
        """Drafts from hidden [lanes, hidden padded], the layer's output at each lane's last row;
        each further draft from the layer's output at the draft before it."""
        found: dict[int, tuple[int, ...]] = {one.lane: () for one in drafting}
        going = list(drafting)
        while going:
            logits = self._head(hidden)
            left = []
            for place, one in enumerate(going):
                drafts = found[one.lane]
                at = one.position + len(one.tokens) + len(drafts)
                token = samplers[one.lane].choose(logits[place], at).token
                if token >= 0:
                    found[one.lane] = drafts = (*drafts, token)
                    if len(drafts) < one.ahead:
                        left.append(place)
            going = [going[place] for place in left]
            if going:
                rows = [_drafted(one, found[one.lane]) for one in going]
                bases = [one.position + len(one.tokens) for one in going]
                hidden = self._out(rows, hidden[left], [self._base(at) for at in bases])
        return found

    def _base(self, position: int) -> int:
        """Where the tail of a lane with `position` committed rows begins."""
        return position // self._geometry.pool * self._geometry.pool

    def _out(self, rows: Sequence[_Rows], hidden: Array, bases: Sequence[int] | None) -> Array:
        """One row a lane through the layer."""
        batch, padded = self._batch(rows, hidden, bases)
        embedded = self._glm.embed_host(batch.tokens)
        out = self._mtp.window(embedded, padded, batch, self._states, self._caches, self._window)
        return out[: len(rows)]

    def _batch(
        self, rows: Sequence[_Rows], hidden: Array, bases: Sequence[int] | None
    ) -> tuple[WindowBatch, Array]:
        batch = WindowBatch.of(
            rows,
            self._tables,
            self._geometry,
            self._window,
            tail=self._states.tails.shape[2],
            bases=bases,
            blank=True,
        )
        return batch, _padded(hidden, batch.rows)

    def _head(self, hidden: Array) -> Array:
        rows = _padded(hidden, self._window.pad(len(hidden)))
        return self._glm.logits(rows, self._window)


def _last(one: Followed) -> _Rows:
    return _Rows(one.lane, one.position + len(one.tokens) - 1, one.tokens[-1:])


def _drafted(one: Followed, drafts: tuple[int, ...]) -> _Rows:
    at = one.position + len(one.tokens) + len(drafts) - 1
    return _Rows(one.lane, at, drafts[-1:])


def _padded(rows: Array, count: int) -> Array:
    """rows [N, D] and zeros -> [count, D]."""
    out = np.zeros((count, rows.shape[1]), np.float32)
    out[: len(rows)] = rows
    return out
