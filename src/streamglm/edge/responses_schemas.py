"""Wire shapes of OpenAI's Responses: types, ranges, and errors that name the field.

Owns the shapes of what `edge/responses_fields.py` honours and chat completions spell otherwise; a
field that both have is checked there. Knows no tokens and no chat template. Items are read where
they are converted, `edge/responses_convert.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from streamglm.edge.fields import clip
from streamglm.edge.responses_fields import honoured
from streamglm.edge.schemas import Count, Effort, shaped
from streamglm.errors import InvalidRequest

SEALED = "reasoning.encrypted_content"
"""The value of `include` that asks for reasoning in a form that clients send back."""

Items = Annotated[list[dict[str, Any]], Meta(min_length=1)]
Name = Annotated[str, Meta(min_length=1)]


class Tool(msgspec.Struct, frozen=True):
    """One function; keys that are not here are inert."""

    type: Literal["function"]
    name: Name
    parameters: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class Named(msgspec.Struct, frozen=True):
    """`tool_choice` of one function."""

    type: Literal["function"]
    name: Name


class Reasoning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`reasoning`. It is told whole, so that a `summary` of it is never written."""

    effort: Effort | None = None
    summary: str | None = None
    generate_summary: str | None = None
    context: Literal["auto", "all_turns"] | None = None
    mode: Literal["standard"] | None = None


class Format(msgspec.Struct, frozen=True):
    """`text.format`."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`text`."""

    format: Format | None = None
    verbosity: Literal["medium"] | None = None


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`stream_options`; the padding is never sent."""

    include_obfuscation: bool | None = None


class ResponsesBody(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /v1/responses`."""

    input: str | Items
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | Named | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    include: list[str] | None = None
    stream_options: StreamOptions | None = None

    @property
    def seals(self) -> bool:
        """Reasoning items come with `encrypted_content`."""
        return SEALED in (self.include or ())


def responses_body(body: Mapping[str, Any]) -> tuple[ResponsesBody, dict[str, Any]]:
    """The body, and the fields that a chat completion has under the same name. Raises
    `InvalidRequest` naming the field."""
    fields = honoured(body)
    _check_kinds(fields.get("tools"))
    read = shaped(fields, ResponsesBody)
    for i, value in enumerate(read.include or ()):
        if value != SEALED:
            raise InvalidRequest(
                f"`include[{i}]`: `{clip(value)}` is not served, only `{SEALED}`.",
                param=f"include[{i}]",
            )
    form = read.text.format if read.text else None
    if form is not None and form.type == "json_schema" and form.schema is None:
        raise InvalidRequest("`text.format.schema` is missing.", param="text.format.schema")
    shared = {name: value for name, value in fields.items() if name not in _OWN}
    return read, shared


_OWN = frozenset(ResponsesBody.__struct_fields__) - {"model"}
"""Fields that are spelled otherwise in a chat completion, or not at all."""


def _check_kinds(tools: Any) -> None:
    """Tools of another kind have other keys, and would be told of as lacking a name."""
    for i, tool in enumerate(tools if isinstance(tools, list) else ()):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind != "function":
            raise InvalidRequest(
                f"`tools[{i}].type`: `{clip(kind)}` is not served, only `function`.",
                param=f"tools[{i}].type",
            )
