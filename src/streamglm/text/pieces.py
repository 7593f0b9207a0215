"""What a reply's text is cut into.

Owns the kinds of text and their order: reasoning, then content and calls, each call followed by its
arguments. Knows nothing of how they are told apart.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a stretch of a reply's text is."""

    REASONING = "reasoning"
    CONTENT = "content"
    CALL = "call"  # a call begins; the text is the function's name
    ARGUMENTS = "arguments"  # a fragment of that call's arguments: joined, one JSON object


class Piece(NamedTuple):
    """A stretch of text of one kind, never empty."""

    kind: Kind
    text: str
