"""What one round runs: the value that core decides, the wire carries and every rank executes.

Owns the message shapes of a step and the order in which it is executed. Knows no torch, no pages
beyond their ids. Positions are absolute token indices of a lane. Half-open ranges:

    chunk   rows [start, start + len(tokens))           written by the prompt kernels
    row     rows [position, position + 1 + drafts)      written by the window kernels
            rows [position, position + drawn tokens)    of these are committed

The rows of drafts that are not committed are as if they had never been: whoever reads a lane reads
no further than its committed rows, and the next row of a window overwrites them.

A chunk starts on a multiple of the KDA chunk (`ModelSpec.kda_chunk`), whatever its length, and
only the last chunk of a prompt may end off that grid.

A kept state is what a lane was at a mark, a whole number of pages before its prompt's end. Its
fixed part lies in a numbered slot and its rows stay in the pages that the lane computed; or, with
slot -1, fixed part and rows lie in a buffer of its own, in device or host memory. A state comes
with the `Save` that fills it and goes with its `Drop`.

What is on the disk comes back page by page: a lane that arrives has its pages, `puts` fill them
from records that the rank has read and verified, and the last of them seals the lane, which then
stands at the mark as any restored lane does. `writes` copy a kept state for the disk.

With the latent split, rank r alone holds latent rows of the pages of class r (`pool/owners.py`). A
lane whose pages are of another class than the state that it resumes from shares none of them: a
`Carry` brings the rows from the state's home to the lane's owner.

A set of token ids crosses as packed bits: id i is bit i % 8 of byte i // 8. It is never longer than
an eighth of the vocabulary, however long the prompt is whose ids it holds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

MOST_LOGPROBS = 20
"""Alternatives to a token that can be asked for."""


def pack(ids: Iterable[int]) -> bytes:
    """A set of token ids as bits, without zero bytes at its end; no ids are b""."""
    distinct = set(ids)
    bits = bytearray(max(distinct, default=-1) // 8 + 1)
    for token in distinct:
        bits[token >> 3] |= 1 << (token & 7)
    return bytes(bits)


class Guide(msgspec.Struct, frozen=True, array_like=True):
    """What a lane's reply is held to. Reasoning first, where the prompt ends inside an open think
    block: at most `budget` ids, then the ids of `close`. Then `grammar`, as the compiling process
    writes it; empty: anything."""

    thinking: bool
    budget: int | None
    close: tuple[int, ...]
    stops: tuple[int, ...]
    """The model's end tokens, ascending: none while it thinks, one where the grammar is over."""
    grammar: bytes


