"""Make the built-in model say a given text: it repeats exactly what it is asked to repeat.

Texts of up to a few hundred characters of any script are safe; blank lines inside are not.
"""

from __future__ import annotations

from typing import Any

LITTLE_THOUGHT: dict[str, Any] = {"temperature": 0, "reasoning_effort": "low"}
"""Greedy, with a word or two of reasoning."""


def say(text: str) -> dict[str, Any]:
    """The body of a chat request whose answer is `text`, and which ends by itself."""
    messages = [{"role": "user", "content": f"Repeat exactly:\n{text}"}]
    return {"messages": messages, **LITTLE_THOUGHT}
