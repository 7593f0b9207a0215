"""Prompt lookup: copies what followed the last tokens when the conversation had them before.

Owns one reply's conversation, and where each of its trigrams stood last. Knows no model. The table
is lossy (trigrams of one hash share a place, the later one has it) and every find is compared, so a
collision costs a proposal and proposes nothing wrong. Memory: 12 to 20 bytes a token of the lane.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamglm.drafts.drafter import Proposal, Source

GRAM = 3
"""Tokens that must agree."""
QUOTE = 8
"""Tokens from which on a match is a quotation."""
_LONGEST = 32
"""Tokens up to which a match is followed back."""
_FACTORS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_SHIFT = 12


class Lookup:
    """The conversation so far is `prompt`; at most `room` tokens follow."""

    __slots__ = ("_length", "_mask", "_table", "_tokens")

    def __init__(self, prompt: Sequence[int], room: int) -> None:
        size = len(prompt) + room
        self._tokens = np.zeros(size, np.int32)
        self._tokens[: len(prompt)] = prompt
        self._length = len(prompt)
        places = 1 << max(12, (2 * size - 1).bit_length())
        self._mask = places - 1
        self._table = np.zeros(places, np.int32)
        """Behind a trigram's last occurrence, the one at the end excepted; 0 for none."""
        self._index()

    def _index(self) -> None:
        """The prompt's trigrams, but for the one at its end."""
        line = self._tokens[: self._length].astype(np.int64)
        count = self._length - GRAM
        if count > 0:
            parts = (line[i : i + count] * factor for i, factor in enumerate(_FACTORS))
            places = (sum(parts) >> _SHIFT) & self._mask
            self._table[places] = np.arange(GRAM, GRAM + count)

    def propose(self, most: int) -> Proposal | None:
        """What followed the last occurrence of the last `GRAM` tokens; where that runs into the
        end, it goes on as it repeats."""
        end = self._length
        if end <= GRAM or most < 1:
            return None
        place = int(self._table[self._place(end)])
        matched = self._matched(place, end) if place else 0
        if matched < GRAM:
            return None
        found: list[int] = self._tokens[place : min(place + most, end)].tolist()
        for copy in range(most - len(found)):
            found.append(found[copy])
        return Proposal(tuple(found), Source.QUOTE if matched >= QUOTE else Source.HINT)

    def follow(self, tokens: Sequence[int], drafts: Sequence[int]) -> None:
        for token in tokens:
            if self._length >= GRAM:
                self._table[self._place(self._length)] = self._length
            self._tokens[self._length] = token
            self._length += 1

    def _place(self, end: int) -> int:
        """Of the trigram that ends before `end`."""
        grams: list[int] = self._tokens[end - GRAM : end].tolist()
        mixed = sum(token * factor for token, factor in zip(grams, _FACTORS, strict=True))
        return (mixed >> _SHIFT) & self._mask

    def _matched(self, place: int, end: int) -> int:
        """Tokens before `place` that are those before `end`, up to a limit."""
        most = min(_LONGEST, place)
        differ = self._tokens[place - most : place] != self._tokens[end - most : end]
        return int(np.argmax(differ[::-1])) if differ.any() else most