class Draw(msgspec.Struct, frozen=True, array_like=True):
    """Sampling of one lane; the fields of `request.SamplingParams`."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()
    """(id, what is added to its logit), ascending by id."""
    allowed: bytes = b""
    """Packed ids, of which one is drawn; empty: any."""
    logprobs: int | None = None
    """Alternatives to report beside the drawn token; None: no log-probabilities."""
    guide: Guide | None = None


def fault_of(draw: Draw, vocab: int) -> str | None:
    """What no rank can draw by, in words, or None. `vocab` is the number of logits."""
    numbers = {
        "temperature": (draw.temperature, 0.0 <= draw.temperature),
        "top_k": (draw.top_k, draw.top_k >= 0),
        "top_p": (draw.top_p, 0.0 < draw.top_p <= 1.0),
        "min_p": (draw.min_p, 0.0 <= draw.min_p <= 1.0),
        "repetition_penalty": (draw.repetition_penalty, draw.repetition_penalty > 0.0),
        "presence_penalty": (draw.presence_penalty, True),
        "frequency_penalty": (draw.frequency_penalty, True),
    }
    for name, (value, fits) in numbers.items():
        if not (fits and math.isfinite(value)):
            return f"{name} is {value}"
    ids = [token for token, _ in draw.bias]
    if ids and not (0 <= ids[0] and ids[-1] < vocab):
        return f"bias has an id that is not below {vocab}"
    if any(one >= two for one, two in itertools.pairwise(ids)):
        return "bias has ids out of order"
    if not all(math.isfinite(value) for _, value in draw.bias):
        return "bias has a value that is not finite"
    if draw.logprobs is not None and not 0 <= draw.logprobs <= MOST_LOGPROBS:
        return f"logprobs is {draw.logprobs}; at most {MOST_LOGPROBS} are told"
    if draw.guide is not None and (fault := _guide_fault(draw.guide, vocab)):
        return fault
    return _set_fault("allowed", draw.allowed, vocab) if draw.allowed else None


def _guide_fault(guide: Guide, vocab: int) -> str | None:
    if guide.budget is not None and (guide.budget < 0 or not guide.close):
        return f"a budget of {guide.budget} is closed with {len(guide.close)} ids"
    if not all(0 <= token < vocab for token in (*guide.close, *guide.stops)):
        return f"its guide has an id that is not below {vocab}"
    if guide.grammar and not guide.stops:
        return "its grammar has no id to end with"
    return None


def seen_fault(begin: Begin, vocab: int) -> str | None:
    """What is wrong with a begin's history, in words, or None: it is there exactly when a
    repetition penalty asks for it."""
    if (begin.draw.repetition_penalty != 1.0) != bool(begin.seen):
        return "its history and its repetition_penalty do not go together"
    return _set_fault("its history", begin.seen, vocab) if begin.seen else None


def _set_fault(name: str, packed: bytes, vocab: int) -> str | None:
    if not packed[-1]:
        return f"{name} ends in zeros"
    highest = 8 * len(packed) - 9 + packed[-1].bit_length()
    return f"{name} has id {highest}, not below {vocab}" if highest >= vocab else None


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


class Restore(msgspec.Struct, frozen=True, array_like=True, tag="restore"):
    """A lane starts as `state` was at `at`: with the fixed part from `slot`, its first pages being
    the state's own; or with slot -1 from the state's buffer, whose rows fill its first pages. Where
    a carry goes with it, rows come from the state's pages or buffer into the lane's own pages, and
    latent rows only by the carry."""

    state: int
    slot: int
    at: int


class Arrive(msgspec.Struct, frozen=True, array_like=True, tag="arrive"):
    """A lane waits for what `job` reads from the disk: until a put seals it at `at`, it computes
    nothing."""

    job: int
    at: int


class Begin(msgspec.Struct, frozen=True, array_like=True):
    """Lane `lane` owns `pages`, in the order of its rows; it starts blank (zero KDA state), or
    from `restore`, whose pages it shares with others and never writes, or from the disk."""

    lane: int
    pages: tuple[int, ...]
    draw: Draw
    restore: Restore | Arrive | None = None
    seen: bytes = b""
    """The packed ids of the whole prompt, restored or not, where a repetition penalty asks for
    them; else empty."""
    drafts: bool = False
    """The next-token layer follows the lane's reply, so that drafts may be asked of it."""


class Carry(msgspec.Struct, frozen=True, array_like=True):
    """What `state`, which `lane` restores, holds up to `at` fills the lane's first pages, which are
    not the state's own: latent rows go from rank `home` to rank `owner`, and every rank copies its
    own pooled keys. They come from `sources`, the state's pages in the order of the rows, or from
    its buffer when that is empty, and go to `pages`."""

    state: int
    lane: int
    home: int
    owner: int
    at: int
    sources: tuple[int, ...]
    pages: tuple[int, ...]


