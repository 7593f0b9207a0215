"""Finding kept states: by the tokens of a prompt, and when there is none, the reason.

Owns the tree that the states hang in, and the memory of those that are gone. Knows no pages, no
bytes and no tiers' sizes; it changes no state. Invariant: a published state is found by exactly
the prompts that begin with its tokens, go on after them, and have its identity.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamglm.pool import reasons
from streamglm.pool.marks import Seen
from streamglm.pool.prefix import Node, PrefixTree, chain
from streamglm.pool.states import Look, Miss, State


class Finder:
    """The states of one store by their tokens; `ghosts` of those that went are remembered."""

    def __init__(self, page_rows: int, ghosts: int) -> None:
        self._page_rows = page_rows
        self._tree: PrefixTree[State] = PrefixTree(page_rows)
        self._ghosts = Seen(ghosts)

    def look(self, prompt: Sequence[int], identity: bytes, *, off: bool) -> Look:
        """The longest published state that is a strict prefix of `prompt`, and the longest pending
        one beyond it. `off`: nothing is ever kept."""
        limit = (len(prompt) - 1) // self._page_rows
        found: State | None = None
        pending: State | None = None
        for node in self._tree.walk(identity, prompt):
            if node.value is not None and node.depth <= limit:
                if node.value.published:
                    found = node.value
                else:
                    pending = node.value
        at = 0 if found is None else found.at
        if pending is not None and pending.at <= at:
            pending = None
        miss = self._why(prompt, identity, limit, off) if found is None else None
        return Look(
            state=None if found is None else found.id,
            at=at,
            pending_at=0 if pending is None else pending.at,
            pending_lane=None if pending is None else pending.lane,
            miss=miss,
            line=self._line(prompt, identity, found, miss),
        )

    def found(self, prompt: Sequence[int], at: int, identity: bytes) -> int | None:
        """The published state of the first `at` tokens of `prompt`."""
        tokens = prompt[:at]
        for node in self._tree.walk(identity, tokens):
            if node.depth * self._page_rows == at and node.value is not None:
                return node.value.id if node.value.published else None
        return None

    def place(self, prompt: Sequence[int], identity: bytes, pages: int) -> Node[State]:
        """The node of the first `pages` pages. It must be given a state, or forgotten."""
        return self._tree.place(identity, prompt[: pages * self._page_rows], pages)

    def forget(self, node: Node[State]) -> None:
        """The state at `node` is gone, or none came."""
        self._tree.prune(node)

    def remember(self, node: Node[State]) -> None:
        """The state at `node` goes to make room: a prompt that misses it is told so."""
        self._ghosts.add((node.digest,))

    def check(self) -> None:
        """Prove the tree's invariant; AssertionError says what broke."""
        self._tree.check()

    def _why(self, prompt: Sequence[int], identity: bytes, limit: int, off: bool) -> Miss:
        if off:
            return Miss.OFF
        if limit < 1:
            return Miss.SHORT
        marks = prompt[: limit * self._page_rows]
        digests = chain(identity, marks, self._page_rows) if self._ghosts else ()
        if any(digest in self._ghosts for digest in digests):
            return Miss.EVICTED
        if not self._tree:
            return Miss.EMPTY
        if any(next(self._tree.walk(other, prompt), None) for other in self._tree.others(identity)):
            return Miss.IDENTITY
        return Miss.DIFFERS

    def _line(
        self, prompt: Sequence[int], identity: bytes, found: State | None, miss: Miss | None
    ) -> str:
        length, shared = len(prompt), self._tree.shared(identity, prompt)
        if found is not None:
            return reasons.resumed(found.tier, found.at, length, shared, self._page_rows)
        assert miss is not None, "nothing was found, and nothing says why"
        return reasons.computed(miss, length, shared, self._page_rows)
