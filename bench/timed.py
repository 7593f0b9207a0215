"""A timed run and who makes it: the shapes that `bench decode` and its contenders share.

Owns the values only; imports no torch. A run gives the hash of each reply's token ids, so that
speed is only compared between equal replies.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Timed:
    """One run. Seconds are counted from its start; `hashes` has one entry a prompt, in order."""

    hashes: tuple[str, ...]
    first_seconds: float
    """When every prompt had its first token."""
    seconds: float
    """When every prompt had its last token."""


class Contender(Protocol):
    """A way of generating; `threads` is how many compute threads it uses."""

    name: str
    threads: int

    def generate(self, prompts: Sequence[Prompt], new: int) -> Timed:
        """`new` tokens after each of `prompts`, side by side."""
        ...


def token_sha(ids: Sequence[int]) -> str:
    """SHA-256 over ids as little-endian uint32: the server's `token_sha`."""
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()
