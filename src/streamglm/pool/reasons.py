"""Why a prompt was reused as far as it was, in one line for the log.

Owns the words. Knows numbers of tokens only.
"""

from __future__ import annotations

from streamglm.pool.states import Miss, Tier


def resumed(tier: Tier, at: int, length: int, shared: int, page_rows: int) -> str:
    """A hit at `at`; `shared` tokens are the same as in some kept prompt, mark or not."""
    line = f"resumed {at:,} of {length:,} tokens from a {tier} state"
    if at + page_rows < shared < length:
        return f"{line}; a kept prompt goes on alike to {shared:,}, with no mark between"
    return line


def computed(miss: Miss, length: int, shared: int, page_rows: int) -> str:
    """A miss; `shared` tokens are the same as in some kept prompt."""
    reasons = {
        Miss.OFF: "no prompt states are kept here",
        Miss.SHORT: f"it ends before the first mark, at {page_rows:,} tokens",
        Miss.EMPTY: "nothing is kept yet",
        Miss.DIFFERS: f"no mark lies in the {shared:,} tokens that it shares with a kept prompt",
        Miss.IDENTITY: "the same tokens are kept for another model, cache or salt",
        Miss.EVICTED: "its state was evicted to make room",
    }
    return f"computed all {length:,} tokens: {reasons[miss]}"
