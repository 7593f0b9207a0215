"""What each token id says, and which ids may be drawn while a reply thinks.

Owns the bytes of every id and the ids that end a reply. Knows no grammar library and no tokenizer.
Shared by the lanes of a rank; it grows by masks that are made once.
"""

from __future__ import annotations

from collections.abc import Callable

from streamglm.step import pack

CLOSE = b"</think>"


class Vocabulary:
    """`said` are the bytes of each id, empty for one that adds nothing to a text; `stops` the ids
    that end a reply."""

    def __init__(self, said: list[bytes], stops: tuple[int, ...]) -> None:
        self.said = said
        self.stops = stops
        self._masks: dict[bytes, bytes] = {}

    @classmethod
    def of(
        cls, said: Callable[[int], bytes], vocab_size: int, stops: tuple[int, ...]
    ) -> Vocabulary:
        """Ask for every id below `vocab_size`."""
        return cls([said(token) for token in range(vocab_size)], stops)

    def in_thought(self, begun: bytes) -> bytes:
        """Packed ids that may follow a thought which ends with `begun`, a beginning of the closing
        tag: none that ends the reply, and none in which text follows the tag, so that what is
        constrained begins with an id of its own."""
        mask = self._masks.get(begun)
        if mask is None:
            stops = frozenset(self.stops)
            allowed = (
                token
                for token, said in enumerate(self.said)
                if token not in stops and not _passes(begun + said)
            )
            mask = self._masks[begun] = pack(allowed)
        return mask


def begun_tag(text: bytes) -> bytes:
    """The longest end of `text` that is a proper beginning of the closing tag."""
    for size in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if CLOSE.startswith(text[-size:]):
            return text[-size:]
    return b""


def _passes(text: bytes) -> bool:
    at = text.find(CLOSE)
    return 0 <= at < len(text) - len(CLOSE)
