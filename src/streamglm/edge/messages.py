"""Messages as clients send them -> messages as chat templates expect them.

Owns the differences: `developer` is `system`, parts are joined, absent content is "", and the
arguments of a call are an object rather than JSON in a text. Knows no template. Invariant: a
message that cannot be shown whole is refused with its path; nothing is dropped without a word.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from streamglm.edge.fields import clip
from streamglm.edge.schemas import Message, ToolCall
from streamglm.errors import InvalidRequest

ROLES = ("system", "developer", "user", "assistant", "tool")


def for_template(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The template's messages, in order. Raises `InvalidRequest` with the path."""
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _message(message: Message, at: str) -> dict[str, Any]:
    if message.role not in ROLES:
        raise InvalidRequest(
            f"`{at}.role`: `{clip(message.role)}` is none of {', '.join(ROLES)}.",
            param=f"{at}.role",
        )
    for name in ("function_call", "audio"):
        if getattr(message, name) is not None:
            raise InvalidRequest(f"`{at}.{name}` is not served.", param=f"{at}.{name}")
    role = "system" if message.role == "developer" else message.role
    shown: dict[str, Any] = {"role": role, "content": _content(message, at)}
    if role == "assistant":
        return shown | _assistant(message, at)
    if role == "tool" and message.tool_call_id is not None:
        shown["tool_call_id"] = message.tool_call_id
    return shown


def _content(message: Message, at: str) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        if message.role == "assistant":
            return ""
        raise InvalidRequest(
            f"`{at}.content` is missing: a text, or a list of text parts.", param=f"{at}.content"
        )
    return "".join(_part(part, f"{at}.content[{i}]") for i, part in enumerate(content))


def _part(part: Any, at: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise InvalidRequest(f"`{at}` is not a part: an object with a `type`.", param=at)
    if kind != "text":
        raise InvalidRequest(
            f"`{at}`: parts of type `{clip(kind)}` are not served, only `text`.", param=f"{at}.type"
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidRequest(f"`{at}.text` is missing or not a text.", param=f"{at}.text")
    return text


def _assistant(message: Message, at: str) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if message.reasoning_content is not None:
        shown["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        calls = enumerate(message.tool_calls)
        shown["tool_calls"] = [_call(call, f"{at}.tool_calls[{i}]") for i, call in calls]
    return shown


def _call(call: ToolCall, at: str) -> dict[str, Any]:
    if call.type != "function":
        raise InvalidRequest(f"`{at}.type`: only `function` is served.", param=f"{at}.type")
    arguments = read_arguments(call.function.arguments, f"{at}.function.arguments")
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments},
    }


def read_arguments(arguments: Any, at: str) -> dict[str, Any]:
    """An object, or JSON of one in a text; nothing at all is a call without arguments. Raises
    `InvalidRequest` with the path `at`."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if isinstance(arguments, str):
        try:
            # not orjson, which would round whole numbers beyond 64 bits
            arguments = json.loads(arguments, parse_constant=_no_constant)
            json.dumps(arguments, ensure_ascii=False).encode()  # raises for a lone surrogate
        except (ValueError, RecursionError):
            raise InvalidRequest(f"`{at}` is not valid JSON.", param=at) from None
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"`{at}` is JSON, but not an object.", param=at)
    return arguments


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
