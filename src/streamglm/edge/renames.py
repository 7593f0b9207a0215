"""Errors of a chat completion as the client of another API has to read them.

Owns the translation of field names in a refusal. Knows no API; each has its own table. Invariant:
an error's `param` is never a field that the client could not have sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from streamglm.errors import RequestError


class Renames:
    """A table from a chat completion's paths to another API's. `[]` stands for any `[number]`;
    the longest path that an error begins with counts, and what follows it stays."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        longest_first = sorted(paths.items(), key=lambda pair: -len(pair[0]))
        self._rows = [(_pattern(ours), theirs) for ours, theirs in longest_first]

    def path(self, param: str) -> str:
        """`param` in the other API's spelling."""
        for pattern, theirs in self._rows:
            if found := pattern.match(param):
                head = theirs.replace("[]", "[{}]").format(*found.groups())
                return head + param[found.end() :]
        return param

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translates what is raised inside."""
        try:
            yield
        except RequestError as error:
            if error.param is not None:
                theirs = self.path(error.param)
                error.message = error.message.replace(f"`{error.param}`", f"`{theirs}`")
                error.args = (error.message,)
                error.param = theirs
            raise


def _pattern(path: str) -> re.Pattern[str]:
    """Matches the path itself and what lies below it."""
    return re.compile(re.escape(path).replace(r"\[\]", r"\[(\d+)\]") + r"(?![\w-])")
