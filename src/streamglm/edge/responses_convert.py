"""The items of OpenAI's Responses -> the body of the same chat completion.

Owns the differences in spelling: what a message of the assistant's says, thinks and calls is three
kinds of items here. Knows no template and no tokens. Invariant: the items of a reply, sent back,
are the one message that a chat completion's client would send back; an item that cannot be shown
is refused with its path.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from streamglm.edge.fields import clip
from streamglm.edge.messages import read_arguments
from streamglm.edge.responses_schemas import Format, Named, ResponsesBody
from streamglm.errors import InvalidRequest

Item = Mapping[str, Any]

TEXTS = ("input_text", "output_text", "text")
ROLES = ("system", "developer", "user", "assistant")
SEAL = "streamglm-plain:"
"""What `encrypted_content` begins with: it is the text itself, in base64."""


def chat_of(body: ResponsesBody, shared: Mapping[str, Any]) -> dict[str, Any]:
    """The chat completion's fields. `shared` are those that both APIs have. Raises
    `InvalidRequest`."""
    chat: dict[str, Any] = {**shared, "messages": _messages(body)}
    if body.max_output_tokens is not None:
        chat["max_completion_tokens"] = body.max_output_tokens
    if body.reasoning is not None and body.reasoning.effort is not None:
        chat["reasoning_effort"] = body.reasoning.effort
    if body.text is not None and body.text.format is not None:
        chat["response_format"] = _format(body.text.format)
    return chat | _tools(body)


def _format(form: Format) -> dict[str, Any]:
    if form.type != "json_schema":
        return {"type": form.type}
    schema = {"name": form.name or "output", "schema": form.schema, "strict": form.strict}
    return {"type": "json_schema", "json_schema": _given(schema)}


def _tools(body: ResponsesBody) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if body.tools:
        fields["tools"] = [
            {
                "type": "function",
                "function": _given(
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters,
                        "strict": tool.strict,
                    }
                ),
            }
            for tool in body.tools
        ]
    choice = body.tool_choice
    if isinstance(choice, Named):
        fields["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    elif choice is not None and (body.tools or choice == "required"):
        fields["tool_choice"] = choice
    return fields


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


# -- items


def _messages(body: ResponsesBody) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if body.instructions is not None:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        messages.append({"role": "user", "content": body.input})
        return messages
    for i, item in enumerate(body.input):
        _add(item, f"input[{i}]", messages)
    return messages


def _add(item: Item, at: str, messages: list[dict[str, Any]]) -> None:
    """Adds an item to the messages, or to the assistant's message that it belongs to."""
    match item.get("type", "message"):
        case "message":
            _message(item, at, messages)
        case "reasoning":
            if thought := _reasoning(item, at):
                turn = _turn(messages, before=("reasoning_content", "content", "tool_calls"))
                turn["reasoning_content"] = thought
        case "function_call":
            turn = _turn(messages, before=())
            turn.setdefault("tool_calls", []).append(_call(item, at))
        case "function_call_output":
            messages.append(_output(item, at))
        case str(kind):
            raise InvalidRequest(
                f"`{at}`: items of type `{clip(kind)}` are not served.", param=f"{at}.type"
            )
        case _:
            raise InvalidRequest(f"`{at}.type` is not a text.", param=f"{at}.type")


def _turn(messages: list[dict[str, Any]], *, before: Sequence[str]) -> dict[str, Any]:
    """The assistant's message at the end, if it has none of what must not come `before`; else a
    new one."""
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant" or any(last.get(name) for name in before):
        last = {"role": "assistant"}
        messages.append(last)
    return last


def _message(item: Item, at: str, messages: list[dict[str, Any]]) -> None:
    role = item.get("role")
    if role not in ROLES:
        shown = f"`{clip(role)}` is none of" if isinstance(role, str) else "it is none of"
        raise InvalidRequest(f"`{at}.role`: {shown} {', '.join(ROLES)}.", param=f"{at}.role")
    text = _text(item.get("content"), f"{at}.content")
    if role == "assistant":
        _turn(messages, before=("content", "tool_calls"))["content"] = text
    else:
        messages.append({"role": role, "content": text})


def _reasoning(item: Item, at: str) -> str:
    """What was thought: the text, or what was sealed here; another server's cannot be opened."""
    content = item.get("content")
    if content:
        return _text(content, f"{at}.content", kinds=("reasoning_text",))
    sealed = item.get("encrypted_content")
    if not isinstance(sealed, str) or not sealed.startswith(SEAL):
        return ""
    try:
        return base64.b64decode(sealed.removeprefix(SEAL), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        param = f"{at}.encrypted_content"
        raise InvalidRequest(
            f"`{param}` is not what was sent; it was cut or changed.", param=param
        ) from None


def sealed(reasoning: str) -> str:
    """`encrypted_content` of a reasoning item, which holds no secret: the text in base64."""
    return SEAL + base64.b64encode(reasoning.encode()).decode()


def _call(item: Item, at: str) -> dict[str, Any]:
    return {
        "id": _string(item, "call_id", at),
        "type": "function",
        "function": {
            "name": _string(item, "name", at),
            "arguments": read_arguments(item.get("arguments"), f"{at}.arguments"),
        },
    }


def _output(item: Item, at: str) -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_call_id": _string(item, "call_id", at),
        "content": _text(item.get("output"), f"{at}.output"),
    }


def _text(content: Any, at: str, kinds: Sequence[str] = TEXTS) -> str:
    """A text, or the joined texts of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequest(f"`{at}` is missing: a text, or a list of text parts.", param=at)
    return "".join(_part(part, f"{at}[{i}]", kinds) for i, part in enumerate(content))


def _part(part: Any, at: str, kinds: Sequence[str]) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise InvalidRequest(f"`{at}` is not a part: an object with a `type`.", param=at)
    if kind not in kinds:
        raise InvalidRequest(
            f"`{at}`: parts of type `{clip(kind)}` are not served here, only {', '.join(kinds)}.",
            param=f"{at}.type",
        )
    return _string(part, "text", at)


def _string(item: Item, name: str, at: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"`{at}.{name}` is missing or not a text.", param=f"{at}.{name}")
    return value
