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

import torch

from streamglm.model.batch import PromptBatch
from streamglm.model.device.index import PromptIndex
from streamglm.model.passes import Hidden, Passes, joined, stacked, widened
from streamglm.model.state import LaneStates
from streamglm.model.tables import Geometry
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
    hidden: Hidden
    """[tokens, hidden padded]; the trunk's of the row before each."""
    ahead: int
    """Drafts that are asked for."""


class Drafter:
    """The layer over one executor's lanes; `cache` is its place among the latent caches."""

    def __init__(self, passes: Passes, states: LaneStates, geometry: Geometry, cache: int) -> None:
        self._passes = passes
        self._states = states
        self._geometry = geometry
        self._cache = slice(cache, cache + 1)
        self._owed: dict[int, tuple[int, ...]] = {}
        """By lane: tokens whose rows are owed; the hiddens before them are in the lane's state."""

    def fill(self, batch: PromptBatch | PromptIndex, hidden: torch.Tensor) -> None:
        """Rows of prompts: hidden [rows, hidden padded] are the trunk's of the same rows. Each
        lane's last one waits for the next token."""
        before = torch.zeros_like(hidden)
        before[1:] = hidden[:-1]
        size = self._states.hidden.shape[1]
        for c in batch.chunks:
            before[c.first, :size] = self._states.hidden[c.lane]
            self._states.hidden[c.lane] = hidden[c.first + c.rows - 1, :size]
        self._passes.fill(batch, before)

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
        hidden = self._passes.out(rows, stacked([one.hidden[-1] for one in drafting]), None)
        for row in rows:
            self._states.keep_tails(self._cache, row.lane, row.position, 1)
        return self._chain(drafting, hidden, samplers)

    def _late(self, one: Followed) -> tuple[_Rows, Hidden] | None:
        """The owed rows, where they may not wait: for drafts, or for room."""
        owed = self._owed.get(one.lane, ())
        store = self._passes.owed[one.lane]
        if not owed or not (one.ahead or len(owed) + len(one.tokens) > len(store)):
            return None
        del self._owed[one.lane]
        hidden = widened(store[: len(owed)], one.hidden.shape[1])
        return _Rows(one.lane, one.position - len(owed), owed), hidden

    def _new(self, one: Followed) -> tuple[_Rows, Hidden] | None:
        """The new rows where drafts are asked for, all but the last, which will do more; else they
        are owed."""
        if one.ahead:
            tokens = one.tokens[:-1]
            return (_Rows(one.lane, one.position, tokens), one.hidden[:-1]) if tokens else None
        owed = self._owed.get(one.lane, ())
        store = self._passes.owed[one.lane]
        store[len(owed) : len(owed) + len(one.tokens)] = one.hidden[:, : store.shape[1]]
        self._owed[one.lane] = owed + one.tokens
        return None

    def _follow(self, late: Sequence[tuple[_Rows, Hidden]]) -> None:
        """Rows of which nothing but the cache is wanted, at most a verify window a lane."""
        if not late:
            return
        rows = [one for one, _ in late]
        self._passes.follow(rows, joined([hidden for _, hidden in late]))
        for row in rows:
            self._states.keep_tails(self._cache, row.lane, row.position, len(row.tokens))

    def _chain(
        self, drafting: Sequence[Followed], hidden: Hidden, samplers: Mapping[int, Sampler]
    ) -> dict[int, tuple[int, ...]]:
        """Drafts from hidden [lanes, hidden padded], the layer's output at each lane's last row;
        each further draft from the layer's output at the draft before it."""
        found: dict[int, tuple[int, ...]] = {one.lane: () for one in drafting}
        going = list(drafting)
        while going:
            asks = [(samplers[one.lane], _position(one, found[one.lane])) for one in going]
            logits = self._passes.logits(hidden, asks)
            left = []
            for place, (one, (sampler, at)) in enumerate(zip(going, asks, strict=True)):
                drafts = found[one.lane]
                token = self._passes.sampler(sampler).choose(logits[place], at).token
                if token >= 0:
                    found[one.lane] = drafts = (*drafts, token)
                    if len(drafts) < one.ahead:
                        left.append(place)
            going = [going[place] for place in left]
            if going:
                rows = [_drafted(one, found[one.lane]) for one in going]
                bases = [one.position + len(one.tokens) for one in going]
                places = [self._base(at) for at in bases]
                hidden = self._passes.out(rows, hidden[left], places)
        return found

    def _base(self, position: int) -> int:
        """Where the tail of a lane with `position` committed rows begins."""
        return position // self._geometry.pool * self._geometry.pool


def _last(one: Followed) -> _Rows:
    return _Rows(one.lane, one.position + len(one.tokens) - 1, one.tokens[-1:])


def _drafted(one: Followed, drafts: tuple[int, ...]) -> _Rows:
    at = one.position + len(one.tokens) + len(drafts) - 1
    return _Rows(one.lane, at, drafts[-1:])


def _position(one: Followed, drafts: tuple[int, ...]) -> int:
    """Where the next draft would stand."""
    return one.position + len(one.tokens) + len(drafts)
