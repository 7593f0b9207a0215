"""How much a reply thinks: effort, off, or at most so many tokens.

Owns the several fields that say so, and what they mean together. Knows no template beyond the
variables that it is given, and no tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamglm.edge.schemas import ChatBody, TokenizeBody
from streamglm.errors import InvalidRequest
from streamglm.text.template import RESERVED

NO_EFFORT = "none"
_EFFORTS = {NO_EFFORT: "low", "minimal": "low"}
"""Efforts of OpenAI's that the chat layout has no word for, and what it is told in their place."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """What a body wants. `variables` are the template's."""

    variables: dict[str, Any]
    off: bool


def thinking_of(body: ChatBody | TokenizeBody) -> Thinking:
    """Raises `InvalidRequest` where two fields contradict each other."""
    variables = dict(body.chat_template_kwargs or {})
    for name in variables:
        if name in RESERVED:
            param = f"chat_template_kwargs.{name}"
            raise InvalidRequest(f"`{param}` is set by the server.", param=param)
    effort = body.reasoning_effort
    if effort is not None:
        _set(variables, "reasoning_effort", _EFFORTS.get(effort, effort), "reasoning_effort")
    wish = body.thinking
    if wish is not None and wish.clear_thinking is not None:
        _set(variables, "clear_thinking", wish.clear_thinking, "thinking.clear_thinking")
    if wish is not None:
        _set(variables, "enable_thinking", wish.type == "enabled", "thinking.type")
    if effort == NO_EFFORT:
        _set(variables, "enable_thinking", False, "reasoning_effort")
    return Thinking(variables, off=variables.get("enable_thinking") is False)


def budget_of(body: ChatBody) -> int | None:
    """Tokens that the reply may think for; None: as many as it likes."""
    own = body.thinking_token_budget
    wished = body.thinking.budget_tokens if body.thinking else None
    if own is not None and wished is not None and own != wished:
        raise InvalidRequest(
            "`thinking_token_budget` and `thinking.budget_tokens` differ; send one of them.",
            param="thinking_token_budget",
        )
    return wished if own is None else own


def _set(variables: dict[str, Any], name: str, value: Any, param: str) -> None:
    if variables.setdefault(name, value) != value:
        raise InvalidRequest(
            f"`{param}` asks for another `{name}` than another field of the body.", param=param
        )
