"""Bytes of a token, a page and a lane's fixed part, from the numbers of the caches.

Owns the one arithmetic that admission, the allocator and the start-up line share, so that they
cannot disagree. Knows no torch, no model beyond these numbers, no ranks. One unit everywhere:
tokens in, bytes out. A page holds, for every latent cache,

    rows  [0, page_rows)          latent rows            page_rows * latent_dim values
    pools [0, page_rows // pool)  pooled index keys      page_rows // pool * index_dim values

and a pool never straddles pages, because `page_rows` is a multiple of `pool`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The numbers of one rank's caches. Dimensions in values, `*_itemsize` in bytes."""

    caches: int
    """Latent caches: the DSA layers and the MTP layer."""
    latent_dim: int
    index_dim: int
    pool: int
    """Tokens of one pooled index key."""
    page_rows: int
    kda_layers: int
    kda_heads: int
    """Heads of a KDA layer that this rank holds."""
    kda_head_dim: int
    conv_width: int
    row_itemsize: int
    """Bytes of one value of a latent row or pooled key."""
    state_itemsize: int = 4
    """Bytes of one value of the KDA state."""

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in all caches, its share of a pooled key included."""
        row = self.latent_dim * self.row_itemsize
        key = self.index_dim * self.row_itemsize // self.pool
        return self.caches * (row + key)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page in all caches."""
        return self.page_rows * self.token_bytes

    @property
    def kda_state_bytes(self) -> int:
        """One copy of a lane's KDA state."""
        return self.kda_layers * self.kda_heads * self.kda_head_dim**2 * self.state_itemsize

    @property
    def conv_bytes(self) -> int:
        """A lane's convolution rows: the last `conv_width - 1` inputs of q, k and v."""
        width = 3 * self.kda_heads * self.kda_head_dim
        return self.kda_layers * (self.conv_width - 1) * width * self.row_itemsize

    @property
    def tail_bytes(self) -> int:
        """A lane's pools in progress: `pool - 1` keys and gates a cache."""
        return self.caches * (self.pool - 1) * 2 * self.index_dim * self.row_itemsize

    @property
    def fixed_bytes(self) -> int:
        """What a lane holds besides pages, whatever its length."""
        return self.kda_state_bytes + self.conv_bytes + self.tail_bytes


def pages_for(tokens: int, page_rows: int) -> int:
    """Pages that hold `tokens` rows."""
    return -(-tokens // page_rows)


def window_pages(context: int, page_rows: int) -> int:
    """Pages of a whole window of `context` tokens: the most that one lease can be."""
    return pages_for(context, page_rows)


def lease_pages(prompt: int, max_tokens: int, context: int, page_rows: int) -> int:
    """Pages that a request holds from its first row to its last, so that it never grows.

    `ceil((prompt + max_tokens) / page_rows)`, clipped to the window. All counts in tokens.
    """
    return min(pages_for(prompt + max_tokens, page_rows), window_pages(context, page_rows))
