"""The checkpoint's chat template: messages to the text of a prompt.

Owns the sandbox that the template's Jinja runs in; the template is a stranger's program and gets
no file, no import and no mutable argument. Knows no tokens and no HTTP. Set up with the same
switches, filters and functions as the library that checkpoints are written with, so that a template
renders here as its author saw it render. Invariant: equal input gives equal text, unless the
template asks for the date.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import orjson
from jinja2.sandbox import ImmutableSandboxedEnvironment

from streamglm.errors import CheckpointError, InvalidRequest

FILE = "chat_template.jinja"
CONFIG = "tokenizer_config.json"
OPEN = "<think>"
RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
"""Variables that the server sets and `chat_template_kwargs` may not."""
LONGEST_MESSAGE = 300
UNRENDERABLE = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template can run into when the messages are not what it expects."""

log = logging.getLogger(__name__)


class _Refusal(jinja2.TemplateError):
    """Raised by the template itself, through `raise_exception`."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of a prompt; `thinking` when it ends inside an open think block."""

    text: str
    thinking: bool


class ChatTemplate:
    """A compiled template. Rendering keeps no state, so threads may share it."""

    def __init__(self, source: str, variables: Mapping[str, str] | None = None) -> None:
        """`variables` are the special tokens by name (`eos_token`). Raises `CheckpointError`."""
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(f"chat template, line {error.lineno}: {error.message}") from None
        self._variables = dict(variables or {})

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTemplate | None:
        """`chat_template.jinja`, else the one inside `tokenizer_config.json`, else None."""
        config = _config(folder / CONFIG)
        file = folder / FILE
        try:
            source = file.read_text("utf-8") if file.exists() else _inline(config)
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{FILE}: cannot be read ({error})") from None
        return None if source is None else cls(source, _special_tokens(config))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> Rendered:
        """The prompt of `messages`; `variables` reach the template under their own names.

        Raises `InvalidRequest` with the template's own words when it refuses the messages, and
        without details when it cannot render them.
        """
        given: dict[str, Any] = {**self._variables, **(variables or {})}
        given |= {"messages": messages, "tools": tools, "documents": None}
        try:
            text = self._template.render(given, add_generation_prompt=add_generation_prompt)
        except _Refusal as error:
            reason = (error.message or "no reason given")[:LONGEST_MESSAGE]
            raise InvalidRequest(f"The chat template refuses: {reason}", param="messages") from None
        except UNRENDERABLE as error:
            log.debug("the chat template failed: %r", error)
            raise InvalidRequest(
                "The chat template cannot render these messages.", param="messages"
            ) from None
        return Rendered(text, thinking=text.rstrip().endswith(OPEN))


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes for HTML, which a prompt must not."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _refuse(message: object) -> NoReturn:
    raise _Refusal(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _config(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        config = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise CheckpointError(f"{file.name}: cannot be read ({error})") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{file.name}: not a JSON object")
    return config


def _inline(config: Mapping[str, Any]) -> str | None:
    """The template inside the configuration: a text, or the one named "default" of a list."""
    found = config.get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """`eos_token` and its like, written as a text or as an object with `content`."""
    tokens: dict[str, str] = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens
