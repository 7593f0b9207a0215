"""A state machine over a reply's text: reasoning until the closing tag, then content.

Owns which kind of text a character is. Knows no tokens: a tag counts whether the model drew it as
one token or spelled it out. Invariant: text in equals text out but for the tags, nothing is
stripped, and only what may still become a tag is held back. Newlines beside a tag stay where the
model wrote them: a client gets, and can send back, what was written.

Reasoning that never closes stays reasoning. A reply whose prompt opened no think block is content
from its first character, and a tag in it is plain text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from streamglm.text.stops import held_length

CLOSE = "</think>"


class Kind(StrEnum):
    """What a stretch of a reply's text is."""

    REASONING = "reasoning"
    CONTENT = "content"
    CALL = "call"  # a tool call begins; the text is the function's name
    ARGUMENTS = "arguments"  # a fragment of that call's arguments: joined, one JSON object


class Piece(NamedTuple):
    """A stretch of text of one kind, never empty."""

    kind: Kind
    text: str


class Markup:
    """Splits one reply. `thinking` says that the prompt ends inside an open think block."""

    def __init__(self, *, thinking: bool) -> None:
        self.thinking = thinking
        """True until the closing tag has been read."""
        self._held = ""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that `text` settles, in order."""
        if not self.thinking:
            return [Piece(Kind.CONTENT, text)] if text else []
        text = self._held + text
        reasoning, tag, content = text.partition(CLOSE)
        if tag:
            self._held, self.thinking = "", False
            return _pieces(reasoning, content)
        keep = held_length(text, (CLOSE,))
        self._held = text[len(text) - keep :]
        return _pieces(text[: len(text) - keep], "")

    def finish(self) -> list[Piece]:
        """What was held back, when the reply ends before it became a tag."""
        held, self._held = self._held, ""
        return _pieces(held, "")


def _pieces(reasoning: str, content: str) -> list[Piece]:
    both = (Piece(Kind.REASONING, reasoning), Piece(Kind.CONTENT, content))
    return [piece for piece in both if piece.text]
