"""What one round runs: the value that core decides, the wire carries and every rank executes.

Owns the message shapes of a step and the order in which it is executed. Knows no torch, no pages
beyond their ids. Positions are absolute token indices of a lane. Half-open ranges:

    chunk   rows [start, start + len(tokens))   written by the prompt kernels
    row     row  position                        written by the window kernels

A chunk starts on a multiple of the KDA chunk (`ModelSpec.kda_chunk`), whatever its length, and
only the last chunk of a prompt may end off that grid.

A kept state is what a lane was at a mark, a whole number of pages before its prompt's end. Its
fixed part lies in a numbered slot and its rows stay in the pages that the lane computed; or, with
slot -1, fixed part and rows lie in a buffer of its own, in device or host memory. A state comes
with the `Save` that fills it and goes with its `Drop`.
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


class Demote(msgspec.Struct, frozen=True, array_like=True, tag="demote"):
    """`state` moves to a buffer in host memory: its fixed part from `slot` and the rows [0, at)
    from `pages`; or with slot -1 its whole buffer, and `pages` is empty."""

    state: int
    slot: int
    at: int
    pages: tuple[int, ...]


class Drop(msgspec.Struct, frozen=True, array_like=True, tag="drop"):
    """`state` is gone: its buffer, or the meaning of its slot and its hold on pages."""

    state: int


Move = Demote | Drop


class Restore(msgspec.Struct, frozen=True, array_like=True):
    """A lane starts as `state` was at `at`: with the fixed part from `slot`, its first pages being
    the state's own; or with slot -1 from the state's buffer, whose rows fill its first pages."""

    state: int
    slot: int
    at: int


class Begin(msgspec.Struct, frozen=True, array_like=True):
    """Lane `lane` owns `pages`, in the order of its rows; it starts blank (zero KDA state), or
    from `restore`, whose pages it shares with others and never writes."""

    lane: int
    pages: tuple[int, ...]
    draw: Draw
    restore: Restore | None = None


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a prompt. With `last`, the token after the last row is drawn."""

    lane: int
    start: int
    tokens: tuple[int, ...]
    last: bool


class Save(msgspec.Struct, frozen=True, array_like=True):
    """Keep `lane`, which stands at `at`, as `state`: its fixed part in `slot`, its first pages by
    reference; or with slot -1 both in a new buffer, in host memory if `host`."""

    state: int
    lane: int
    slot: int
    host: bool
    at: int


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One decoded row: `token` stands at `position`; the token after it is drawn."""

    lane: int
    position: int
    token: int


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One round's work, in the order of the fields: nothing is overwritten before it was read.

    `moves` precede the begins, because slots and pages of a state that went may be another's from
    the begins on. `saves` follow the prompt pass, which has brought their lanes to the mark. A
    lane stands in at most one of `chunks` and `rows`, once.
    """

    ends: tuple[int, ...] = ()
    moves: tuple[Move, ...] = ()
    begins: tuple[Begin, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    """One prompt pass."""
    saves: tuple[Save, ...] = ()
    rows: tuple[Row, ...] = ()
    """One window pass."""


class StepResult(msgspec.Struct, frozen=True, array_like=True):
    """`tokens` holds (lane, token) for each last chunk, then for each row, in the step's order. A
    token of -1 says that the lane's logits gave none (they are not finite): that reply fails, and
    the others go on. The seconds are the rank's own measurement of its two passes."""

    tokens: tuple[tuple[int, int], ...]
    prompt_seconds: float
    window_seconds: float
