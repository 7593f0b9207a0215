"""Stop strings that may be spread over tokens.

Owns the text that may still become a stop string. Knows no tokens and no reasoning: it is fed the
visible answer alone. Invariant: the result depends on the text, not on how it was cut. The stop
string that is completed first wins; of two completed by the same character, the longer one.
Held-back text is never longer than the longest partial match.
"""

from __future__ import annotations

from collections.abc import Sequence


def held_length(text: str, words: Sequence[str]) -> int:
    """Characters at the end of `text` that begin one of `words`, of which none is in `text`:
    the longest end that is a proper prefix of a word."""
    longest = 0
    for word in words:
        # ends longer than what another word already holds back, the longest first
        at = text.find(word[0], max(0, len(text) - len(word) + 1))
        while 0 <= at < len(text) - longest:
            if word.startswith(text[at:]):
                longest = len(text) - at
                break
            at = text.find(word[0], at + 1)
    return longest


class StopStrings:
    """Passes text on up to the first stop string, which itself is dropped."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found: str | None = None
        """The stop string that was completed."""

    @property
    def matched(self) -> bool:
        """A stop string was completed; nothing more is passed on."""
        return self.found is not None

    def feed(self, text: str) -> str:
        """The text that is settled now."""
        if not self._stops or self.matched:
            return "" if self.matched else text
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            end, at = min(found)
            self.found = text[at:end]
            return text[:at]
        keep = held_length(text, self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, when the reply ends before it became a stop string."""
        held, self._held = self._held, ""
        return "" if self.matched else held
