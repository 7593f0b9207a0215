"""Ids of a reply in, pieces of text out: the one path that streamed and whole replies share.

Owns the order of the stages: ids, characters, reasoning, content or calls, stop strings. Knows no
HTTP and no engine. Invariant: pieces joined by kind, ids used and reasoning tokens are the same
however the ids were cut into rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamglm.text.detokenize import Detokenizer
from streamglm.text.markup import Kind, Markup, Piece
from streamglm.text.stops import StopStrings
from streamglm.text.tokenizer import Tokenizer
from streamglm.text.tools import Tool


class Assembler:
    """The text of one reply.

    `thinking`: the prompt ends inside an open think block. `stops` end the visible answer and are
    looked for there alone. `stop_ids` end the reply and say nothing. `tools` may be called, and
    with `single` the reply ends with its first call.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        thinking: bool = False,
        stops: Sequence[str] = (),
        stop_ids: frozenset[int] = frozenset(),
        tools: Sequence[Tool] = (),
        single: bool = False,
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._markup = Markup(thinking=thinking, tools=tools, single=single)
        self._stops = StopStrings(stops)
        self._stop_ids = stop_ids
        self._plain = not stops and not tools
        """Nothing is looked for in an answer: its text is that of its ids."""
        self.reasoning_tokens = 0
        """Ids used while the think block was open, the closing tag's among them."""

    @property
    def stopped(self) -> bool:
        """A stop string was completed, or the only call; ids from here on are not part of the
        reply."""
        return self._stops.matched or self._markup.over

    @property
    def calls(self) -> int:
        """Complete calls, none where the last one is not complete."""
        return self._markup.calls

    @property
    def stop_string(self) -> str | None:
        """The stop string that was completed."""
        return self._stops.found

    def feed(self, ids: Sequence[int]) -> tuple[list[Piece], int]:
        """The pieces that `ids` settle, at most one of a kind in a row, and how many of the ids
        belong to the reply: all, or those up to the one that completed a stop string."""
        pieces: list[Piece] = []
        if self._plain and not self._markup.thinking:
            text = "".join(
                [self._detokenizer.feed(one) for one in ids if one not in self._stop_ids]
            )
            _add(pieces, Kind.CONTENT, text)
            return pieces, len(ids)
        used = 0
        for token in ids:
            if self.stopped:
                break
            used += 1
            if token not in self._stop_ids:
                self._take(token, pieces)
        return pieces, used

    def finish(self, *, ended: bool = True) -> list[Piece]:
        """What was held back when the reply ends. `ended`: by itself, and not because it was
        cut."""
        pieces: list[Piece] = []
        self._split(self._detokenizer.finish(), pieces)
        self._visible(self._markup.finish(ended=ended), pieces)
        _add(pieces, Kind.CONTENT, self._stops.finish())
        return pieces

    def _take(self, token: int, pieces: list[Piece]) -> None:
        if self._markup.thinking:
            self.reasoning_tokens += 1
        self._split(self._detokenizer.feed(token), pieces)

    def _split(self, text: str, pieces: list[Piece]) -> None:
        if text:
            self._visible(self._markup.feed(text), pieces)

    def _visible(self, found: list[Piece], pieces: list[Piece]) -> None:
        for kind, text in found:
            if self._stops.matched:
                return
            if kind is Kind.CONTENT:
                text = self._stops.feed(text)
            elif kind is Kind.CALL:  # what was held back is no stop string any more
                _add(pieces, Kind.CONTENT, self._stops.finish())
            _add(pieces, kind, text)


def _add(pieces: list[Piece], kind: Kind, text: str) -> None:
    if text and pieces and pieces[-1].kind is kind is not Kind.CALL:
        pieces[-1] = Piece(kind, pieces[-1].text + text)
    elif text:
        pieces.append(Piece(kind, text))
