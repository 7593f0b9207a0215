"""Drafted == plain: windows with drafts give the tokens, logits and states of windows of one row.

Owns which drafts are tried: the next-token layer's own, right ones, wrong ones, and wrong ones
behind right ones. Knows ranks only as whoever runs a step; no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamglm.commands.check_cases import (
    Bed,
    Case,
    Comparison,
)
from streamglm.commands.check_edges import ROOM
from streamglm.commands.check_rank import Answer
from streamglm.commands.check_streams import Streams
from streamglm.step import Drawn

TOKENS = 24
"""Of each reply."""
AHEAD = 3
"""Drafts of a row, where a window has room for as many."""


@dataclass(slots=True)
class _Reply:
    """What a stream has drawn so far: tokens, the digest of the logits behind each, and of what it
    carried after so many."""

    tokens: list[int]
    bits: list[int]
    carried: dict[int, int]

    def take(self, drawn: Drawn) -> None:
        self.tokens += drawn.tokens
        self.bits += [one.top[0][0] for one in drawn.logprobs]
        self.carried[len(self.tokens)] = drawn.logprobs[-1].top[1][0]


def _drafts(kind: str, known: Sequence[int], at: int, own: Sequence[int], vocab: int) -> list[int]:
    """What is guessed behind token `at` of a reply whose tokens are `known`."""
    right = list(known[at + 1 : at + 1 + AHEAD])
    wrong = [(token + 1) % vocab for token in right]
    return {
        "its own drafts": list(own),
        "right drafts": right,
        "wrong drafts": wrong,
        "a wrong draft behind a right one": right[:1] + wrong[1:],
    }[kind]


async def _reply(
    streams: Streams, bed: Bed, prompt: Sequence[int], kind: str = "", known: Sequence[int] = ()
) -> _Reply:
    """A reply alone, in windows of one row or with drafts of a kind."""
    ahead = min(AHEAD, bed.spec.rows.verify - 1) if kind == "its own drafts" else 0
    streams.begin(0, prompt, room=ROOM, resume=False, seed=Answer.TOKENS, drafts=bool(ahead))
    drawn, found = await streams.draw(0, ahead=ahead), _Reply([], [], {})
    found.take(drawn)
    while len(found.tokens) < TOKENS:
        guessed: list[int] = []
        if kind:
            vocab = bed.spec.vocab_size
            guessed = _drafts(kind, known, len(found.tokens) - 1, drawn.drafts, vocab)
        most = min(bed.spec.rows.verify, TOKENS - len(found.tokens)) - 1
        drawn = await streams.verify(0, found.tokens[-1], guessed[:most], ahead=ahead)
        found.take(drawn)
    streams.end(0)
    return found


async def drafted_equals_plain(bed: Bed, compare: Comparison) -> None:
    """Each kind of drafts at prompts around every boundary: tokens, logits of every row that
    counts, and what the stream carries after every window."""
    streams = bed.streams(seed=12)
    kinds = ["right drafts", "wrong drafts", "a wrong draft behind a right one"]
    kinds += ["its own drafts"] if bed.spec.mtp_layers else []
    for length in bed.edges.lengths[::3]:
        prompt = bed.tokens(12, length)
        plain = await _reply(streams, bed, prompt)
        for kind in kinds:
            found = await _reply(streams, bed, prompt, kind, plain.tokens)
            where = f"{length} tokens, {kind}"
            compare.same(f"{where}: tokens", found.tokens, plain.tokens)
            compare.same(f"{where}: logits", found.bits, plain.bits)
            carried = {at: plain.carried[at] for at in found.carried}
            compare.same(f"{where}: states", found.carried, carried)
    await streams.close()


DRAFTED: tuple[str, Case] = ("drafted == plain", drafted_equals_plain)
"""Of ranks that were started with drafts."""
