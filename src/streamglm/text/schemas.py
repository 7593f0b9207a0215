"""JSON schemas that can be held to: what is wrong with one, and where.

Owns which keywords a grammar enforces. Knows no compiler, which has the last word. Invariant: a
schema that passes is enforced whole or refused by the compiler; a keyword that would be ignored is
a fault, since a reply that breaks it would come with status 200.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

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


def with_required(schema: Any) -> Any:
    """`schema` with a property for every name that is only required: of names without a schema a
    grammar sees nothing."""
    if isinstance(schema, list):
        return [with_required(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {
        key: value if key in ("enum", "const", "default", "examples") else with_required(value)
        for key, value in schema.items()
    }
    required = whole.get("required")
    properties = whole.get("properties", {})
    if isinstance(required, list) and isinstance(properties, dict):
        more = whole.get("additionalProperties", {})
        missing = [name for name in required if isinstance(name, str) and name not in properties]
        if missing and more is not False:
            whole["properties"] = properties | dict.fromkeys(missing, more)
    return whole


def _wrong(schema: Mapping[str, Any]) -> str | None:
    for key in IGNORED:
        if key in schema:
            return f"has `{key}`, which cannot be enforced"
    if schema.get("uniqueItems"):
        return "has `uniqueItems`, which cannot be enforced"
    spoken = [key for key in schema if key not in SAYS_NOTHING and not key.startswith("x-")]
    for key in ALONE:
        if key in schema and len(spoken) > 1:
            other = next(name for name in spoken if name != key)
            return f"has `{key}` beside `{other}`; only one of them can be enforced"
    return _wrong_values(schema)


def _wrong_values(schema: Mapping[str, Any]) -> str | None:
    named = schema.get("type", [])
    for name in named if isinstance(named, list) else [named]:
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
    if "pattern" in schema:
        return _wrong_pattern(schema)
    reference = schema.get("$ref", "#")
    if not (isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))):
        return "has a `$ref` that leads out of the schema"
    return None


def _wrong_pattern(schema: Mapping[str, Any]) -> str | None:
    pattern = schema["pattern"]
    if not isinstance(pattern, str):
        return "has a `pattern` that is not a text"
    if any(mark in pattern for mark in _LOOKS_AROUND):
        return "has a `pattern` that looks around, which cannot be enforced"
    if "minLength" in schema or "maxLength" in schema:
        return "has a `pattern` beside a length; only one of them can be enforced"
    return None


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in ("properties", "patternProperties", "$defs", "definitions"):
        children = schema.get(key)
        if isinstance(children, Mapping):
            yield from ((f".{key}.{name}", child) for name, child in children.items())
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(schema.get(key), list):
            yield from ((f".{key}[{i}]", child) for i, child in enumerate(schema[key]))
    for key in ("items", "additionalProperties", "unevaluatedProperties", "propertyNames"):
        if key in schema:
            yield f".{key}", schema[key]
