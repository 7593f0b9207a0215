"""The nouns of edge and core: what is asked, and what comes back.

Owns the values only. Knows no HTTP, no text (a request is token ids), no pages. A value is
built whole and never changed; whatever is learned later is another type.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from streamglm.errors import StreamglmError
from streamglm.step import Guide, LogProbs


class FinishReason(StrEnum):
    """Why a reply ended, in OpenAI's words."""

    STOP = "stop"  # an end token of the model, or a stop string of the request
    LENGTH = "length"  # `max_tokens` tokens, or the end of the window
    CANCELLED = "cancelled"  # the client left; nobody reads it


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is drawn from logits.

    `temperature` 0 is greedy: the highest logit, ties to the lower id. `top_k` 0, `top_p` 1
    and `min_p` 0 filter nothing. Noise is a function of (`seed`, absolute position) alone. Before
    all of these, and for greedy too, logits are edited: penalties, `bias`, `allowed`.
    `docs/numerics.md` has the formulas.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    """Of ids of the prompt and the reply; 1 is none."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    """Both of ids of the reply alone; 0 is none."""
    bias: tuple[tuple[int, float], ...] = ()
    """(id, what is added to its logit), ascending by id."""
    allowed: bytes = b""
    """Ids of which one is drawn, as `step.pack` writes them; empty: any."""
    logprobs: int | None = None
    """Alternatives to report with each token; None: no log-probabilities."""
    guide: Guide | None = None
    """A budget of reasoning and a grammar; None: neither."""


@dataclass(frozen=True, slots=True)
class Request:
    """One reply that is wanted.

    `prompt` holds at least one token id. `max_tokens` is at least 1 and
    `len(prompt) + max_tokens` fits the window: the edge has checked both. `stop_ids` ends the
    reply when drawn (the end token is part of the reply's ids); it is empty for `ignore_eos`.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    stop_ids: frozenset[int] = field(default_factory=frozenset)
    background: bool = False
    """It yields to every request that is not, and runs on what they leave."""
    draft: bool = True
    """False: it is decoded a row at a time, whatever the server drafts."""
    salt: str = ""
    """Prompts resume from those of the same salt alone."""
    learn: bool = True
    """Its prompt may be written to the disk, where the server has one."""


@dataclass(frozen=True, slots=True)
class Started:
    """The request has its lane and pages; its prompt is being computed from `cached_tokens` on,
    and what came before is restored."""

    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of the reply, in order: those of one round, or of several when nobody read."""

    ids: tuple[int, ...]
    logprobs: tuple[LogProbs, ...] = ()
    """One for each id, where the request asks for them; else none."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a reply that went well."""

    reason: FinishReason


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a reply that did not."""

    error: StreamglmError


Event = Started | Tokens | Finished | Failed


@dataclass(frozen=True, slots=True)
class Timing:
    """What a reply cost so far. Seconds; counts of draft tokens and of decode rounds."""

    queue_seconds: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
