"""A state machine over a reply's text: reasoning until the closing tag, then content and calls.

Owns which kind of text a character is. Knows no tokens: a tag counts whether the model drew it as
one token or spelled it out. Invariant: text in equals text out but for the tags, nothing is
stripped, and only what may still become a tag is held back. Newlines beside a tag stay where the
model wrote them: a client gets, and can send back, what was written.

Reasoning that never closes stays reasoning. A reply whose prompt opened no think block is content
from its first character, and a tag in it is plain text. Where tools are offered, calls at the end
of reasoning that never closes are calls; a think block that does close only mentioned them.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamglm.text.calls import OPEN, Calls
from streamglm.text.pieces import Kind as Kind
from streamglm.text.pieces import Piece as Piece
from streamglm.text.stops import held_length
from streamglm.text.tools import Tool

CLOSE = "</think>"


class Markup:
    """Splits one reply. `thinking` says that the prompt ends inside an open think block; `tools`
    are those that the reply may call, and with `single` it ends with its first call."""

    def __init__(self, *, thinking: bool, tools: Sequence[Tool] = (), single: bool = False) -> None:
        self.thinking = thinking
        """True until the closing tag has been read."""
        self._tools = tuple(tools)
        self._single = single
        self._calls = Calls(tools, single=single) if tools else None
        self._held = ""
        self._mention = ""  # calls inside reasoning, as they were written
        self._mentioned: Calls | None = None
        self._mentioned_pieces: list[Piece] = []

    @property
    def calls(self) -> int:
        """Complete calls, none where the last one is not complete."""
        return self._calls.complete if self._calls and not self._calls.open else 0

    @property
    def over(self) -> bool:
        """The one call that is wanted is complete."""
        return self._calls is not None and self._calls.over

    def feed(self, text: str) -> list[Piece]:
        """The pieces that `text` settles, in order."""
        if not self.thinking:
            return self._visible(text)
        text = self._held + text
        reasoning, tag, content = text.partition(CLOSE)
        if tag:
            self._held, self.thinking = "", False
            mention, self._mention, self._mentioned = self._mention, "", None
            return [*_reasoning(mention + reasoning), *self._visible(content)]
        keep = held_length(text, (CLOSE,))
        self._held = text[len(text) - keep :]
        return _reasoning(self._thought(text[: len(text) - keep]))

    def finish(self, *, ended: bool = True) -> list[Piece]:
        """What was held back, when the reply ends before it became a tag. `ended`: by itself, and
        not because it was cut."""
        held, self._held = self._held, ""
        if not self.thinking:
            return self._calls.finish(ended=ended) if self._calls else []
        calls = self._mentioned
        if ended and calls and not held:
            pieces = [*self._mentioned_pieces, *calls.finish(ended=True)]
            if calls.complete and not calls.open:
                self._calls = calls
                return _first_call(pieces) if self._single else pieces
        mention, self._mention, self._mentioned = self._mention, "", None
        return _reasoning(mention + held)

    def _visible(self, text: str) -> list[Piece]:
        if self._calls:
            return self._calls.feed(text)
        return [Piece(Kind.CONTENT, text)] if text else []

    def _thought(self, text: str) -> str:
        """The part of `text` that is reasoning whatever follows; the rest may be a call."""
        if not self._tools:
            return text
        settled = ""
        while text:
            if self._mentioned is None:
                before, text = self._before_call(text)
                settled += before
            if self._mentioned is not None and text:
                self._mention += text
                found = self._mentioned.feed(text)
                self._mentioned_pieces += found
                text = ""
                if any(one.kind is Kind.CONTENT for one in found):  # no call after all
                    settled += self._mention[:1]
                    text, self._mention, self._mentioned = self._mention[1:], "", None
        return settled

    def _before_call(self, text: str) -> tuple[str, str]:
        """Reasoning up to a tag that may open a call, and from there on what is to be read."""
        at = text.find("<")
        while at >= 0 and not OPEN.startswith(text[at : at + len(OPEN)]):
            at = text.find("<", at + 1)
        if at < 0:
            return text, ""
        self._mentioned = Calls(self._tools, strict=True)
        self._mentioned_pieces = []
        return text[:at], text[at:]


def _first_call(pieces: list[Piece]) -> list[Piece]:
    begun = [at for at, piece in enumerate(pieces) if piece.kind is Kind.CALL]
    return pieces[: begun[1]] if len(begun) > 1 else pieces


def _reasoning(text: str) -> list[Piece]:
    return [Piece(Kind.REASONING, text)] if text else []
