"""What lies behind kept states: the disk, as those see it who keep and resume them.

Owns the protocol, and the noun that both sides speak of. Knows no files; `disk/tier.py` is one
implementation, and a test's is another. A state is named by the chain of its prompt
(`prefix.chain`): the digests of its pages, which begin at `root`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Part:
    """One record of a state that is to be written. `page` is the number of its page, below 0 the
    fixed part; `bytes` what a rank copies for it."""

    number: int
    page: int
    depth: int
    key: bytes
    parent: bytes
    tokens: bytes
    bytes: int


@dataclass(frozen=True, slots=True)
class DiskStats:
    """A disk at this moment, and totals since the start."""

    states: int = 0
    """That can be found."""
    bytes: int = 0
    """Of the folder, the index and lists of names included."""
    limit: int = 0
    queue: int = 0
    """States on their way to the disk."""
    queue_bytes: int = 0
    """Copied and not written yet."""
    reading: int = 0
    """States on their way back."""
    learned_total: int = 0
    written_bytes_total: int = 0
    raw_bytes_total: int = 0
    """What the written bytes were before they were packed."""
    read_bytes_total: int = 0
    evicted_total: int = 0
    dropped_total: Mapping[str, int] = field(default_factory=dict)
    """States that were not written, by why."""
    lost_total: Mapping[str, int] = field(default_factory=dict)
    """Records that could not be used, by kind."""


class Draft(Protocol):
    """A state that the disk is about to write."""

    @property
    def parts(self) -> Sequence[Part]: ...

    @property
    def ready(self) -> bool:
        """There is room for it on the disk."""
        ...

    @property
    def over(self) -> bool:
        """It will not be written after all."""
        ...


class Disk(Protocol):
    """What is learned, as the rounds see it. No method waits."""

    @property
    def version(self) -> int:
        """Changes whenever `find` may answer otherwise."""
        ...

    def find(self, keys: Sequence[bytes], most: int) -> int:
        """Pages of the longest state on the disk that is a prefix of at most `most` pages of the
        prompt with the chain `keys`; 0 for none."""
        ...

    def fetch(self, keys: Sequence[bytes], root: bytes, tokens: bytes) -> int:
        """Let every rank read the state with the chain `keys`; the number of the job. The state
        stays on the disk until `sealed` or `forget`."""
        ...

    def arrived(self, job: int) -> int:
        """Records of a job that every rank has verified, its pages first; below 0 when one could
        not be read: the job is over, and what it read is forgotten."""
        ...

    def sealed(self, job: int) -> None:
        """All of a job is taken."""
        ...

    def forget(self, job: int) -> None:
        """Nobody wants a job's records any more. Safe for one that is over."""
        ...

    def draft(self, keys: Sequence[bytes], root: bytes, tokens: bytes) -> Draft | None:
        """What has to be written for the state with the chain `keys`; None when nothing has, or
        nothing can be."""
        ...

    def room(self) -> int:
        """Bytes that ranks may still copy before some are on the disk; any when nothing waits."""
        ...

    def sent(self, draft: Draft, parts: Sequence[Part]) -> None:
        """The next step lets the ranks copy these records."""
        ...

    def drop(self, draft: Draft) -> None:
        """The rest of a draft does not come: the state had to give way."""
        ...

    async def settled(self) -> None:
        """Return when no draft is on its way."""
        ...

    def stats(self) -> DiskStats: ...
