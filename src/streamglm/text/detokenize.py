"""Ids to text, one id at a time.

Owns the bytes of a character that is not whole yet. Knows no markers and no stop strings.
Invariant: every text handed out is whole UTF-8, and the texts joined are the same however the ids
were cut into rounds. History is never decoded again: an id costs one table look-up.
"""

from __future__ import annotations

import codecs

from streamglm.text.tokenizer import Tokenizer


class Detokenizer:
    """The text of one reply. Special tokens say nothing; bytes that can no longer become a
    character are U+FFFD at once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._said = tokenizer.said
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, token: int) -> str:
        """The characters that `token` completes, often none."""
        return self._decode(self._said(token))

    def finish(self) -> str:
        """One U+FFFD when the reply was cut inside a character, else nothing."""
        return self._decode(b"", True)
