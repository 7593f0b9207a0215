"""The way between the disk tier and the ranks: its wishes as messages, their words as its events.

Owns the translation alone. Knows no index and no records.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamglm.disk.tier import DiskTier
from streamglm.ranks.client import RankClient
from streamglm.ranks.wire import Fetch, Fetched, Forget, Learn, Wrote


class RankCourier:
    """A `Courier` of `disk/reads.py`, over ranks that are ready."""

    def __init__(self, ranks: RankClient) -> None:
        self._ranks = ranks

    def learn(self, folder: Path, temporary: Path, identity: bytes) -> None:
        """The ranks know where records lie, before any is written or read."""
        self._ranks.tell(Learn(str(folder), str(temporary), identity))

    def fetch(self, job: int, root: bytes, keys: Sequence[bytes], tokens: bytes) -> None:
        self._ranks.tell(Fetch(job, root, tuple(keys), tokens))

    def forget(self, job: int) -> None:
        self._ranks.tell(Forget(job))

    def bring_to(self, tier: DiskTier) -> None:
        """What ranks say of records from now on is for `tier`."""

        def heard(rank: int, message: Wrote | Fetched) -> None:
            match message:
                case Wrote(number, size, raw, error):
                    tier.wrote(number, size, raw, error)
                case Fetched(job, count, size, lost, error):
                    tier.fetched(rank, job, count, size, lost, error)

        self._ranks.hear(heard)
