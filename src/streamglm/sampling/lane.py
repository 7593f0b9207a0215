"""From a row of logits to the lane's next token.

Owns the order in which a lane's sampling acts on a row, and which ids a draw may give. Knows no
other lanes and no steps. Invariant: `choose` is a function of (row, parameters, history, seed,
position) and changes nothing; the history moves by `push` alone.

    raw logits -> log-probabilities
    raw logits -> penalties -> bias -> mask -> temperature -> top_k -> top_p -> min_p -> token

A lane that asks for none of the first three is drawn from the raw row, without a copy of it.
"""

from __future__ import annotations

import numpy as np

from streamglm.kernels import draw as kernel
from streamglm.kernels.arguments import Array, Flags, Wide
from streamglm.sampling.history import History, unpack
from streamglm.sampling.logprobs import logprobs
from streamglm.step import Choice, Draw

NO_TOKEN = -1
"""A row gives none: it holds NaN or infinity, or nothing is left of it."""


class LaneSampler:
    """The draws of one lane, from its begin on.

    `seen` are the packed ids of its prompt where `draw` has a repetition penalty. Ids from
    `spelled` on have no text and are never drawn, with one exception: greedy with nothing to edit
    does not look, for so every other implementation of the model has it.
    """

    def __init__(self, draw: Draw, seen: bytes = b"", *, spelled: int | None = None) -> None:
        self._params = draw
        self._spelled = spelled
        self._history = History(draw, seen, spelled) if History.asked(draw) else None
        bias = [(i, value) for i, value in draw.bias if spelled is None or i < spelled]
        self._bias_ids = np.array([i for i, _ in bias], np.int64)
        self._bias = np.array([value for _, value in bias], np.float64)
        self._allowed = unpack(draw.allowed) if draw.allowed else None
        self._edits = bool(self._history or draw.bias or draw.allowed)
        self.plain = None if self._edits or draw.logprobs is not None else draw
        """The draw, where a row, the seed and the position alone decide."""
        self.spelled = spelled

    def choose(self, logits: Array, position: int, mask: bytes = b"") -> Choice:
        """The token for `position` from logits [V] float32.

        `mask` are packed ids that are allowed at this position, beside those that the lane allows
        everywhere; empty allows any.
        """
        highest = int(logits.argmax())  # of a row with NaN, its first NaN
        if not np.isfinite(logits[highest]):
            return Choice(NO_TOKEN, None)
        if self._edits or mask:
            token = self._from_edited(self._edited(logits, mask), position)
        elif self._params.temperature == 0.0:
            token = highest
        else:
            token = self._sampled(np.ascontiguousarray(logits[: self._spelled]), position)
        count = self._params.logprobs
        if count is None or token < 0:
            return Choice(token, None)
        return Choice(token, logprobs(logits, token, count))

    def push(self, token: int) -> None:
        """`token` stands in the reply: the next draw sees it."""
        if self._history is not None:
            self._history.push(token)

    def _edited(self, logits: Array, mask: bytes) -> Wide:
        """Penalties, bias and masks on a copy of the spelled ids, in float64."""
        row = logits[: self._spelled].astype(np.float64)
        if self._history is not None:
            self._history.apply(row)
        row[self._bias_ids] += self._bias
        if self._allowed is not None:
            _keep(row, self._allowed)
        if mask:
            _keep(row, unpack(mask))
        return row

    def _from_edited(self, row: Wide, position: int) -> int:
        highest = int(row.argmax())
        if not np.isfinite(row[highest]):
            return NO_TOKEN
        return highest if self._params.temperature == 0.0 else self._sampled(row, position)

    def _sampled(self, row: Array | Wide, position: int) -> int:
        params = self._params
        return kernel.draw(
            row,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            noise=kernel.uniform(params.seed, position),
        )


def _keep(row: Wide, allowed: Flags) -> None:
    """Ids that are not among `allowed`, which may be shorter or longer than the row, go to -inf."""
    known = min(len(row), len(allowed))
    row[:known][~allowed[:known]] = -np.inf
    row[known:] = -np.inf
