"""The several spellings of structured output are one constraint (CO-33)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.world import CHAT, COMPLETIONS, Make, World

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}}
NAMED = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
FORMATS: list[tuple[dict[str, Any], str, Any]] = [
    ({"response_format": {"type": "json_object"}}, "json", {"type": "object"}),
    ({"response_format": NAMED}, "json", SCHEMA),
    ({"structured_outputs": {"json": SCHEMA}}, "json", SCHEMA),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, "json", SCHEMA),
    ({"structured_outputs": {"json_object": True}}, "json", {"type": "object"}),
    ({"structured_outputs": {"choice": ["b", "a"]}}, "choice", ["b", "a"]),
    ({"structured_outputs": {"regex": "a+"}}, "regex", "a+"),
    ({"structured_outputs": {"grammar": 'root ::= "a"'}}, "grammar", 'root ::= "a"'),
    ({"guided_json": SCHEMA}, "json", SCHEMA),
    ({"guided_json": json.dumps(SCHEMA)}, "json", SCHEMA),
    ({"guided_choice": ["b", "a"]}, "choice", ["b", "a"]),
    ({"guided_regex": "a+"}, "regex", "a+"),
    ({"guided_grammar": 'root ::= "a"'}, "grammar", 'root ::= "a"'),
]


async def guided(world: World, path: str = CHAT, **body: Any) -> Any:
    """What the reply of `body` is held to, as the compiler was told."""
    given = {"prompt": "x"} if path == COMPLETIONS else {}
    await world.whole(path, **given, **body)
    guide = world.engine.replies[-1].request.sampling.guide
    assert guide is not None
    assert guide.thinking == (path == CHAT)
    assert guide.stops == tuple(sorted(world.model.eos_ids))
    return json.loads(guide.grammar)


@pytest.mark.parametrize(("body", "form", "source"), FORMATS)
async def test_every_spelling_is_a_constraint(
    world: World, body: dict[str, Any], form: str, source: Any
) -> None:
    world.say("a")
    for path in (CHAT, *(() if "response_format" in body else (COMPLETIONS,))):
        asked = await guided(world, path, **body)
        assert (asked["form"], asked["calls"]) == (form, None)
        found = asked["source"] if isinstance(source, str) else json.loads(asked["source"])
        assert found == source
        if source == SCHEMA:  # properties are written in this order
            assert list(found["properties"]) == ["b", "a"]


@pytest.mark.parametrize(("body", "form", "source"), FORMATS)
async def test_without_the_library_each_is_refused(
    make: Make, body: dict[str, Any], form: str, source: Any
) -> None:
    error = await make(grammars=False).refused(**body)
    assert error["param"].split(".")[0] in body
    assert "streamglm[grammar]" in error["message"]


async def test_plain_text_needs_no_library(make: Make) -> None:
    world = make(grammars=False)
    world.say("a")
    await world.whole(response_format={"type": "text"})
    assert world.engine.replies[-1].request.sampling.guide is None


async def test_where_calls_are_free_the_reply_is_either(world: World) -> None:
    world.say("a")
    asked = await guided(world, tools=TOOLS, guided_json=SCHEMA)
    assert (asked["form"], asked["calls"]["type"]) == ("json", "plus")
    asked = await guided(world, tools=TOOLS, guided_json=SCHEMA, tool_choice="none")
    assert asked["calls"] is None
    asked = await guided(world, tools=TOOLS, guided_json=SCHEMA, tool_choice="required")
    assert "form" not in asked


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"a": []}}, ".properties.a"),
        ({"type": "array", "items": 3}, ".items"),
        ({"type": "string", "enum": []}, ""),
        ({"properties": {"a": {"not": {}}}}, ".properties.a"),
        ({"anyOf": [{}, {"type": "thing"}]}, ".anyOf[1]"),
        ({"$ref": "http://x/y"}, ""),
        ({"type": "array", "uniqueItems": True}, ""),
        ({"type": "object", "anyOf": [{"required": ["a"]}]}, ""),
        ({"allOf": [{}, {}]}, ""),
        ({"type": "string", "pattern": "a(?=b)"}, ""),
        ({"type": "string", "pattern": "a", "maxLength": 2}, ""),
        ({"type": "string", "format": "date", "pattern": "a"}, ""),
        ({"$defs": {"x": {"if": {}}}, "type": "object"}, ".$defs.x"),
        ({"type": "string", "enum": ["a", "abc"], "minLength": 2}, ""),
        ({"type": "integer", "enum": [1, "a"]}, ""),
        ({"type": "number", "multipleOf": 0.5}, ""),
        ({"type": "integer", "multipleOf": 5, "minimum": 1}, ""),
        ({"minimum": 3}, ""),
        ({"required": ["a"]}, ""),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, ""),
        ({"type": "object", "required": ["xa"], "patternProperties": {"^x": {}}}, ""),
        (7, ""),
    ],
)
async def test_a_schema_that_cannot_be_held_to_is_named(
    world: World, schema: Any, path: str
) -> None:
    error = await world.refused(
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    )
    assert error["param"] == "response_format.json_schema.schema"
    assert f"`response_format.json_schema.schema{path}`" in error["message"]
    assert world.engine.replies == []


async def test_a_deep_or_large_schema_is_refused_by_its_size(world: World) -> None:
    deep: Any = {}
    for _ in range(70):
        deep = {"type": "array", "items": deep}
    assert "64 schemas deep" in (await world.refused(guided_json=deep))["message"]
    large = {"enum": ["x" * 100] * 10_000}
    assert "at most 262144" in (await world.refused(guided_json=large))["message"]
    assert "at most 262144" in (await world.refused(guided_regex="a" * 300_000))["message"]


async def test_the_compilers_words_name_the_field(world: World) -> None:
    error = await world.refused(guided_regex="BAD")
    assert error["message"] == "`guided_regex` cannot be held to: it is bad."
    assert error["param"] == "guided_regex"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos"),
        ({"guided_regex": "a", "allowed_token_ids": [1]}, "allowed_token_ids"),
    ],
)
async def test_what_does_not_go_together_is_refused(
    world: World, body: dict[str, Any], param: str
) -> None:
    assert (await world.refused(**body))["param"] == param
