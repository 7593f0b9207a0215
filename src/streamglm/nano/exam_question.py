"""A question of the exam, what came back, and how it is judged."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streamglm.nano.training.dialog import Call

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `calls` hold parsed arguments; `tokens` counts the whole reply."""

    content: str
    reasoning: str
    calls: tuple[Call, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Question:
    """`before` are user messages to be answered live, one by one, before the last of `messages`.
    `group` joins questions that count as one."""

    section: str
    messages: list[Json]
    judge: Callable[[Reply], bool]
    wanted: str
    fresh: bool
    """The wording is held out, not only the contents."""
    tools: list[Json] = field(default_factory=list)
    effort: str = "low"
    most: int = 200
    group: str = ""
    before: tuple[str, ...] = ()


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


def exactly(text: str) -> Callable[[Reply], bool]:
    return lambda reply: reply.content.strip() == text.strip()


def holds(text: str) -> Callable[[Reply], bool]:
    """The answer holds `text`, not as a part of a longer word or number."""
    pattern = re.compile(rf"(?<![\w-]){re.escape(text)}(?![\w-])", re.IGNORECASE)
    return lambda reply: bool(pattern.search(reply.content))


_UNKNOWN = re.compile(r"not told|not in the list|no tool named|do not know", re.IGNORECASE)


def refuses(reply: Reply) -> bool:
    return bool(_UNKNOWN.search(reply.content)) and not reply.calls


def holds_sentence(sentence: str) -> Callable[[Reply], bool]:
    """The whole sentence, character by character; only the last mark may be missing."""
    core = sentence.rstrip(".!")
    return lambda reply: core in reply.content
