"""What the edge knows of the model that is served.

Owns the value alone; start-up builds it from the checkpoint. Knows no weights and no ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamglm.edge.structured import Compiles
from streamglm.request import SamplingParams
from streamglm.text.template import ChatTemplate
from streamglm.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The one model of this server."""

    name: str
    context: int
    """Tokens of a stream's window, prompt and reply together."""
    vocab_size: int
    """Rows of the embedding: a prompt's ids are below it."""
    tokenizer: Tokenizer | None
    """None: the checkpoint ships none, and only prompts of ids are served."""
    template: ChatTemplate | None
    """None: no chat."""
    eos_ids: frozenset[int]
    """Ids that end a reply unless it ignores them."""
    defaults: SamplingParams
    """What a request is drawn with that names no temperature, top_p, top_k, min_p or
    repetition_penalty; nothing else of it is used."""
    created: int
    """Unix seconds, for `/v1/models`."""
    fingerprint: str | None = None
    """`system_fingerprint` of replies, where start-up knows one."""
    grammars: Compiles | None = None
    """None: the grammar library is not there, and no reply is constrained."""
