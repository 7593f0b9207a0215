"""A body of OpenAI's Responses -> the engine's request, by way of the same chat completion.

Owns the way back for errors, which name the field that the client sent, and what of a request is
told again in its response. Knows no events. Everything that a client did wrong is raised here,
before a byte of a reply is sent.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from streamglm.edge.prepare import Ask, chat_ask, check_model
from streamglm.edge.renames import Renames
from streamglm.edge.responses_convert import chat_of
from streamglm.edge.responses_schemas import ResponsesBody, responses_body
from streamglm.edge.schemas import chat_body
from streamglm.edge.served import ServedModel
from streamglm.errors import InvalidRequest

DEEPEST = 200
"""Levels of JSON that certainly can be written."""

RENAMES = Renames(
    {
        "messages": "input",
        "max_completion_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "response_format.json_schema": "text.format",
        "response_format": "text.format",
        "tools[].function": "tools[]",
        "tool_choice.function": "tool_choice",
    }
)


@dataclass(frozen=True, slots=True)
class Told:
    """What a response repeats of its request."""

    echo: Mapping[str, Any]
    seals: bool
    """Reasoning items come with `encrypted_content`."""


async def responses_ask(raw: Mapping[str, Any], size: int, model: ServedModel) -> tuple[Ask, Told]:
    """The request of a response, and what it repeats. `size` is that of the raw body. Raises
    `RequestError`."""
    body, shared = responses_body(raw)
    check_model(body.model, model)
    with RENAMES.errors():
        ask = await chat_ask(chat_body(chat_of(body, shared)), size, model)
    request = dataclasses.replace(ask.request, id="resp_" + secrets.token_hex(12))
    ask = dataclasses.replace(ask, request=request)
    echo = _echo(raw, body, ask)
    _check_told(echo)
    return ask, Told(echo, body.seals)


def _check_told(echo: Mapping[str, Any]) -> None:
    """What was read can be nested deeper than what is written. Raises `InvalidRequest`."""
    for name, value in echo.items():
        try:
            orjson.dumps(value)
        except orjson.JSONEncodeError:
            raise InvalidRequest(
                f"`{name}` is nested too deep to be told again; {DEEPEST} levels can be.",
                param=name,
            ) from None


def _echo(raw: Mapping[str, Any], body: ResponsesBody, ask: Ask) -> dict[str, Any]:
    sampling, reasoning = ask.request.sampling, body.reasoning
    given = raw.get("metadata")
    parallel = raw.get("parallel_tool_calls")
    return {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": given if isinstance(given, dict) else {},
        "parallel_tool_calls": True if parallel is None else parallel,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "text": {"format": _told(body.text.format if body.text else None) or {"type": "text"}},
        "tools": [_told(tool) for tool in body.tools or ()],
        "tool_choice": _told(body.tool_choice) or "auto",
        # what is refused, or changes nothing, stands as it is done
        "background": False,
        "previous_response_id": None,
        "service_tier": "default",
        "store": False,
        "top_logprobs": 0,
        "truncation": "disabled",
    }


def _told(value: Any) -> Any:
    return msgspec.to_builtins(value)
