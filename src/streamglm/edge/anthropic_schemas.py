"""Wire shapes of Anthropic's Messages: types, ranges, and errors that name the field.

Owns the shapes of what `edge/anthropic_fields.py` honours and chat completions spell otherwise; a
field that both have is checked there. Knows no tokens and no chat template. Blocks are read where
they are converted, `edge/anthropic_convert.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from streamglm.edge.anthropic_fields import COUNT_TOKENS, MESSAGES, honoured
from streamglm.edge.fields import clip
from streamglm.edge.schemas import MOST_STOPS, Count, Effort, StopText, shaped
from streamglm.errors import InvalidRequest

KEEPING = ("all", {"type": "all"}, None)
"""Values of an edit's `keep` that leave the messages as they are."""

Content = str | list[dict[str, Any]]
Name = Annotated[str, Meta(min_length=1)]


class Turn(msgspec.Struct, frozen=True):
    """One message; keys that are not here are inert."""

    role: Literal["user", "assistant", "system"]
    content: Content


class Tool(msgspec.Struct, frozen=True):
    """One tool of the client. `type` is null or `custom`; other types are Anthropic's own."""

    name: Name
    input_schema: dict[str, Any] | None = None
    description: str | None = None
    type: str | None = None
    strict: bool | None = None


class Choice(msgspec.Struct, frozen=True):
    """`tool_choice`."""

    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, frozen=True):
    """`thinking`; `display` is inert."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Count | None = None


class Format(msgspec.Struct, frozen=True):
    """`output_config.format`."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`output_config`."""

    effort: Effort | None = None
    format: Format | None = None


class Edit(msgspec.Struct, frozen=True):
    """One of `context_management.edits`."""

    type: Literal["clear_thinking_20251015"]
    keep: Any = None


class ContextManagement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`context_management`."""

    edits: list[Edit] | None = None


class PromptBody(msgspec.Struct, frozen=True, kw_only=True):
    """What decides a prompt: `POST /v1/messages/count_tokens`, and a part of `MessagesBody`."""

    messages: Annotated[list[Turn], Meta(min_length=1)]
    model: str | None = None
    system: Content | None = None
    tools: list[Tool] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None
    context_management: ContextManagement | None = None

    @property
    def form(self) -> Format | None:
        """What the reply's text has to be."""
        return self.output_format or (self.output_config.format if self.output_config else None)

    @property
    def thinks(self) -> bool:
        """Thinking is off unless it is asked for."""
        return self.thinking is not None and self.thinking.type != "disabled"

    @property
    def budget(self) -> int | None:
        """Tokens that thinking may take; None: no limit of its own."""
        return self.thinking.budget_tokens if self.thinking and self.thinks else None


class MessagesBody(PromptBody, frozen=True, kw_only=True):
    """`POST /v1/messages`."""

    max_tokens: Count
    stop_sequences: Annotated[list[StopText], Meta(max_length=MOST_STOPS)] | None = None


def messages_body(body: Mapping[str, Any]) -> tuple[MessagesBody, dict[str, Any]]:
    """The body, and the fields that a chat completion has under the same name. Raises
    `InvalidRequest` naming the field."""
    fields = honoured(MESSAGES, body)
    read = shaped(fields, MessagesBody)
    _check(read)
    shared = {name: value for name, value in fields.items() if name not in _OWN}
    return read, shared


def count_body(body: Mapping[str, Any]) -> tuple[PromptBody, dict[str, Any]]:
    """The same of a body to count the tokens of."""
    fields = honoured(COUNT_TOKENS, body)
    read = shaped(fields, PromptBody)
    _check(read)
    shared = {name: value for name, value in fields.items() if name not in _OWN}
    return read, shared


_OWN = frozenset(MessagesBody.__struct_fields__) - {"model", "max_tokens"}
"""Fields that are spelled otherwise in a chat completion, or not at all."""


def _check(body: PromptBody) -> None:
    """What no type says. Raises `InvalidRequest`."""
    for i, tool in enumerate(body.tools or ()):
        at = f"tools[{i}]"
        if tool.type not in (None, "custom"):
            raise InvalidRequest(
                f"`{at}.type`: only tools that the client runs are served, of type `custom` or "
                "without a type.",
                param=f"{at}.type",
            )
        if tool.input_schema is None:
            raise InvalidRequest(f"`{at}.input_schema` is missing.", param=f"{at}.input_schema")
    choice = body.tool_choice
    if choice is not None and (choice.type == "tool") != (choice.name is not None):
        raise InvalidRequest(
            "`tool_choice.name` belongs to `tool_choice.type` `tool`, and to no other.",
            param="tool_choice.name",
        )
    if choice is not None and choice.type in ("any", "tool"):
        _check_offered(choice, [tool.name for tool in body.tools or ()])
    edits = (body.context_management and body.context_management.edits) or ()
    for i, edit in enumerate(edits):
        if edit.keep not in KEEPING:
            param = f"context_management.edits[{i}].keep"
            raise InvalidRequest(f"`{param}`: only `all` is served.", param=param)
    if body.output_format is not None and body.output_config and body.output_config.format:
        raise InvalidRequest(
            "`output_format` and `output_config.format` are one field; send the latter.",
            param="output_format",
        )


def _check_offered(choice: Choice, names: Sequence[str]) -> None:
    if not names:
        raise InvalidRequest(
            f"`tool_choice` of type `{choice.type}` asks for a call, and there are no `tools`.",
            param="tool_choice",
        )
    if choice.name is not None and choice.name not in names:
        raise InvalidRequest(
            f"`tool_choice.name`: `{clip(choice.name)}` is none of `tools`.",
            param="tool_choice.name",
        )
