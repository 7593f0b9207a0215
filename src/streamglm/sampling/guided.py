"""A lane's sampler whose reply is guided: thought within a budget, then text within a grammar.

Owns where the reply stands between the two. Knows no steps and no other lanes. Like the sampler
inside it, it moves by `push` alone, one token at a time, so that a verify window draws what single
rows draw. Invariant: a reply with a grammar does not end while it thinks, and its grammar begins
right behind the closing tag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from streamglm.kernels.arguments import Array
from streamglm.sampling.lane import LaneSampler
from streamglm.sampling.vocabulary import CLOSE, Vocabulary, begun_tag
from streamglm.step import Choice, Draw, Guide, pack


class Follows(Protocol):
    """How far a reply has come in a grammar; `sampling/grammar.py` has the one."""

    def mask(self) -> bytes:
        """Packed ids of which the next is one; empty: any."""
        ...

    def push(self, token: int) -> None:
        """`token` stands in the reply."""
        ...


class GuidedSampler:
    """`matcher` is there exactly when `guide` has a grammar."""

    def __init__(
        self, inner: LaneSampler, guide: Guide, vocabulary: Vocabulary, matcher: Follows | None
    ) -> None:
        self._inner = inner
        self.plain: Draw | None = None
        self.spelled = inner.spelled
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._thinking = guide.thinking
        self._left = guide.budget
        self._close = guide.close
        self._forced: tuple[int, ...] = ()
        self._tail = b""
        self._force()

    def choose(self, logits: Array, position: int) -> Choice:
        """The token for `position` from logits [V]; changes nothing."""
        return self._inner.choose(logits, position, self._mask())

    def push(self, token: int) -> None:
        """`token` stands in the reply."""
        self._inner.push(token)
        if self._thinking:
            self._think(token)
        elif self._matcher is not None:
            self._matcher.push(token)

    def _mask(self) -> bytes:
        if self._forced:
            return pack(self._forced[:1])
        if self._matcher is None:
            return b""
        if self._thinking:
            return self._vocabulary.in_thought(begun_tag(self._tail))
        return self._matcher.mask()

    def _think(self, token: int) -> None:
        said = self._tail + self._vocabulary.said[token]
        if CLOSE in said:
            self._thinking, self._forced = False, ()
            return
        self._tail = said[-len(CLOSE) :]
        self._forced = self._forced[1:]
        if self._left is not None and self._left > 0:
            self._left -= 1
            self._force()

    def _force(self) -> None:
        """The budget is used up: the closing tag follows."""
        if self._thinking and self._left == 0:
            self._forced = self._close


class GuidedSamplers:
    """Makes the samplers of a rank's lanes. `vocabulary` and `grammars` are made when a draw first
    needs them, since most servers are never asked for either."""

    def __init__(
        self,
        *,
        spelled: int | None,
        vocabulary: Callable[[tuple[int, ...]], Vocabulary],
        grammars: Callable[[Vocabulary], Callable[[bytes], Follows]],
    ) -> None:
        self._spelled = spelled
        self._make_vocabulary = vocabulary
        self._make_grammars = grammars
        self._vocabulary: Vocabulary | None = None
        self._matcher: Callable[[bytes], Follows] | None = None

    def __call__(self, draw: Draw, seen: bytes) -> LaneSampler | GuidedSampler:
        """The sampler of a lane that begins."""
        inner = LaneSampler(draw, seen, spelled=self._spelled)
        guide = draw.guide
        if guide is None:
            return inner
        vocabulary = self._known(guide.stops)
        matcher = self._matchers(vocabulary)(guide.grammar) if guide.grammar else None
        return GuidedSampler(inner, guide, vocabulary, matcher)

    def warm(self, stops: tuple[int, ...]) -> None:
        """Make now what the first guided reply would wait for, and all others with it."""
        self._matchers(self._known(stops))

    def _known(self, stops: tuple[int, ...]) -> Vocabulary:
        if self._vocabulary is None:
            self._vocabulary = self._make_vocabulary(stops)
        return self._vocabulary

    def _matchers(self, vocabulary: Vocabulary) -> Callable[[bytes], Follows]:
        if self._matcher is None:
            self._matcher = self._make_grammars(vocabulary)
        return self._matcher
