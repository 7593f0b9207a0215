"""The tools of a body, and the choice among them, checked.

Owns the shapes of `tools` and `tool_choice`. Knows no markup and no template: a tool reaches the
template as the client wrote it, and the reader of calls as a `Tool`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from streamglm.edge.fields import clip
from streamglm.edge.schemas import ChatBody, shaped
from streamglm.errors import InvalidRequest
from streamglm.text.calls import OPEN
from streamglm.text.tokenizer import Tokenizer
from streamglm.text.tools import AUTO, Tool, ToolChoice

MOST_TOOLS = 1024
_NAME = re.compile(r"[^\s<>]{1,128}")


class _Function(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Offered(msgspec.Struct, frozen=True):
    function: _Function
    type: Literal["function"]


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Choice(msgspec.Struct, frozen=True):
    function: _Named
    type: Literal["function"]


@dataclass(frozen=True, slots=True)
class Calling:
    """What a chat may call. `single`: at most once."""

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = AUTO
    single: bool = False

    @classmethod
    def of(cls, body: ChatBody) -> Calling:
        """Raises `InvalidRequest`."""
        tools = tools_of(body.tools)
        return cls(tools, choice_of(body.tool_choice, tools), not body.parallel_tool_calls)

    def banned(self, tokenizer: Tokenizer | None) -> list[int]:
        """Ids that are never drawn: the tag of a call, where tools are offered and none is to be
        called. The prompt stays what it is with any other choice."""
        if tokenizer is None or not self.tools or self.choice.mode != "none":
            return []
        tag = tokenizer.encode(OPEN)
        return tag if len(tag) == 1 else []


def tools_of(given: Sequence[Mapping[str, Any]] | None) -> tuple[Tool, ...]:
    """The tools of a body. Raises `InvalidRequest` with the path."""
    if given is not None and len(given) > MOST_TOOLS:
        raise InvalidRequest(
            f"`tools` has {len(given)} entries; at most {MOST_TOOLS} are served.", param="tools"
        )
    tools = tuple(_tool(one, f"tools[{i}]") for i, one in enumerate(given or ()))
    seen: set[str] = set()
    for i, tool in enumerate(tools):
        if tool.name in seen:
            at = f"tools[{i}].function.name"
            raise InvalidRequest(f"`{at}`: two tools are named `{clip(tool.name)}`.", param=at)
        seen.add(tool.name)
    return tools


def choice_of(given: Any, tools: Sequence[Tool]) -> ToolChoice:
    """The choice of a body. Raises `InvalidRequest` where it names nothing that is offered."""
    if given is None:
        return AUTO
    if isinstance(given, str):
        if given not in ("auto", "none", "required"):
            raise InvalidRequest(
                f"`tool_choice`: `{clip(given)}` is none of auto, none and required.",
                param="tool_choice",
            )
        choice = ToolChoice(given)  # type: ignore[arg-type]  # one of the three
    else:
        choice = ToolChoice("named", shaped(given, _Choice, at="tool_choice").function.name)
    if choice.mode in ("required", "named") and not tools:
        raise InvalidRequest(
            "`tool_choice` asks for a call, and `tools` offers none.", param="tool_choice"
        )
    if choice.mode == "named" and all(tool.name != choice.name for tool in tools):
        raise InvalidRequest(
            f"`tool_choice` names `{clip(choice.name)}`, which is not among `tools`.",
            param="tool_choice",
        )
    return choice


def _tool(given: Mapping[str, Any], at: str) -> Tool:
    function = shaped(given, _Offered, at=at).function
    if not _NAME.fullmatch(function.name):
        at = f"{at}.function.name"
        raise InvalidRequest(
            f"`{at}` is 1 to 128 characters, none of them white space, `<` or `>`.", param=at
        )
    return Tool(function.name, function.description or "", function.parameters or {})
