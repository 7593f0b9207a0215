"""The ids that a lane has seen, and what penalties make of their logits.

Owns the set of prompt ids, the counts of drawn ids, and the three formulas. Knows no noise and no
filters. Invariant: a penalty changes the logits of ids in the history and of no others.

Repetition is that of CTRL (Keskar et al. 2019, section 4.1) with the correction for logits below 0
that every server has made since; presence and frequency are those of OpenAI's API reference.
"""

from __future__ import annotations

import numpy as np

from streamglm.kernels.arguments import Flags, Ids, Wide
from streamglm.step import Draw


def unpack(packed: bytes) -> Flags:
    """Bits of `step.pack` -> flags by id, as many as there are bits."""
    bits = np.frombuffer(packed, np.uint8)
    return np.unpackbits(bits, bitorder="little").astype(np.bool_)


class History:
    """`seen` are the packed ids of the prompt, or empty; `push` counts those of the reply. Ids from
    `limit` on are left out."""

    def __init__(self, draw: Draw, seen: bytes, limit: int | None) -> None:
        self._repetition = draw.repetition_penalty
        self._presence = draw.presence_penalty
        self._frequency = draw.frequency_penalty
        self._limit = limit
        prompt = np.flatnonzero(unpack(seen))
        self._ids: Ids = prompt if limit is None else prompt[prompt < limit]
        self._counts: Ids = np.zeros(len(self._ids), np.int64)  # in the reply
        self._place = {int(token): at for at, token in enumerate(self._ids)}
        self._used = len(self._ids)

    @staticmethod
    def asked(draw: Draw) -> bool:
        """Some penalty is not neutral."""
        penalties = (draw.repetition_penalty, draw.presence_penalty, draw.frequency_penalty)
        return penalties != (1.0, 0.0, 0.0)

    def push(self, token: int) -> None:
        """`token` stands in the reply."""
        if self._limit is not None and token >= self._limit:
            return
        at = self._place.setdefault(token, self._used)
        if at == self._used:
            self._append(token)
        self._counts[at] += 1

    def _append(self, token: int) -> None:
        if self._used == len(self._ids):
            more = np.zeros(max(64, self._used), np.int64)
            self._ids = np.concatenate([self._ids, more])
            self._counts = np.concatenate([self._counts, more])
        self._ids[self._used] = token
        self._used += 1

    def apply(self, row: Wide) -> None:
        """Edit logits [V] in place: repetition, then frequency, then presence."""
        ids, counts = self._ids[: self._used], self._counts[: self._used]
        values = row[ids]
        values = np.where(values > 0.0, values / self._repetition, values * self._repetition)
        values -= self._frequency * counts
        values -= self._presence * (counts > 0)
        row[ids] = values
