"""What a training row says about the model: whole answers right, by kind; drafts that agree.

Owns counting only. Every row is fresh, so these numbers are of unseen conversations; answers are
scored with their true beginnings given (teacher forcing), which the exam does not do.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from streamglm.nano.training.batches import Packed
from streamglm.nano.training.dialog import Kind

Counts = dict[str, tuple[int, int]]
"""Name -> (right, all)."""


def count(row: Packed, best: npt.NDArray[np.int64], drafted: npt.NDArray[np.int64]) -> Counts:
    """Answers right to the last token, by kind, and drafts that agree with the trunk."""
    right = best == row.targets
    answers = int(row.turn.max(initial=0)) + 1
    scored = row.turn > 0
    whole = np.ones(answers, bool)
    np.logical_and.at(whole, row.turn[scored], right[scored])
    kinds = np.zeros(answers, np.uint8)
    kinds[row.turn[scored]] = row.kind[scored]
    counts: Counts = {}
    for kind in Kind:
        of = (kinds == kind) & (np.arange(answers) > 0)
        counts[kind.name.lower()] = (int(whole[of].sum()), int(of.sum()))
    learned = row.weight >= 1.0
    agree = best == drafted
    counts["draft"] = (int(agree[learned].sum()), int(learned.sum()))
    copied = scored & (row.kind == Kind.REPEAT)
    counts["draft_repeat"] = (int(agree[copied].sum()), int(copied.sum()))
    counts["token"] = (int(right[learned].sum()), int(learned.sum()))
    return counts


class Tally:
    """Counts of several rows."""

    def __init__(self) -> None:
        self._sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])

    def add(self, counts: Counts) -> None:
        for name, (right, total) in counts.items():
            self._sums[name][0] += right
            self._sums[name][1] += total

    def rates(self) -> dict[str, float]:
        """Name -> share, for what occurred; the tally starts over."""
        rates = {name: right / total for name, (right, total) in self._sums.items() if total}
        self._sums.clear()
        return rates
