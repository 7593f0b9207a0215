"""A body of Anthropic's Messages -> the engine's request, by way of the same chat completion.

Owns the text that a reply goes on with, and the way back for errors: a refusal names the field
that the client sent, not the one it became. Knows no events. Everything that a client did wrong is
raised here, before a byte of a reply is sent.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from typing import Any

from streamglm.edge.anthropic_convert import chat_of
from streamglm.edge.anthropic_schemas import count_body, messages_body
from streamglm.edge.prepare import Ask, chat_ask, check_model, room_of, tokenize_ids
from streamglm.edge.renames import Renames
from streamglm.edge.schemas import chat_body, tokenize_body
from streamglm.edge.served import ServedModel
from streamglm.errors import ContextLengthExceeded, InvalidRequest

RENAMES = Renames(
    {
        "stop": "stop_sequences",
        "reasoning_effort": "output_config.effort",
        "response_format.json_schema.schema": "output_config.format.schema",
        "response_format": "output_config.format",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
        "tools[].function.parameters": "tools[].input_schema",
        "tools[].function": "tools[]",
    }
)


async def messages_ask(raw: Mapping[str, Any], size: int, model: ServedModel) -> Ask:
    """The request of a message. `size` is that of the raw body. Raises `RequestError`."""
    body, shared = messages_body(raw)
    check_model(body.model, model)
    chat, begun = chat_of(body, shared)
    try:
        with RENAMES.errors():
            ask = await chat_ask(chat_body(chat), size, model)
        return _named(_going_on(ask, begun, body.max_tokens, model) if begun else ask)
    except ContextLengthExceeded as error:
        raise _as_told(error) from None


async def count_tokens(raw: Mapping[str, Any], size: int, model: ServedModel) -> int:
    """Tokens of the prompt that the same message would have. Raises `RequestError`."""
    body, shared = count_body(raw)
    check_model(body.model, model)
    chat, begun = chat_of(body, shared)
    rendering = {name: value for name, value in chat.items() if name not in _NOT_RENDERED}
    with RENAMES.errors():
        ids = await tokenize_ids(tokenize_body(rendering), size, model)
    return len(ids) + len(_encoded(begun, model))


_NOT_RENDERED = frozenset({"tool_choice", "parallel_tool_calls", "response_format"})
"""Fields that a prompt does not depend on."""


def _going_on(ask: Ask, begun: str, limit: int, model: ServedModel) -> Ask:
    """`ask` with the first words of the reply at the end of its prompt."""
    if ask.thinking:
        raise InvalidRequest(
            "`messages` ends with the assistant's own text, and this checkpoint's chat template "
            "always opens a thought. End with a user's message.",
            param="messages",
        )
    prompt = ask.request.prompt + _encoded(begun, model)
    room = room_of(len(prompt), limit, ("messages", "max_tokens"), model.context)
    request = dataclasses.replace(ask.request, prompt=prompt, max_tokens=room)
    return dataclasses.replace(ask, request=request)


def _encoded(text: str, model: ServedModel) -> tuple[int, ...]:
    return tuple(model.tokenizer.encode(text)) if text and model.tokenizer else ()


def _named(ask: Ask) -> Ask:
    request = dataclasses.replace(ask.request, id="msg_" + secrets.token_hex(12))
    return dataclasses.replace(ask, request=request)


def _as_told(error: ContextLengthExceeded) -> ContextLengthExceeded:
    """The same in the form that clients of this API look for, to shorten what they send."""
    prompt, limit, context = error.prompt, error.limit, error.context
    if limit is None or prompt >= context:
        message = f"prompt is too long: {prompt} tokens > {context - 1} maximum"
    else:
        message = (
            f"input length and `max_tokens` exceed context limit: {prompt} + {limit} > {context}, "
            "decrease input length or `max_tokens` and try again"
        )
    return ContextLengthExceeded(
        message, param=error.param, prompt=prompt, limit=limit, context=context
    )
