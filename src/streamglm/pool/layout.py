"""Bytes of a token, a page, a lane's fixed part and a kept state, from the numbers of the caches.

Owns the one arithmetic that the plan, the allocator, the start-up line and `streamglm plan`
share, so that they cannot disagree. Knows no torch, no model beyond these numbers, no ranks. One
unit everywhere: tokens in, bytes out. A page holds, for every latent cache,

    rows    [0, page_rows)          latent rows            page_rows * latent_dim values
    scales  [0, page_rows)          fp8 alone: one float32 a row, behind the page's rows
    pools   [0, page_rows // pool)  pooled index keys      page_rows // pool * index_dim values

and a pool never straddles pages, because `page_rows` is a multiple of `pool`. A lane holds pages
and a fixed part; a kept state holds the pages up to its mark and, of the fixed part, what the
next row reads: at a page boundary no pool is in progress and no window is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SCALE_BYTES = 4
"""The float32 scale of an fp8 row."""


class RowFormat(StrEnum):
    """How the pages hold latent rows and pooled keys."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"
    """512 e4m3 values and a float32 scale a latent row; pooled keys stay bf16."""

    @property
    def key_itemsize(self) -> int:
        """Bytes of one value of a pooled key."""
        return 4 if self is RowFormat.FP32 else 2

    @property
    def latent_itemsize(self) -> int:
        """Bytes of one value of a latent row."""
        return 1 if self is RowFormat.FP8 else self.key_itemsize

    def latent_bytes(self, dim: int) -> int:
        """Bytes of one latent row of `dim` values."""
        return dim + SCALE_BYTES if self is RowFormat.FP8 else dim * self.key_itemsize


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
    """Heads of a KDA layer that the rank with the largest share holds."""
    kda_head_dim: int
    conv_width: int
    rows: RowFormat
    hidden: int
    """Values of the MTP layer's pending hidden row; 0 where nothing is drafted by one."""
    verify_rows: int
    """Rows of one lane's verify window at most; 0 without drafts."""
    value_itemsize: int
    """Bytes of one activation: convolution rows, tails, replay rows, the pending hidden."""
    state_itemsize: int = 4
    """Bytes of one value of the KDA state."""

    @property
    def pooled_token_bytes(self) -> int:
        """One token's share of the pooled keys, in all caches: every rank holds them."""
        return self.caches * self.index_dim * self.rows.key_itemsize // self.pool

    @property
    def latent_token_bytes(self) -> int:
        """One token's latent rows in all caches."""
        return self.caches * self.rows.latent_bytes(self.latent_dim)

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in all caches, its share of a pooled key included."""
        return self.latent_token_bytes + self.pooled_token_bytes

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
        return self.kda_layers * (self.conv_width - 1) * width * self.value_itemsize

    @property
    def hidden_bytes(self) -> int:
        """The hidden of the last row, which the MTP row of the next token embeds."""
        return self.hidden * self.value_itemsize

    @property
    def tail_rows(self) -> int:
        """Rows of a tail: of the pool in progress, `pool - 1`, and of a verify window."""
        return self.pool - 1 + self.verify_rows

    @property
    def tail_bytes(self) -> int:
        """Keys and gates of a lane's tails."""
        return self.caches * self.tail_rows * 2 * self.index_dim * self.value_itemsize

    @property
    def replay_width(self) -> int:
        """Values of a replay row: q, k, v and beta of each head, and the two low-rank gates."""
        return (3 * self.kda_head_dim + 1) * self.kda_heads + 2 * self.kda_head_dim

    @property
    def replay_bytes(self) -> int:
        """Projections of a verify window's rows, from which the accepted ones are replayed into
        the KDA state."""
        return self.kda_layers * self.verify_rows * self.replay_width * self.value_itemsize

    @property
    def owed_bytes(self) -> int:
        """Hiddens of a lane's last rows that the MTP layer has not followed yet: it takes a verify
        window of them at once."""
        return self.verify_rows * self.hidden_bytes

    @property
    def slot_bytes(self) -> int:
        """The fixed part of a kept state: one KDA state, convolution rows, the pending hidden."""
        return self.kda_state_bytes + self.conv_bytes + self.hidden_bytes

    @property
    def fixed_bytes(self) -> int:
        """What a lane holds besides pages, whatever its length."""
        return self.slot_bytes + self.tail_bytes + self.replay_bytes + self.owed_bytes

    def kept_bytes(self, at: int) -> int:
        """A kept state that holds its own copy of the rows [0, at): its bytes follow `at`."""
        return self.slot_bytes + at * self.token_bytes

    def away_bytes(self, at: int) -> int:
        """The same on a rank that does not own the latent rows: it copies pooled keys alone."""
        return self.slot_bytes + at * self.pooled_token_bytes


def pages_for(tokens: int, page_rows: int) -> int:
    """Pages that hold `tokens` rows."""
    return -(-tokens // page_rows)


def window_pages(context: int, page_rows: int, slack: int = 0) -> int:
    """Pages of a whole window of `context` tokens: the most that one lease can be.

    `slack` is one verify window: drafts are written past the committed end.
    """
    return pages_for(context + slack, page_rows)


def lease_pages(prompt: int, max_tokens: int, context: int, page_rows: int, slack: int = 0) -> int:
    """Pages that a request holds from its first row to its last, so that it never grows.

    `ceil((prompt + max_tokens + slack) / page_rows)`, clipped to the window. Counts in tokens.
    """
    need = pages_for(prompt + max_tokens + slack, page_rows)
    return min(need, window_pages(context, page_rows, slack))


def head_shares(heads: int, world: int) -> tuple[int, ...]:
    """Heads of each rank, the first ranks taking what is left over: 64 over 3 are 22, 21, 21."""
    return tuple(heads // world + (rank < heads % world) for rank in range(world))


def head_share(heads: int, world: int) -> int:
    """Heads of the rank with the most. Plans count these."""
    return -(-heads // world)
