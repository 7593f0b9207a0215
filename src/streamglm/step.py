"""What one round runs: the value that core decides, the wire carries and every rank executes.

Owns the message shapes of a step. Knows no torch, no pages beyond their ids. Positions are
absolute token indices of a lane. Half-open ranges:

    chunk   rows [start, start + len(tokens))   written by the prompt kernels
    row     row  position                        written by the window kernels

A chunk starts on a multiple of the KDA chunk (`ModelSpec.kda_chunk`), whatever its length, and
only the last chunk of a prompt may end off that grid.
"""

from __future__ import annotations

import msgspec


class Draw(msgspec.Struct, frozen=True, array_like=True):
    """Sampling of one lane; the fields of `request.SamplingParams`."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int


class Begin(msgspec.Struct, frozen=True, array_like=True):
    """Lane `lane` starts blank (zero KDA state) and owns `pages`, in the order of its rows."""

    lane: int
    pages: tuple[int, ...]
    draw: Draw


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a prompt. With `last`, the token after the last row is drawn."""

    lane: int
    start: int
    tokens: tuple[int, ...]
    last: bool


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One decoded row: `token` stands at `position`; the token after it is drawn."""

    lane: int
    position: int
    token: int


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One round's work, in this order: `ends`, `begins`, `chunks` as one prompt pass, `rows` as
    one window pass. A lane stands in at most one of `chunks` and `rows`, once."""

    ends: tuple[int, ...] = ()
    begins: tuple[Begin, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    rows: tuple[Row, ...] = ()


class StepResult(msgspec.Struct, frozen=True, array_like=True):
    """`tokens` holds (lane, token) for each last chunk, then for each row, in the step's order. A
    token of -1 says that the lane's logits gave none (they are not finite): that reply fails, and
    the others go on. The seconds are the rank's own measurement of its two passes."""

    tokens: tuple[tuple[int, int], ...]
    prompt_seconds: float
    window_seconds: float
