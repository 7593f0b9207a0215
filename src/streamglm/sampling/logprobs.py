"""Log-probabilities of the model itself, before anything is edited or filtered.

Owns the log-softmax of one row and the order of alternatives. Knows no parameters of a draw but
how many alternatives are wanted. Invariant: a row's numbers depend on that row alone; sums are in
float64, over one contiguous row in one order.
"""

from __future__ import annotations

import numpy as np

from streamglm.kernels.arguments import Array
from streamglm.step import LogProbs


def logprobs(logits: Array, token: int, count: int) -> LogProbs:
    """Of logits [V], finite or -inf: the logarithm for `token`, and the `count` highest ids with
    theirs, equals in the order of their ids."""
    wide = logits.astype(np.float64)
    highest = wide.max()
    norm = highest + np.log(np.exp(wide - highest).sum())
    top = tuple((int(i), float(wide[i] - norm)) for i in _highest(logits, count))
    return LogProbs(float(wide[token] - norm), top)


def _highest(logits: Array, count: int) -> list[int]:
    """The ids of the `count` highest values, the highest first, the lower of equal ids first."""
    count = min(count, len(logits))
    if count == 0:
        return []
    least = np.partition(logits, len(logits) - count)[len(logits) - count]
    among = np.flatnonzero(logits >= least)  # ascending ids: a stable sort keeps them so
    order = np.argsort(-logits[among], kind="stable")[:count]
    found: list[int] = among[order].tolist()
    return found
