"""The type of an argument follows the tool's schema, and its text is never lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamglm.text.values import argument_kinds, kinds, written

REFERS = {
    "$defs": {"count": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
    "properties": {"n": {"$ref": "#/$defs/count"}, "l": {"$ref": "#/$defs/loop"}},
    "additionalProperties": {"type": "boolean"},
}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "10", 10),
        ({"type": "integer"}, "1e2", 100),
        ({"type": "integer"}, "1.5", "1.5"),
        ({"type": "integer"}, "ten", "ten"),
        ({"type": "number"}, " 7 ", 7),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "boolean"}, "True", "True"),
        ({"type": "array"}, "[1, 2", "[1, 2"),
        ({"type": "array"}, '{"a": 1}', '{"a": 1}'),
        ({"type": "null"}, "null", None),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "5", "5"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "5", 5),
        ({"oneOf": [{"type": "object"}, {"type": "null"}]}, '{"a": [1]}', {"a": [1]}),
        ({"allOf": [{"type": ["integer", "string"]}, {"type": "integer"}]}, "5", 5),
        ({"anyOf": [{"type": "string"}, {}]}, "5", 5),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, "auto"]}, "1", 1),
        ({"enum": [1, "auto"]}, "auto", "auto"),
        ({"const": True}, "true", True),
        ({}, "5", 5),
        ({}, '"5"', '"5"'),
        (None, "7up", "7up"),
        (True, "[]", []),
        ({"type": 5}, "5", 5),
        ({}, "[" * 100_000, "[" * 100_000),
        ({}, "9" * 5000, "9" * 5000),  # beyond what this Python reads as one number
    ],
)
def test_a_value_is_what_its_schema_says_or_a_string(schema: Any, text: str, value: Any) -> None:
    assert json.loads(written(text, kinds(schema, schema))) == value


def test_numbers_stay_as_they_were_written() -> None:
    assert written(" 1.50", frozenset({"number"})) == "1.50"
    assert written("12345678901234567890123", frozenset({"integer"})) == "12345678901234567890123"


def test_references_are_followed_within_the_schema() -> None:
    assert argument_kinds(REFERS, "n") == frozenset({"integer"})
    assert argument_kinds(REFERS, "l") is None
    assert argument_kinds(REFERS, "other") == frozenset({"boolean"})
    assert argument_kinds({"properties": [1]}, "n") is None
