"""A state machine over visible text: content, and calls in GLM's markup.

    <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>...</tool_call>

Owns where a call begins and ends and the JSON of its arguments, which is written while the call is
still being drawn. Knows no tokens, no reasoning and no HTTP. Invariant: pieces joined by kind are
the same however the text was cut, and the fragments of a call that is complete join to one JSON
object. A string is passed on as it comes; any other value once it is whole, since only then is it
known to be JSON of its type. White space that stands alone beside calls is no content.

`<tool_call>` that no name follows is content like any other text. Inside a call, what is between
its tags is skipped, a key that comes twice keeps its first value, and only `</arg_value>` ends a
value, whatever tags are inside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from streamglm.text.pieces import Kind, Piece
from streamglm.text.stops import held_length
from streamglm.text.tools import Tool
from streamglm.text.values import STRING, Kinds, argument_kinds, escaped, quoted, written

OPEN, END = "<tool_call>", "</tool_call>"
KEY, KEY_END = "<arg_key>", "</arg_key>"
VALUE, VALUE_END = "<arg_value>", "</arg_value>"

_NAME = re.compile(r"\s*[^\s<>]{0,256}\s*")


class _At(Enum):
    """Where the machine stands."""

    CONTENT = auto()
    NAME = auto()
    BETWEEN = auto()  # after a name or a value
    KEY = auto()
    GAP = auto()  # after a key
    VALUE = auto()
    OVER = auto()  # the one call that is wanted is complete


class Calls:
    """Splits the visible text of one reply. With `single` the text ends with its first call. With
    `strict` only offered names make a call, and nothing but white space may stand between its
    tags: for text that only mentions calls, which is then content."""

    def __init__(
        self, tools: Sequence[Tool], *, single: bool = False, strict: bool = False
    ) -> None:
        self._tools: Mapping[str, Mapping[str, Any]] = {t.name: t.parameters for t in tools}
        self._single = single
        self._strict = strict
        self.complete = 0
        """Calls that have ended."""
        self._at = _At.CONTENT
        self._held = ""  # not settled yet
        self._fresh = True  # no content since the start or the last call
        self._space = ""  # white space of that time
        self._parameters: Mapping[str, Any] = {}
        self._keys: set[str] = set()
        self._kinds: Kinds | None = None
        self._skips = False  # the value belongs to a key that came before
        self._value: list[str] = []
        self._key = ""
        self._pieces: list[Piece] = []

    @property
    def open(self) -> bool:
        """A call has begun and not ended."""
        return self._at not in (_At.CONTENT, _At.NAME, _At.OVER)

    @property
    def over(self) -> bool:
        """The one call that is wanted is complete; nothing more is passed on."""
        return self._at is _At.OVER

    def feed(self, text: str) -> list[Piece]:
        """The pieces that `text` settles, in order."""
        self._held += text
        while self._step():
            pass
        return self._taken()

    def finish(self, *, ended: bool) -> list[Piece]:
        """What was held back. `ended`: the reply ended by itself and was not cut; a call whose
        closing tag alone is missing is then complete."""
        held, self._held = self._held, ""
        if self._at is _At.CONTENT:
            self._content(held)
        elif self._at is _At.NAME and ended:
            self._content(OPEN + held)
        elif self._at is _At.BETWEEN and ended:
            self._close()
        if self._space and not self.complete:
            self._pieces.append(Piece(Kind.CONTENT, self._space))
        return self._taken()

    def _taken(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _step(self) -> bool:
        """Settle what can be; whether the machine has moved on."""
        match self._at:
            case _At.CONTENT:
                return self._in_content()
            case _At.NAME:
                return self._in_name()
            case _At.BETWEEN:
                return self._after_tag((KEY, END))
            case _At.KEY:
                return self._in_key()
            case _At.GAP:
                return self._after_tag((VALUE, KEY, END))
            case _At.VALUE:
                return self._in_value()
            case _At.OVER:
                self._held = ""
                return False

    def _in_content(self) -> bool:
        before, tag = self._up_to((OPEN,))
        self._content(before)
        if tag:
            self._at = _At.NAME
        return bool(tag)

    def _in_name(self) -> bool:
        found = _first(self._held, (KEY, END))
        keep = 0 if found else held_length(self._held, (KEY, END))
        at = found[0] if found else len(self._held) - keep
        name = self._held[:at]
        if not self._may_name(name, whole=found is not None):
            self._at = _At.CONTENT
            self._content(OPEN)
            return True
        if not found:
            return False
        self._begin(name.strip())
        self._held = self._held[at:]
        self._at = _At.BETWEEN
        return True

    def _may_name(self, text: str, *, whole: bool) -> bool:
        name = text.strip()
        if not _NAME.fullmatch(text) or (whole and not name):
            return False
        if not self._strict:
            return True
        if whole or (name and text[-1].isspace()):
            return name in self._tools
        return any(one.startswith(name) for one in self._tools)

    def _begin(self, name: str) -> None:
        self._space = ""
        self._keys = set()
        self._parameters = self._tools.get(name, {})
        self._pieces.append(Piece(Kind.CALL, name))

    def _after_tag(self, tags: Sequence[str]) -> bool:
        before, tag = self._up_to(tags)
        if self._strict and before.strip():
            self._abandon()
            return False
        if tag == END:
            self._close()
        elif tag:
            self._at, self._value = (_At.KEY if tag == KEY else _At.VALUE), []
            if tag == VALUE:
                self._open_value()
        return bool(tag)

    def _in_key(self) -> bool:
        before, tag = self._up_to((KEY_END,))
        self._value.append(before)
        if tag:
            self._key, self._at = "".join(self._value).strip(), _At.GAP
        return bool(tag)

    def _open_value(self) -> None:
        self._skips = self._key in self._keys
        self._kinds = argument_kinds(self._parameters, self._key)
        if not self._skips:
            mark = ", " if self._keys else "{"
            string = '"' if self._kinds == STRING else ""
            self._arguments(f"{mark}{quoted(self._key)}: {string}")
            self._keys.add(self._key)

    def _in_value(self) -> bool:
        before, tag = self._up_to((VALUE_END,))
        if self._kinds != STRING:
            self._value.append(before)
        elif not self._skips:
            self._arguments(escaped(before))
        if tag:
            if not self._skips:
                string = self._kinds == STRING
                self._arguments('"' if string else written("".join(self._value), self._kinds))
            self._at = _At.BETWEEN
        return bool(tag)

    def _close(self) -> None:
        self._arguments("}" if self._keys else "{}")
        self.complete += 1
        self._fresh = True
        self._at = _At.OVER if self._single else _At.CONTENT

    def _abandon(self) -> None:
        """This is no call: for `strict`, whose reader then takes none of it for one."""
        self._at, self._held = _At.CONTENT, ""
        self._pieces.append(Piece(Kind.CONTENT, OPEN))

    def _content(self, text: str) -> None:
        if self._fresh:
            self._space += text
            if not self._space.strip():
                return
            text, self._space, self._fresh = self._space, "", False
        if text:
            self._pieces.append(Piece(Kind.CONTENT, text))

    def _arguments(self, text: str) -> None:
        if text:
            self._pieces.append(Piece(Kind.ARGUMENTS, text))

    def _up_to(self, tags: Sequence[str]) -> tuple[str, str]:
        """Take the text before the first of `tags`, and the tag; without one, all the text that
        cannot begin one."""
        found = _first(self._held, tags)
        if found:
            at, tag = found
        else:
            at, tag = len(self._held) - held_length(self._held, tags), ""
        before, self._held = self._held[:at], self._held[at + len(tag) :]
        return before, tag


def _first(text: str, tags: Sequence[str]) -> tuple[int, str] | None:
    """Where the first of `tags` begins, and which it is."""
    found = [(at, tag) for tag in tags if (at := text.find(tag)) >= 0]
    return min(found, default=None)
