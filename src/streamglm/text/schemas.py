"""JSON schemas that can be held to: what is wrong with one, and where.

Owns which keywords a grammar enforces. Knows no compiler, which has the last word. Invariant: a
schema that passes is enforced whole or refused by the compiler; a keyword that would be ignored is
a fault, since a reply that breaks it would come with status 200.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from streamglm.text.values import kinds_of

DEEPEST = 64
TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
IGNORED = (
    *("not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"),
    *("contains", "minContains", "maxContains", "unevaluatedItems", "$dynamicRef", "$recursiveRef"),
)
"""Keywords that change what is valid and that no grammar enforces."""
ALONE = ("anyOf", "oneOf", "allOf", "$ref", "const")
"""Keywords beside which no other one is enforced."""
SAYS_NOTHING = (
    *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    *("$schema", "$id", "$comment", "$defs", "definitions", "discriminator", "nullable"),
)
LENGTHS = ("minLength", "maxLength")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
TYPED = (
    *(*BOUNDS, "multipleOf", *LENGTHS, "pattern", "format", "minItems", "maxItems"),
    *("minProperties", "maxProperties", "required", "patternProperties", "propertyNames"),
)
"""Keywords that are enforced beside a type, or properties or items that imply one."""
_LOOKS_AROUND = ("(?=", "(?!", "(?<=", "(?<!")


class Fault(NamedTuple):
    """Where in the schema, as `.properties.a`, and what is wrong."""

    path: str
    what: str


def fault_of(schema: Any) -> Fault | None:
    """The first reason for which `schema` cannot be held to, or None."""
    todo = [("", schema, 0)]
    while todo:
        path, one, depth = todo.pop()
        if isinstance(one, bool):
            continue
        if not isinstance(one, Mapping):
            return Fault(path, "is neither an object nor true or false")
        if depth > DEEPEST:
            return Fault(path, f"is more than {DEEPEST} schemas deep")
        if what := _wrong(one):
            return Fault(path, what)
        todo += [(path + step, child, depth + 1) for step, child in _children(one)]
    return None


def completed(schema: Any) -> Any:
    """`schema` with what it leaves to be understood and a grammar does not understand: a property
    for every name that is only required, and items of any kind for a list without them."""
    if isinstance(schema, list):
        return [completed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {
        key: value if key in ("enum", "const", "default", "examples") else completed(value)
        for key, value in schema.items()
    }
    missing = _undeclared(whole)
    if missing:
        more = whole.get("additionalProperties", {})
        whole["properties"] = whole.get("properties", {}) | dict.fromkeys(missing, more)
    named = whole.get("type")
    lists = named == "array" or (isinstance(named, list) and "array" in named)
    if lists and not {"items", "prefixItems", "unevaluatedItems"} & whole.keys():
        whole["items"] = {}
    return whole


def _undeclared(schema: Mapping[str, Any]) -> list[str]:
    """Names that are required and have no schema of their own."""
    required, properties = schema.get("required"), schema.get("properties", {})
    if not isinstance(required, list) or not isinstance(properties, Mapping):
        return []
    return [name for name in required if isinstance(name, str) and name not in properties]


def _wrong(schema: Mapping[str, Any]) -> str | None:
    for key in IGNORED:
        if key in schema:
            return f"has `{key}`, which cannot be enforced"
    if schema.get("uniqueItems"):
        return "has `uniqueItems`, which cannot be enforced"
    spoken = [key for key in schema if key not in SAYS_NOTHING and not key.startswith("x-")]
    return (
        _wrong_shapes(schema)
        or _wrong_neighbours(schema, spoken)
        or _wrong_pattern(schema)
        or _wrong_required(schema)
    )


def _wrong_shapes(schema: Mapping[str, Any]) -> str | None:
    for name in _types(schema):
        if name not in TYPES:
            return "has a `type` that is none of " + ", ".join(TYPES)
    for key in ("anyOf", "oneOf", "allOf", "enum"):
        if key in schema and not (isinstance(schema[key], list) and schema[key]):
            return f"has an `{key}` that is not a list with something in it"
    if len(schema.get("allOf", ())) > 1:
        return "has an `allOf` of several, which cannot be enforced"
    required = schema.get("required", [])
    if not (isinstance(required, list) and all(isinstance(name, str) for name in required)):
        return "has a `required` that is not a list of names"
    if not isinstance(schema.get("properties", {}), Mapping):
        return "has `properties` that are not an object"
    reference = schema.get("$ref", "#")
    if not (isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))):
        return "has a `$ref` that leads out of the schema"
    return None


def _wrong_neighbours(schema: Mapping[str, Any], spoken: Sequence[str]) -> str | None:
    """Of two keywords a grammar may see one alone."""
    for key in ALONE:
        if key in schema and len(spoken) > 1:
            return _apart(key, next(name for name in spoken if name != key))
    for key in ("enum", "multipleOf"):
        others = [name for name in spoken if name not in (key, "type")]
        if key in schema and others:
            return _apart(key, others[0])
    if "multipleOf" in schema and _types(schema) != ["integer"]:
        return "has `multipleOf`, which can be enforced of the type `integer` alone"
    allowed = frozenset(_types(schema))
    if "enum" in schema and allowed and not all(kinds_of(v) & allowed for v in schema["enum"]):
        return "has a value in `enum` that is not of its `type`"
    if not {"type", "properties", "items", "prefixItems"} & schema.keys():
        for key in TYPED:
            if key in schema:
                return f"has `{key}` and no `type`, without which it cannot be enforced"
    return None


def _wrong_pattern(schema: Mapping[str, Any]) -> str | None:
    for key in ("pattern", "format"):
        for other in ("pattern", *LENGTHS):
            if key != other and key in schema and other in schema:
                return _apart(key, other)
    pattern = schema.get("pattern", "")
    if not isinstance(pattern, str):
        return "has a `pattern` that is not a text"
    if any(mark in pattern for mark in _LOOKS_AROUND):
        return "has a `pattern` that looks around, which cannot be enforced"
    return None


def _wrong_required(schema: Mapping[str, Any]) -> str | None:
    for name in _undeclared(schema):
        if schema.get("additionalProperties") is False or "patternProperties" in schema:
            return f"requires `{name[:40]}`, which is not among its `properties`"
    return None


def _apart(key: str, other: str) -> str:
    return f"has `{key}` beside `{other[:40]}`; only one of them can be enforced"


def _types(schema: Mapping[str, Any]) -> list[Any]:
    named = schema.get("type", [])
    return named if isinstance(named, list) else [named]


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in ("properties", "patternProperties", "$defs", "definitions"):
        children = schema.get(key)
        if isinstance(children, Mapping):
            yield from ((f".{key}.{name}", child) for name, child in children.items())
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(schema.get(key), list):
            yield from ((f".{key}[{i}]", child) for i, child in enumerate(schema[key]))
    for key in ("items", "additionalProperties", "unevaluatedProperties"):
        if key in schema:
            yield f".{key}", schema[key]
    names = schema.get("propertyNames", True)
    yield ".propertyNames", {"type": "string", **names} if isinstance(names, Mapping) else names
