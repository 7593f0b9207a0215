"""What is said in a conversation, before it is tokens.

Owns the parts: messages, answers with their reasoning, tool calls. Knows no tokens and no topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Effort(IntEnum):
    """Reasoning effort, in the order of `Thought`'s fields."""

    LOW = 0
    HIGH = 1
    MAX = 2


class Kind(IntEnum):
    """What an answer shows; scores are kept by it."""

    CHAT = 1
    NOTED = 2
    FACT = 3
    MARKER = 4
    REPEAT = 5
    LOOKUP = 6
    UNKNOWN = 7
    COUNT = 8
    SPELL = 9
    CALL = 10
    RESULT = 11
    RECITE = 12
    BACKWARDS = 13


@dataclass(frozen=True, slots=True)
class Thought:
    """The reasoning before an answer, by effort: less for less."""

    low: str
    high: str
    max: str

    def at(self, effort: Effort) -> str:
        return (self.low, self.high, self.max)[effort]


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; `arguments` in the order in which they are written."""

    name: str
    arguments: Mapping[str, Any]

    def markup(self) -> str:
        """The call as the layout writes it: strings raw, everything else as JSON."""
        parts = [f"<tool_call>{self.name}"]
        for key, value in self.arguments.items():
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            parts.append(f"<arg_key>{key}</arg_key><arg_value>{written}</arg_value>")
        return "".join(parts) + "</tool_call>"


@dataclass(frozen=True, slots=True)
class Answer:
    """A message of the assistant: `text`, then `calls`."""

    kind: Kind
    thought: Thought
    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Results:
    """What the called tools returned, in the order of the calls."""

    texts: tuple[str, ...]


Message = Said | Answer | Results
Turn = list[Message]
"""A message of the user and everything up to the next one."""


@dataclass(slots=True)
class Conversation:
    """A whole conversation. `kept` says turn by turn whether its reasoning is still shown: clients
    often send a history without it."""

    effort: Effort
    systems: list[str] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)
