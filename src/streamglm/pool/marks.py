"""Marks: at which page boundaries of a prompt its state is worth keeping.

Owns the choice, as pure functions of positions, and a bounded memory of prefixes that were seen.
Knows no states and no pages of the pool. A mark lies at a whole number of pages and strictly
before the prompt's end, so that at least one token is left to compute. With rows = `page_rows`:

    last      the last boundary before the end: the next turn resumes here
    turn      the boundary at or before the last user turn: a regenerated or edited turn resumes
    system    the boundary at or before the first user turn: other conversations resume
    shared    the longest prefix that an earlier prompt had too: whoever comes third resumes
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


def last_mark(prompt: int, page_rows: int) -> int:
    """The last boundary strictly before the end of a prompt of `prompt` tokens; 0 for none."""
    return (prompt - 1) // page_rows * page_rows


def marks(
    prompt: int,
    turns: Sequence[int],
    page_rows: int,
    *,
    start: int = 0,
    shared: int = 0,
    most: int = 4,
) -> tuple[int, ...]:
    """Where to keep, in tokens, ascending: at most `most` marks, the more useful first to stay.

    `turns`: token positions at which user turns begin, ascending. `start`: the row that the
    prompt pass begins at; a mark at or before it cannot be taken any more. `shared`: tokens that
    an earlier prompt had too.
    """
    last = last_mark(prompt, page_rows)
    wanted = [last]
    if turns:
        wanted += [turns[-1], turns[0]]
    wanted.append(shared)
    found: dict[int, None] = {}
    for position in wanted:
        mark = min(position // page_rows * page_rows, last)
        if mark > start:
            found.setdefault(mark)
    return tuple(sorted(list(found)[:most]))


class Seen:
    """Prefixes of the last prompts by their digests, at most `most` of them; the oldest go
    first."""

    __slots__ = ("_digests", "_most")

    def __init__(self, most: int = 65_536) -> None:
        self._most = most
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._digests)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def shared(self, digests: Sequence[bytes]) -> int:
        """Leading pages of a prompt, by its `prefix.chain`, that an earlier prompt had too."""
        pages = 0
        for pages, digest in enumerate(digests):
            if digest not in self._digests:
                return pages
        return pages + 1 if digests else 0

    def add(self, digests: Sequence[bytes]) -> None:
        """Remember a prompt. Its shortest prefix is the youngest, so that what many prompts
        begin with is forgotten last."""
        for digest in reversed(digests):
            self._digests[digest] = None
            self._digests.move_to_end(digest)
        while len(self._digests) > self._most:
            self._digests.popitem(last=False)
