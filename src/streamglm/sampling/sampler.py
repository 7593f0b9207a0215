"""From logits to the next token of each row.

Owns what greedy means and which ids a draw may give. Knows no lanes and no generator: a row's token
is a function of (logits of the row, its `Draw`, position). Invariant: no row sees another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamglm.kernels import draw
from streamglm.kernels.arguments import Array
from streamglm.step import Draw


def sample(
    logits: Array,
    draws: Sequence[Draw],
    positions: Sequence[int],
    *,
    spelled: int | None = None,
) -> list[int]:
    """logits [N, V] float32, one `Draw` and the drawn token's own position a row -> N ids.

    Ids from `spelled` on have no text: a draw never gives one. Greedy does not look, for so every
    other implementation of the model has it. A row with NaN in it has no usable logit: -1.
    """
    rows = zip(logits, draws, positions, strict=True)
    return [sample_row(row, d, position, spelled) for row, d, position in rows]


def sample_row(logits: Array, params: Draw, position: int, spelled: int | None) -> int:
    """`sample` of one row [V]: the highest logit, ties to the lower id, at temperature 0."""
    highest = int(logits.argmax())  # of a row with NaN, its first NaN
    if np.isnan(logits[highest]):
        return -1
    if params.temperature == 0.0:
        return highest
    return draw.draw(
        np.ascontiguousarray(logits[:spelled]),
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        noise=draw.uniform(params.seed, position),
    )
