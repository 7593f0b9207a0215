"""The type of a call's argument: raw text and a JSON schema in, JSON text out.

Owns which JSON types a schema allows, and how a value is written as JSON. Knows no markup. A call
writes strings as they are and anything else as JSON, so the text alone does not say which it is: a
string "5" and a number 5 look the same. Invariant: what is handed out is one JSON value; a text
that is not JSON of an allowed type is a string, and JSON stays spelled as it was written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

DEEPEST = 16
"""References and alternatives that are followed; a schema beyond says nothing of its type."""
STRING = frozenset({"string"})

Kinds = frozenset[str]
"""Names of JSON types, as schemas spell them."""


def kinds(schema: Any, root: Any, depth: int = DEEPEST) -> Kinds | None:
    """The types that `schema`, a part of `root`, allows; None where it does not say."""
    if not isinstance(schema, Mapping) or depth == 0:
        return None
    if isinstance(schema.get("$ref"), str):
        return kinds(_target(schema["$ref"], root), root, depth - 1)
    if "const" in schema:
        return kinds_of(schema["const"])
    if isinstance(schema.get("enum"), list):
        return _union(kinds_of(value) for value in schema["enum"])
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if isinstance(named, list):
        return frozenset(name for name in named if isinstance(name, str))
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return _union(kinds(one, root, depth - 1) for one in schema[key])
    if isinstance(schema.get("allOf"), list):
        every = [kinds(one, root, depth - 1) for one in schema["allOf"]]
        known = [one for one in every if one is not None]
        return frozenset.intersection(*known) if known else None
    return None


def argument_kinds(parameters: Mapping[str, Any], key: str) -> Kinds | None:
    """The types of the argument `key`; None where the schema of the arguments does not say."""
    properties = parameters.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return kinds(properties[key], parameters)
    return kinds(parameters.get("additionalProperties"), parameters)


def written(text: str, allowed: Kinds | None) -> str:
    """The JSON of an argument that was written as `text`."""
    bare = text.strip()
    try:
        value = json.loads(bare, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return quoted(text)
    if isinstance(value, str):  # strings are written raw: these quotes are the string's own
        return quoted(text)
    fits = allowed is None or bool(kinds_of(value) & allowed)
    return bare if fits else quoted(text)


def quoted(text: str) -> str:
    """`text` as a JSON string."""
    return f'"{escaped(text)}"'


def escaped(text: str) -> str:
    """`text` as it stands inside a JSON string; pieces escaped alone join to the whole escaped."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def kinds_of(value: Any) -> Kinds:
    """The types of a JSON value: a whole number is an integer and a number."""
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int():
            return frozenset({"integer", "number"})
        case float():
            return frozenset({"integer", "number"} if value.is_integer() else {"number"})
        case str():
            return STRING
        case list():
            return frozenset({"array"})
        case _:
            return frozenset({"object"})


def _union(every: Iterable[Kinds | None]) -> Kinds | None:
    found: set[str] = set()
    for one in every:
        if one is None:
            return None
        found |= one
    return frozenset(found)


def _target(reference: str, root: Any) -> Any:
    """What a reference inside `root` leads to; None for any other."""
    start, *steps = reference.split("/")
    if start != "#":
        return None
    at = root
    for step in steps:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        at = at.get(name) if isinstance(at, Mapping) else None
    return at


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
