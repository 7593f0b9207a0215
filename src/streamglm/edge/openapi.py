"""The server's own OpenAPI document, made from what bodies are checked with.

Owns the document's form and the shapes of answers. Knows no policies: fields come from
`edge/fields.py`, their types from `edge/schemas.py`, routes from the application. Invariant: every
route is in the document, and a body's properties are exactly its fields: an honoured one with its
type, an inert one with any, a refused one with the values that ask for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from starlette.routing import BaseRoute, Route

from streamglm import __version__
from streamglm.edge import anthropic_fields, fields, responses_fields, schemas
from streamglm.edge.anthropic_fields import COUNT_TOKENS, MESSAGES
from streamglm.edge.anthropic_schemas import MessagesBody, PromptBody
from streamglm.edge.fields import CHAT, COMPLETIONS, DETOKENIZE, TOKENIZE, Verdict
from streamglm.edge.messages import ROLES
from streamglm.edge.responses_fields import RESPONSES
from streamglm.edge.responses_schemas import ResponsesBody

PATH = "/openapi.json"
BODIES: Mapping[str, type] = {
    CHAT: schemas.ChatBody,
    COMPLETIONS: schemas.CompletionBody,
    TOKENIZE: schemas.TokenizeBody,
    DETOKENIZE: schemas.DetokenizeBody,
    MESSAGES: MessagesBody,
    COUNT_TOKENS: PromptBody,
    RESPONSES: ResponsesBody,
}
FIELDS = (*fields.FIELDS, *anthropic_fields.FIELDS, *responses_fields.FIELDS)
"""Of every API."""
_REFERENCE = "#/components/schemas/{name}"

Schema = dict[str, Any]


def _object(required: Iterable[str] = (), **properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _either(*every: Schema) -> Schema:
    return {"anyOf": list(every)}


def _fixed(value: Any) -> Schema:
    return {"enum": [value]}


_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_IDS = _list(_COUNT)
_NULL: Schema = {"type": "null"}
_NAMED = _object(["name"], name={"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"})
_TOOL = _object(
    ["type", "function"],
    type=_fixed("function"),
    function=_object(
        ["name"],
        **_NAMED["properties"],
        description=_TEXT,
        parameters={"type": "object"},
        strict={"type": "boolean"},
    ),
)
_JSON_SCHEMA = _either({"type": "object"}, {"type": "boolean"})
_OUTPUTS = {
    "json": _JSON_SCHEMA,
    "regex": {"type": "string", "minLength": 1},
    "choice": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    "grammar": {"type": "string", "minLength": 1},
    "json_object": _fixed(True),
}
_UNTYPED: Mapping[str, Schema] = {
    "prompt": _either(_TEXT, {**_IDS, "minItems": 1}, {**_list(_TEXT), "maxItems": 1}),
    "tools": _list(_TOOL),
    "tool_choice": _either(
        {"enum": ["auto", "none", "required"]},
        _object(["type", "function"], type=_fixed("function"), function=_NAMED),
    ),
    "response_format": _either(
        _object(["type"], type={"enum": ["text", "json_object"]}),
        _object(
            ["type", "json_schema"],
            type=_fixed("json_schema"),
            json_schema=_object(["schema"], name=_TEXT, schema=_JSON_SCHEMA),
        ),
    ),
    "structured_outputs": _either(
        *(
            {**_object([key], **{key: one}), "additionalProperties": False}
            for key, one in _OUTPUTS.items()
        )
    ),
    "guided_json": _either(_JSON_SCHEMA, _TEXT),
}
"""Of honoured fields of chat completions and completions that the server reads by hand."""

_USAGE = _object(
    ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"],
    prompt_tokens=_COUNT,
    completion_tokens=_COUNT,
    total_tokens=_COUNT,
    prompt_tokens_details=_object(["cached_tokens"], cached_tokens=_COUNT),
    completion_tokens_details=_object(["reasoning_tokens"], reasoning_tokens=_COUNT),
)
_READ = {"prompt_tokens_details": _USAGE["properties"]["prompt_tokens_details"]}
_FIGURES = _object(["token_sha", "seed"], token_sha={"type": "string", "pattern": "^[0-9a-f]{64}$"})
_CALL = _object(
    ["id", "type", "function"],
    id={"type": "string", "minLength": 1},
    type=_fixed("function"),
    function=_object(["name", "arguments"], name=_TEXT, arguments=_TEXT),
)
_MESSAGE = _object(
    ["role", "content"],
    role=_fixed("assistant"),
    content=_either(_TEXT, _NULL),
    reasoning_content=_TEXT,
    tool_calls={**_list(_CALL), "minItems": 1},
)
_MODEL = _object(
    ["id", "object", "context_length", "max_model_len"],
    id=_TEXT,
    object=_fixed("model"),
    context_length=_COUNT,
    max_model_len=_COUNT,
)


def _reply(kind: str, reasons: list[str], **said: Schema) -> Schema:
    choice = _object(
        ["index", "finish_reason", "logprobs", *said],
        index=_fixed(0),
        finish_reason={"enum": reasons},
        logprobs=_either({"type": "object"}, _NULL),
        token_ids=_IDS,
        **said,
    )
    return _object(
        ["id", "object", "created", "model", "choices", "usage", "streamglm"],
        id=_TEXT,
        object=_fixed(kind),
        created=_COUNT,
        model=_TEXT,
        choices={**_list(choice), "minItems": 1, "maxItems": 1},
        usage=_USAGE,
        streamglm=_FIGURES,
        prompt_token_ids=_IDS,
    )


ANSWERS: Mapping[str, Schema] = {
    CHAT: _reply("chat.completion", ["stop", "length", "tool_calls"], message=_MESSAGE),
    COMPLETIONS: _reply("text_completion", ["stop", "length"], text=_TEXT),
    TOKENIZE: _object(["tokens", "count", "max_model_len"], tokens=_IDS, count=_COUNT),
    DETOKENIZE: _object(["prompt"], prompt=_TEXT),
    MESSAGES: _object(
        ["id", "type", "role", "model", "content", "stop_reason", "usage", "streamglm"],
        id=_TEXT,
        type=_fixed("message"),
        role=_fixed("assistant"),
        content=_list(_object(["type"], type={"enum": ["thinking", "text", "tool_use"]})),
        stop_reason={"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
        usage=_object(
            ["input_tokens", "cache_read_input_tokens", "output_tokens"],
            input_tokens=_COUNT,
            cache_read_input_tokens=_COUNT,
            output_tokens=_COUNT,
            **_READ,
        ),
        streamglm=_FIGURES,
    ),
    COUNT_TOKENS: _object(["input_tokens"], input_tokens=_COUNT),
    RESPONSES: _object(
        ["id", "object", "status", "model", "output", "usage", "streamglm"],
        id=_TEXT,
        object=_fixed("response"),
        status={"enum": ["completed", "incomplete"]},
        output=_list(
            _object(
                ["id", "type", "status"], type={"enum": ["reasoning", "message", "function_call"]}
            )
        ),
        usage=_object(
            ["input_tokens", "output_tokens", "total_tokens"],
            input_tokens=_COUNT,
            output_tokens=_COUNT,
            total_tokens=_COUNT,
            **_READ,
        ),
        streamglm=_FIGURES,
    ),
    "/v1/models": _object(["object", "data"], object=_fixed("list"), data=_list(_MODEL)),
    "/v1/models/{name}": _MODEL,
    "/health": _object(["status"], status=_TEXT),
    "/v1/pool": _object(["page_rows", "pages"], page_rows=_COUNT),
    PATH: _object(["openapi", "paths"]),
}
"""Of status 200, by path; a route that is not here answers what its own page says."""
ERROR = _object(
    ["error"],
    error=_object(
        ["message", "type", "param", "code"],
        message=_TEXT,
        type=_TEXT,
        param=_either(_TEXT, _NULL),
        code=_either(_TEXT, _NULL),
    ),
)


def document(routes: Iterable[BaseRoute], model: str) -> Schema:
    """The document of an application with these routes, which serves `model`."""
    paths: dict[str, Any] = {}
    for route in routes:
        if isinstance(route, Route):
            path = route.path.replace(":path}", "}")
            for method in sorted(route.methods or ()):
                if method != "HEAD":
                    paths.setdefault(path, {})[method.lower()] = _operation(path, method)
    bodies, shared = msgspec.json.schema_components(BODIES.values(), ref_template=_REFERENCE)
    shared |= {"Error": ERROR}
    chat = shared["ChatBody"]["properties"]
    for path, reference in zip(BODIES, bodies, strict=True):
        name = reference["$ref"].rpartition("/")[2]
        shared[name] = _body(path, shared[name], chat)
        shared[name]["properties"]["model"] = {"enum": [model, None]}
    shared["Message"]["properties"]["role"] = {"enum": list(ROLES)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "streamglm", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": shared,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(path: str, method: str) -> Schema:
    operation: Schema = {"responses": _responses(path)}
    if "{" in path:
        name = path.partition("{")[2].partition("}")[0]
        operation["parameters"] = [{"name": name, "in": "path", "required": True, "schema": _TEXT}]
    if path in BODIES:
        schema = {"$ref": _REFERENCE.format(name=BODIES[path].__name__)}
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _responses(path: str) -> Schema:
    error = {"$ref": _REFERENCE.format(name="Error")}
    refused = {
        "description": "refused, or failed",
        "content": {"application/json": {"schema": error}},
    }
    if path not in ANSWERS:
        return {"default": {"description": "see docs/http.md"}}
    content: Schema = {"application/json": {"schema": ANSWERS[path]}}
    if path in (CHAT, COMPLETIONS, MESSAGES, RESPONSES):
        content["text/event-stream"] = {"schema": _object(["data"], data=_TEXT)}
    return {"200": {"description": "done", "content": content}, "default": refused}


def _body(path: str, typed: Schema, chat: Mapping[str, Schema]) -> Schema:
    """The schema of a body: its fields, and no others. `chat` has the types of fields that another
    API hands on as they are."""
    known = {**chat, **typed["properties"]}
    if any(path in field.routes for field in fields.FIELDS):
        known |= _UNTYPED
    properties: dict[str, Schema] = {}
    for field in FIELDS:
        if path not in field.routes:
            continue
        if field.verdict is Verdict.INERT:
            properties[field.name] = {"description": field.note}
        elif field.verdict is Verdict.REFUSED:
            properties[field.name] = {"enum": [None, *field.neutral], "description": field.note}
        else:
            # what is handed on and inert there may be anything
            shape = _nullable(known.get(field.name, {}))
            properties[field.name] = shape | {"description": field.note}
    required = typed.get("required", [])
    for name in required:
        properties[name] = known[name]
    body = _object(required, **properties) | {"additionalProperties": False}
    if path == TOKENIZE:
        body["anyOf"] = [{"required": ["prompt"]}, {"required": ["messages"]}]
    return body


def _nullable(shape: Schema) -> Schema:
    """Null is the same as left out."""
    if _NULL in shape.get("anyOf", ()):
        return {"anyOf": shape["anyOf"]}
    bare = {key: value for key, value in shape.items() if key not in ("default", "description")}
    return _either(bare, _NULL)
