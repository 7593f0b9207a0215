"""What is known of one request from its first look at kept states to its end.

Owns the value, which `keeping.py` alone changes, and the places of turns in a prompt.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from streamglm.core.lane import Lane
from streamglm.pool.states import Look


@dataclass(slots=True)
class Asked:
    """What is known of one request."""

    identity: bytes
    prompt: array[int]
    """Packed once: its pages are compared as bytes."""
    digests: tuple[bytes, ...]
    """Of the prompt's whole pages."""
    look: Look | None = None
    version: int = -1
    """The store's at that look."""
    until: float | None = None
    """When it has waited long enough; None before its first wait."""
    source: Lane | None = None
    """Who computes the prefix that it waits for."""
    source_at: int = 0
    short: tuple[int, int, int] | None = None
    """The moment at which there were too few pages for it."""
    borrowed: int | None = None
    root: bytes = b""
    """What the digests begin with."""
    stored: int = 0
    """Pages of a state on the disk that it is to read."""
    reads: int = 0
    """States that it was to read and could not."""
    lessons: set[int] = field(default_factory=set)
    """The marks whose states are written to the disk."""
    marks: dict[int, int] = field(default_factory=dict)
    """The states it is to fill, by their marks."""
    reach: int = 0
    """Rows of its prompt that are computed, or asked of the ranks."""


def places(prompt: Sequence[int], ids: Iterable[int]) -> Iterator[int]:
    """Where `ids` stand in a prompt, each in ascending order."""
    for token in ids:
        place = -1
        try:
            while True:
                place = prompt.index(token, place + 1)
                yield place
        except ValueError:
            continue