class Put(msgspec.Struct, frozen=True, array_like=True):
    """What `job` has read and verified: of the pages [first, stop) of `lane`, in the order of its
    rows; with `seal` the fixed part too, and the lane stands at its mark."""

    lane: int
    job: int
    first: int
    stop: int
    seal: bool


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a prompt. With `last`, the token after the last row is drawn, and the next-token
    layer drafts `ahead` tokens behind that one."""

    lane: int
    start: int
    tokens: tuple[int, ...]
    last: bool
    ahead: int = 0


class Save(msgspec.Struct, frozen=True, array_like=True):
    """Keep `lane`, which stands at `at`, as `state`: its fixed part in `slot`, its first pages by
    reference; or with slot -1 both in a new buffer, in host memory if `host`."""

    state: int
    lane: int
    slot: int
    host: bool
    at: int


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One record to write, as number `number` of this server. `page` is its page in the pool, or
    its place in the state's buffer; below 0 it is the fixed part. Key and parent stand for all
    tokens up to the end of the record's page, and up to its beginning; `tokens` are the page's own,
    as little-endian uint32."""

    number: int
    page: int
    depth: int
    key: bytes
    parent: bytes
    tokens: bytes


class Write(msgspec.Struct, frozen=True, array_like=True):
    """Copy these records of the kept state `state`, which is in `slot` or with -1 in a buffer, and
    write them behind the rounds."""

    state: int
    slot: int
    records: tuple[Record, ...]


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One lane's rows of a window: `token` stands at `position`, `drafts` are what may follow it.

    Tokens are drawn after each row in turn, up to the first that is not the draft behind its row:
    1 to 1 + len(drafts) tokens, which are the ones that as many windows of one row draw. Behind the
    last of them the next-token layer drafts `ahead` tokens."""

    lane: int
    position: int
    token: int
    drafts: tuple[int, ...] = ()
    ahead: int = 0

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens of the lane's rows."""
        return (self.token, *self.drafts)


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One round's work, in the order of the fields: nothing is overwritten before it was read.

    `moves` precede the begins, because slots and pages of a state that went may be another's from
    the begins on. `saves` follow the puts and the prompt pass, which have brought their lanes to
    the mark; a write may copy what was saved in an earlier step. A carry goes with a begin of the
    same step, and nothing of its state is given up before the step is done. A lane stands in at
    most one of `puts`, `chunks` and `rows`, once.
    """

    ends: tuple[int, ...] = ()
    moves: tuple[Move, ...] = ()
    begins: tuple[Begin, ...] = ()
    carries: tuple[Carry, ...] = ()
    puts: tuple[Put, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    """One prompt pass."""
    saves: tuple[Save, ...] = ()
    writes: tuple[Write, ...] = ()
    rows: tuple[Row, ...] = ()
    """One window pass."""


class LogProbs(msgspec.Struct, frozen=True, array_like=True):
    """Natural logarithms of the model's own probabilities at one position: of the drawn token,
    and of the most likely ones as (id, logarithm), the likeliest first, equals by id."""

    logprob: float
    top: tuple[tuple[int, float], ...]


class Choice(NamedTuple):
    """One drawn token, -1 where the logits give none; log-probabilities where they are asked."""

    token: int
    logprob: LogProbs | None


class Drawn(msgspec.Struct, frozen=True, array_like=True):
    """What one lane drew: its tokens, and the log-probabilities of each if the lane's `Draw` asks
    for them. A last token of -1 says that the logits gave none (they are not finite, or every id is
    masked). `drafts` are what the next-token layer expects behind them: as many as were asked."""

    lane: int
    tokens: tuple[int, ...]
    logprobs: tuple[LogProbs, ...] = ()
    drafts: tuple[int, ...] = ()


class StepResult(msgspec.Struct, frozen=True, array_like=True):
    """`drawn` holds one entry for each last chunk, then for each row, in the step's order. A reply
    without a token fails, and the others go on. The seconds are the rank's own measurement of its
    two passes, and of the next-token layer behind them. `sent` are the bytes that ranks sent one
    another, by what: add, join, exchange, fetch, carry."""

    drawn: tuple[Drawn, ...]
    prompt_seconds: float
    window_seconds: float
    draft_seconds: float = 0.0
    sent: dict[str, int] = {}
