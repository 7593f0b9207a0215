"""Identity: whose kept states may be whose.

Owns what must be equal before equal tokens mean an equal state. Knows nothing of how it was found
out. A prompt resumes only from states under its own key.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from hashlib import blake2b

import msgspec

from streamglm.pool.layout import RowFormat


@dataclass(frozen=True, slots=True)
class Identity:
    """What every state of one server has in common."""

    fingerprints: tuple[str, ...] = ()
    """Of the weights that each rank holds, in the order of the ranks: as many as the world."""
    rows: RowFormat = RowFormat.FP32
    page_rows: int = 0

    parts: tuple[tuple[str, str], ...] = ()
    """What outlives a server has more in common: (name, value), in the order of the names."""

    def key(self, salt: str = "") -> bytes:
        """16 bytes; another `salt` is another identity."""
        packed = msgspec.msgpack.encode((*astuple(self), salt))
        return blake2b(packed, digest_size=16).digest()

    def named(self) -> dict[str, str]:
        """All of it by name, for people who ask why two identities differ."""
        return {
            "weights": " ".join(one[:16] for one in self.fingerprints),
            "row format": self.rows.value,
            "rows of a page": str(self.page_rows),
            **dict(self.parts),
        }
