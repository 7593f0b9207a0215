"""What a body holds its reply to: the several spellings of structured output, made one.

Owns `response_format`, `structured_outputs` and the `guided_` fields: their shapes, that one of
them is used, and what of a schema is refused. Knows no compiler beyond its protocol.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import msgspec
import orjson
from msgspec import Meta

from streamglm.edge.fields import clip
from streamglm.edge.schemas import ChatBody, Choices, CompletionBody, shaped
from streamglm.errors import InvalidRequest
from streamglm.text.constraint import Constraint, Content, Form, call_structure
from streamglm.text.schemas import fault_of
from streamglm.text.tools import Tool, ToolChoice

LARGEST_SOURCE = 256 << 10
"""Bytes of a schema, an expression, a choice or a grammar."""
EXTRA = "pip install 'streamglm[grammar]'"

Text = Annotated[str, Meta(min_length=1)]


class Compiles(Protocol):
    """Makes grammars of constraints; `grammars/compiler.py` is one."""

    async def compile(self, constraint: Constraint) -> bytes:
        """The grammar, as ranks read it. Raises `InvalidRequest`, without a field's name, for what
        cannot be compiled."""
        ...


class Wanted(NamedTuple):
    """The form of an answer, and the field that asks for it."""

    content: Content
    param: str


class _Named(msgspec.Struct, frozen=True):
    schema: Any
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class _Format(msgspec.Struct, frozen=True):
    type: str
    json_schema: Any = None


class _Outputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    json: Any = None
    regex: Text | None = None
    choice: Choices | None = None
    grammar: Text | None = None
    json_object: Literal[True] | None = None
    disable_any_whitespace: bool | None = None


def wanted_of(body: ChatBody | CompletionBody) -> Wanted | None:
    """The form that `body` asks for. Raises `InvalidRequest` for two, and for one that cannot be
    held to."""
    found = [*_format(body), *_outputs(body), *_guided(body)]
    if len(found) > 1:
        raise InvalidRequest(
            f"`{found[0].param}` and `{found[1].param}` both say what form the reply has; send one "
            "of them.",
            param=found[1].param,
        )
    for wanted in found:
        _check_size(wanted)
    return found[0] if found else None


def constraint_of(
    wanted: Wanted | None, tools: Sequence[Tool], choice: ToolChoice, *, single: bool
) -> tuple[Constraint, str] | None:
    """What the reply is held to, and the field that asks for it. A call that is required leaves no
    room for content; where calls are free, the reply is the content or calls."""
    if choice.mode in ("required", "named"):
        named = choice.mode == "named"
        offered = [tool for tool in tools if not named or tool.name == choice.name]
        return Constraint(None, _structure(offered, single=single or named)), "tool_choice"
    if wanted is None:
        return None
    free = tools if choice.mode == "auto" else ()
    calls = _structure(free, single=single) if free else ""
    return Constraint(wanted.content, calls), wanted.param


async def compiled(constraint: Constraint, param: str, compiler: Compiles | None) -> bytes:
    """The grammar of `constraint`. Raises `InvalidRequest` naming `param`."""
    if compiler is None:
        raise InvalidRequest(
            f"`{param}` needs the grammar library, which this server does not have; its operator "
            f"adds it with {EXTRA}.",
            param=param,
        )
    try:
        return await compiler.compile(constraint)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"`{param}` cannot be held to: {error.message}.", param=param
        ) from None


def _structure(tools: Sequence[Tool], *, single: bool) -> str:
    text = _dumped(call_structure(tools, single=single), "tools")
    if len(text) > LARGEST_SOURCE:
        raise InvalidRequest(
            f"`tools` has {len(text)} bytes of schemas; calls can be held to at most "
            f"{LARGEST_SOURCE}.",
            param="tools",
        )
    return text


def _format(body: ChatBody | CompletionBody) -> list[Wanted]:
    if body.response_format is None:
        return []
    given = shaped(body.response_format, _Format, at="response_format")
    match given.type:
        case "text":
            return []
        case "json_object":
            return [_json({"type": "object"}, "response_format")]
        case "json_schema":
            at = "response_format.json_schema"
            if given.json_schema is None:
                raise InvalidRequest(f"`{at}` is missing.", param=at)
            return [_json(shaped(given.json_schema, _Named, at=at).schema, f"{at}.schema")]
    raise InvalidRequest(
        f"`response_format.type`: `{clip(given.type)}` is none of text, json_object, json_schema.",
        param="response_format.type",
    )


def _outputs(body: ChatBody | CompletionBody) -> list[Wanted]:
    if body.structured_outputs is None:
        return []
    at = "structured_outputs"
    given = shaped(body.structured_outputs, _Outputs, at=at)
    found = _forms(at + ".", given.json, given.regex, given.choice, given.grammar)
    if given.json_object:
        found.append(_json({"type": "object"}, f"{at}.json_object"))
    if not found:
        raise InvalidRequest(
            f"`{at}` names no form: json, regex, choice, grammar or json_object.", param=at
        )
    return found


def _guided(body: ChatBody | CompletionBody) -> list[Wanted]:
    return _forms(
        "guided_", body.guided_json, body.guided_regex, body.guided_choice, body.guided_grammar
    )


def _forms(
    stem: str, schema: Any, regex: str | None, choice: list[str] | None, grammar: str | None
) -> list[Wanted]:
    found = []
    if schema is not None:
        found.append(_json(_parsed(schema, f"{stem}json"), f"{stem}json"))
    if choice is not None:
        found.append(Wanted(Content("choice", json.dumps(choice)), f"{stem}choice"))
    texts: tuple[tuple[Form, str | None], ...] = (("regex", regex), ("grammar", grammar))
    found += [Wanted(Content(form, text), stem + form) for form, text in texts if text is not None]
    return found


def _parsed(schema: Any, param: str) -> Any:
    """A schema may come as JSON in a text."""
    if not isinstance(schema, str):
        return schema
    try:
        return orjson.loads(schema)
    except orjson.JSONDecodeError:
        raise InvalidRequest(f"`{param}` is a text that is not valid JSON.", param=param) from None


def _json(schema: Any, param: str) -> Wanted:
    if fault := fault_of(schema):
        at = clip(param + fault.path, 200)
        raise InvalidRequest(f"`{at}` {fault.what}.", param=param)
    return Wanted(Content("json", _dumped(schema, param)), param)


def _dumped(value: Any, param: str) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        raise InvalidRequest(f"`{param}` is nested too deep.", param=param) from None


def _check_size(wanted: Wanted) -> None:
    size = len(wanted.content.source.encode())
    if size > LARGEST_SOURCE:
        raise InvalidRequest(
            f"`{wanted.param}` has {size} bytes; at most {LARGEST_SOURCE} are served.",
            param=wanted.param,
        )
