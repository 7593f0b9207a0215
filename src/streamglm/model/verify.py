"""A verify window's end: what its rows draw, and which of them count.

Owns acceptance. Knows no layers. Why drafts change no token: the logits of a row are the bits that
a window of one row has, because everything before the row is the same; the token behind it is drawn
from them as it would be there, with the same parameters, history and noise; and the next row is
looked at only if its token is that one. So a lane's tokens are those of as many windows of one
row, by construction and not by a rule for acceptance, greedy or sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from streamglm.kernels.arguments import Array
from streamglm.step import Choice, Draw, Drawn


class Sampler(Protocol):
    """The draws of one lane; `sampling/lane.py` is one."""

    plain: Draw | None
    """The draw where a row, the seed and the position alone decide: no history, no bias, no mask
    and no log-probabilities. A device then draws by itself."""
    spelled: int | None
    """Ids from here on have no text; None: all have."""

    def choose(self, logits: Array, position: int) -> Choice:
        """The token for `position` from logits [V]; changes nothing."""
        ...

    def push(self, token: int) -> None:
        """`token` stands in the reply."""
        ...


MakeSampler = Callable[[Draw, bytes], Sampler]
"""A lane's draw, and the packed ids of its prompt where the draw asks for them."""


def accept(
    lane: int, sampler: Sampler, logits: Array, position: int, drafts: Sequence[int] = ()
) -> Drawn:
    """What the rows of one lane draw: logits [1 + drafts, V], the first row's token at `position`.

    One token a row, up to the first that is not the draft behind its row: drafts that come true,
    and the token that the last of them gives for free. A row without a usable logit ends it.
    """
    tokens: list[int] = []
    logprobs = []
    for place, row in enumerate(logits):
        token, logprob = sampler.choose(row, position + 1 + place)
        tokens.append(token)
        if token < 0:
            break
        sampler.push(token)
        if logprob is not None:
            logprobs.append(logprob)
        if place == len(drafts) or token != drafts[place]:
            break
    return Drawn(lane, tuple(tokens), tuple(logprobs))
