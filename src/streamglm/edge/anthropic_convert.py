"""Anthropic's messages, tools and options -> the body of the same chat completion.

Owns the differences in spelling: blocks, `tool_use` and `tool_result`, `system` beside the
messages, a last turn of the assistant's that the reply goes on with. Knows no template and no
tokens. Invariant: what comes out is a chat completion that a client of OpenAI's could have sent,
so that equal conversations have equal prompts; a block that cannot be shown is refused with its
path, and what is left out is written in `docs/anthropic.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamglm.edge.anthropic_schemas import Choice, Content, Format, MessagesBody, PromptBody, Turn
from streamglm.edge.fields import clip
from streamglm.errors import InvalidRequest

Block = Mapping[str, Any]

_BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")
"""A line that Claude Code puts before its system prompt, another one in each request: with it no
prompt would ever begin like an earlier one."""


def chat_of(body: PromptBody, shared: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The chat completion's fields, and the text that the reply goes on with. `shared` are fields
    that both APIs have. Raises `InvalidRequest`."""
    turns, begun = _split(body.messages)
    if begun and body.thinks:
        raise InvalidRequest(
            "`messages` ends with the assistant's own text, and `thinking` is on: a reply cannot "
            "go on behind a thought. End with a user's message, or turn `thinking` off.",
            param="messages",
        )
    if begun and (body.form or (body.tool_choice and body.tool_choice.type in ("any", "tool"))):
        raise InvalidRequest(
            "`messages` ends with the assistant's own text, and a format or a call is asked for: "
            "what is asked for begins with the reply's own first word.",
            param="messages",
        )
    chat: dict[str, Any] = {**shared, "messages": _system(body.system) + turns}
    chat |= _rendering(body)
    chat |= _tools(body)
    if isinstance(body, MessagesBody) and body.stop_sequences:
        chat["stop"] = body.stop_sequences
    return chat, begun


def _rendering(body: PromptBody) -> dict[str, Any]:
    """Fields that say how the prompt is written and what may be written behind it."""
    fields: dict[str, Any] = {}
    config = body.output_config
    if config is not None and config.effort is not None:
        fields["reasoning_effort"] = config.effort
    fields["thinking"] = {"type": "enabled" if body.thinks else "disabled"}
    if body.budget is not None:
        fields["thinking"]["budget_tokens"] = body.budget
    if body.form is not None:
        fields["response_format"] = _format(body.form)
    return fields


def _format(form: Format) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": form.schema, "strict": True},
    }


def _tools(body: PromptBody) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if body.tools:
        fields["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    **({"description": tool.description} if tool.description is not None else {}),
                    "parameters": tool.input_schema,
                    **({"strict": tool.strict} if tool.strict is not None else {}),
                },
            }
            for tool in body.tools
        ]
    choice = body.tool_choice
    if choice is not None and (body.tools or choice.type in ("any", "tool")):
        fields |= _choice(choice)
    return fields


def _choice(choice: Choice) -> dict[str, Any]:
    modes: dict[str, Any] = {
        "auto": "auto",
        "none": "none",
        "any": "required",
        "tool": {"type": "function", "function": {"name": choice.name}},
    }
    fields: dict[str, Any] = {"tool_choice": modes[choice.type]}
    if choice.disable_parallel_tool_use is not None:
        fields["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    return fields


# -- messages


def _split(turns: Sequence[Turn]) -> tuple[list[dict[str, Any]], str]:
    """The messages, and the text of a last one of the assistant's, which the reply goes on with."""
    last, at = turns[-1], len(turns) - 1
    if last.role != "assistant":
        return _messages(turns), ""
    blocks = _blocks(last.content)
    for i, block in enumerate(blocks):
        if _kind(block, f"messages[{at}].content[{i}]") != "text":
            raise InvalidRequest(
                f"`messages[{at}]` is the assistant's and the last one: the reply goes on with its "
                "text, so it can hold nothing else.",
                param=f"messages[{at}].content[{i}].type",
            )
    begun = _text(blocks, f"messages[{at}].content")
    if at == 0:
        raise InvalidRequest("`messages` holds no message but the reply's own.", param="messages")
    return _messages(turns[:-1]), begun


def _system(content: Content | None) -> list[dict[str, Any]]:
    if content is None:
        return []
    texts = [
        _BILLING.sub("", _text([block], "system" if isinstance(content, str) else f"system[{i}]"))
        for i, block in enumerate(_blocks(content))
    ]
    return [{"role": "system", "content": "".join(texts)}] if any(texts) else []


def _messages(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    by_role: dict[str, Callable[[Sequence[Block], str], list[dict[str, Any]]]] = {
        "user": _user,
        "assistant": _assistant,
        "system": _system_turn,
    }
    return [
        message
        for i, turn in enumerate(turns)
        for message in by_role[turn.role](_blocks(turn.content), f"messages[{i}].content")
    ]


def _system_turn(blocks: Sequence[Block], at: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": _text(blocks, at)}]


def _user(blocks: Sequence[Block], at: str) -> list[dict[str, Any]]:
    """Results first, since they answer the turn before; then what the user says."""
    results, said = [], []
    for i, block in enumerate(blocks):
        if _kind(block, f"{at}[{i}]") == "tool_result":
            results.append(_result(block, f"{at}[{i}]"))
        else:
            said.append(_text([block], at, first=i))
    if not results and not said:
        raise InvalidRequest(f"`{at}` holds no block.", param=at)
    return results + ([{"role": "user", "content": "".join(said)}] if said else [])


def _result(block: Block, at: str) -> dict[str, Any]:
    content = block.get("content")
    if content is not None and not isinstance(content, str | list):
        raise InvalidRequest(f"`{at}.content` is neither a text nor blocks.", param=f"{at}.content")
    return {
        "role": "tool",
        "tool_call_id": _string(block, "tool_use_id", at),
        "content": _text(_blocks(content or ""), f"{at}.content"),
    }


def _assistant(blocks: Sequence[Block], at: str) -> list[dict[str, Any]]:
    thoughts: list[str] = []
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for i, block in enumerate(blocks):
        here = f"{at}[{i}]"
        match _kind(block, here):
            case "thinking":
                thoughts.append(_string(block, "thinking", here))
            case "redacted_thinking":
                pass  # another server's, and sealed: there is nothing in it to show
            case "tool_use":
                calls.append(_call(block, here))
            case _:
                texts.append(_text([block], at, first=i))
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return [message]


def _call(block: Block, at: str) -> dict[str, Any]:
    arguments = block.get("input")
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"`{at}.input` is not an object.", param=f"{at}.input")
    return {
        "id": _string(block, "id", at),
        "type": "function",
        "function": {"name": _string(block, "name", at), "arguments": arguments},
    }


# -- blocks


def _blocks(content: Any) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _kind(block: Any, at: str) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise InvalidRequest(f"`{at}` is not a block: an object with a `type`.", param=at)
    return kind


def _text(blocks: Sequence[Block], at: str, *, first: int = 0) -> str:
    """The texts of blocks that hold nothing else, joined; `first` is the number of the first."""
    texts = []
    for i, block in enumerate(blocks, first):
        here = f"{at}[{i}]"
        if (kind := _kind(block, here)) != "text":
            raise InvalidRequest(
                f"`{here}`: a block of type `{clip(kind)}` is not served here.",
                param=f"{here}.type",
            )
        texts.append(_string(block, "text", here))
    return "".join(texts)


def _string(block: Block, name: str, at: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"`{at}.{name}` is missing or not a text.", param=f"{at}.{name}")
    return value
