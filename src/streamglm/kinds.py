"""How the text of a setting becomes a value: one kind for each shape that a value may have.

Owns the kinds that `config.py` reads its table with, and what they accept. Knows no setting by
name. A parser raises `ValueError` for a text that is not of its kind; it looks at nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Kind:
    """How a setting's text becomes a value; `shape` is what `--help` and errors show."""

    shape: str
    parse: Callable[[str], object]


def text(raw: str) -> str:
    """Any text but none."""
    if not raw:
        raise ValueError
    return raw


def whole(low: int, high: int | None = None) -> Callable[[str], object]:
    """A whole number from `low` to `high`, both included."""

    def parse(raw: str) -> int:
        value = int(raw)
        if value < low or (high is not None and value > high):
            raise ValueError
        return value

    return parse


def auto(parse: Callable[[str], object], word: str = "auto") -> Callable[[str], object]:
    """What `parse` takes, or `word`, which is None."""
    return lambda raw: None if raw == word else parse(raw)


def share(raw: str) -> float:
    """A part of the whole that leaves something."""
    value = float(raw)
    if not 0.0 <= value <= 0.95:
        raise ValueError
    return value


def seconds(raw: str) -> float:
    """A wait that is never none."""
    value = float(raw)
    if not 0.1 <= value <= 86400.0:
        raise ValueError
    return value


def patience(raw: str) -> float:
    """A wait that may be none."""
    value = float(raw)
    if not 0.0 <= value <= 86400.0:
        raise ValueError
    return value


def switch(raw: str) -> bool:
    """On or off."""
    if raw not in ("on", "off", "1", "0", "true", "false"):
        raise ValueError
    return raw in ("on", "1", "true")


def gib(raw: str) -> float:
    """Binary gigabytes; fractions are allowed."""
    value = float(raw)
    if not 0.0 <= value < 1e6:
        raise ValueError
    return value


def one_of(*values: str) -> Callable[[str], object]:
    """One of a few words."""

    def parse(raw: str) -> str:
        if raw not in values:
            raise ValueError
        return raw

    return parse


def host_and_port(raw: str) -> str:
    """A host by name or address, and a port of it: `10.0.0.1:29500`, `[::1]:29500`."""
    host, colon, port = raw.rpartition(":")
    if not (host and colon and 0 < int(port) < 65536):
        raise ValueError
    return raw


def folder(raw: str) -> str | None:
    """A folder; on is `LEARN_FOLDER`, off is None."""
    if not raw:
        raise ValueError
    if raw in ("off", "0", "false"):
        return None
    return str((LEARN_FOLDER if raw in ("on", "1", "true") else Path(raw)).expanduser())


LEARN_FOLDER = Path("~/.cache/streamglm/conversations")
"""Where conversations are learned when the flag names no folder."""
TEXT = Kind("TEXT", text)
FOLDER = Kind("a folder, on or off", folder)
SWITCH = Kind("on or off", switch)
