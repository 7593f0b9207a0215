"""Compiled grammars on a rank, and how far a reply has come in one.

Owns all that is known of the grammar library here; the module is imported where a grammar is first
needed, since the library is an extra. Invariant: `mask` changes nothing, and `push` follows one
token; a draw within the mask is always one that `push` can follow.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import numpy as np
import xgrammar

from streamglm.sampling.vocabulary import Vocabulary

NOTHING = b"\0"
"""A mask that allows no id."""
MOST_KEPT = 32


def tokenizer_info(vocabulary: Vocabulary) -> xgrammar.TokenizerInfo:
    """The library's view of a vocabulary. A grammar fits this alone: both sides make it so."""
    return xgrammar.TokenizerInfo(
        vocabulary.said,
        xgrammar.VocabType.RAW,
        vocab_size=len(vocabulary.said),
        stop_token_ids=list(vocabulary.stops),
    )


class Grammars:
    """Grammars of one vocabulary as they arrive, the latest kept: replies often share one."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._info = tokenizer_info(vocabulary)
        self._kept: OrderedDict[bytes, xgrammar.CompiledGrammar] = OrderedDict()

    def matcher(self, grammar: bytes) -> Matcher:
        """A matcher at the beginning of `grammar`, as the compiling process wrote it."""
        key = hashlib.sha256(grammar).digest()
        compiled = self._kept.pop(key, None)
        if compiled is None:
            compiled = xgrammar.CompiledGrammar.deserialize_json(grammar.decode(), self._info)
        self._kept[key] = compiled
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return Matcher(compiled, self._info.vocab_size)


class Matcher:
    """How far one reply has come."""

    def __init__(self, compiled: xgrammar.CompiledGrammar, vocab_size: int) -> None:
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._bits = np.zeros((1, -(-vocab_size // 32)), np.int32)
        self._lost = False

    def mask(self) -> bytes:
        """Packed ids of which the next is one; empty: any."""
        if self._lost:
            return NOTHING
        if self._matcher.is_terminated():
            return b""
        needed = self._matcher.fill_next_token_bitmask(self._bits)
        return self._bits.astype("<i4", copy=False).tobytes() if needed else b""

    def push(self, token: int) -> None:
        """`token` stands in the reply."""
        if not self._matcher.is_terminated():
            self._lost = not self._matcher.accept_token(token)
