"""Pieces of a reply, joined into its parts: a stretch of reasoning or of answer, or one tool call.

Owns where one part ends and the next begins, which is the same streamed and whole. Knows no JSON
and no protocol; Anthropic calls a part a block, OpenAI's Responses call it an item. Invariant: the
parts depend on the pieces' text, not on how it was cut.
"""

from __future__ import annotations

import json

from streamglm.text.pieces import Kind, Piece


class Part:
    """One part as it grows. `kind` is never `ARGUMENTS`: those are the text of their call."""

    def __init__(self, kind: Kind, name: str = "") -> None:
        self.kind = kind
        self.name = name
        """Of a call's function; empty for text."""
        self._texts: list[str] = []

    def add(self, text: str) -> None:
        self._texts.append(text)

    @property
    def text(self) -> str:
        """The text; of a call, the JSON of its arguments as far as it was written."""
        return "".join(self._texts)


class Parts:
    """The parts of one reply, fed its pieces in order."""

    def __init__(self) -> None:
        self.all: list[Part] = []

    def add(self, piece: Piece) -> bool:
        """Whether `piece` began a new part. An empty piece of text begins none."""
        if piece.kind is Kind.CALL:
            self.all.append(Part(Kind.CALL, piece.text))
            return True
        kind = Kind.CALL if piece.kind is Kind.ARGUMENTS else piece.kind
        begins = bool(piece.text) and not (self.all and self.all[-1].kind is kind)
        if begins:
            self.all.append(Part(kind))
        if piece.text:
            self.all[-1].add(piece.text)
        return begins


def is_whole(call: Part) -> bool:
    """Whether the arguments of a call were written to their end."""
    try:
        return isinstance(json.loads(call.text), dict)
    except (ValueError, RecursionError):
        return False
