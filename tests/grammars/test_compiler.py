"""Constraints are compiled in a process apart, within their time, and one that cannot be costs
nobody anything (CO-33)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from streamglm import nano
from streamglm.errors import CompilerFailed, InvalidRequest, Overloaded
from streamglm.grammars.compiler import MOST_ASKING, Compiler
from streamglm.sampling.grammar import Grammars, Matcher
from streamglm.sampling.vocabulary import Vocabulary
from streamglm.step import pack
from streamglm.text.constraint import Constraint, Content, call_structure
from streamglm.text.schemas import fault_of
from streamglm.text.tokenizer import Tokenizer
from streamglm.text.tools import Tool


def huge(word: str) -> Constraint:
    """Takes many times the limit of the tests here."""
    schema = {"enum": [f"{word} {i:07}" for i in range(20_000)]}
    return Constraint(Content("json", json.dumps(schema)))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    found = Tokenizer.from_folder(nano.folder())
    assert found is not None
    return found


@pytest.fixture(scope="module")
def end(tokenizer: Tokenizer) -> int:
    (token,) = tokenizer.encode("<|user|>")
    return token


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer, end: int) -> Grammars:
    return Grammars(Vocabulary.of(tokenizer.said, tokenizer.size, (end,)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def compiler(tokenizer: Tokenizer, end: int) -> AsyncIterator[Compiler]:
    made = Compiler(nano.folder(), tokenizer.size, [end], seconds=2.0)
    yield made
    await made.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")


def says(matcher: Matcher, text: str, tokenizer: Tokenizer) -> bool:
    """Whether every token of `text` is within the masks, and the end after it."""
    for token in tokenizer.encode(text):
        if not _allows(matcher, token):
            return False
        matcher.push(token)
    return _allows(matcher, tokenizer.encode("<|user|>")[0])


def _allows(matcher: Matcher, token: int) -> bool:
    mask = matcher.mask()
    return not mask or bool(
        int.from_bytes(mask, "little") & int.from_bytes(pack([token]), "little")
    )


async def test_each_form_is_held_to(
    compiler: Compiler, grammars: Grammars, tokenizer: Tokenizer
) -> None:
    forms: list[tuple[Any, list[str], list[str]]] = [
        (("json", '{"type": "integer"}'), ["12", "-3"], ["", "a", "1.5", " 12"]),
        (("json", '{"type": "object", "required": ["z"]}'), ['{"z": []}'], ["{}", '{"z":[]}']),
        (("json", '{"type": "array", "minItems": 1}'), ["[1]", '["a", {}]'], ["[]", "5"]),
        (("regex", "[ab]{2}-?"), ["ab", "ba-"], ["a", "abc"]),
        (("choice", '["red", "blue"]'), ["red", "blue"], ["re", "redblue", "green"]),
        (("choice", '["red"]'), ["red"], ["blue"]),
        (("grammar", 'root ::= "x" | "y" root'), ["x", "yyx"], ["y", "xx"]),
        (("grammar", 'start: "x" | "z"'), ["x", "z"], ["y"]),
    ]
    for content, right, wrong in forms:
        grammar = await compiler.compile(Constraint(Content(*content)))
        for text, wanted in [*((t, True) for t in right), *((t, False) for t in wrong)]:
            assert says(grammars.matcher(grammar), text, tokenizer) == wanted, (content, text)


# values of every type, near the bounds that the schemas below draw
VALUES: list[Any] = [
    *(None, True, 0, 1, 2, 3, 5, 6, 9, -1, -3, 1.5, -0.5, 100, "", "a", "ab", "xa", "2024-01-01"),
    *([], [1], [1, 2], [1, 2, 3], ["a"], [1, "a"], [1, "a", 2], {}, {"a": 1}, {"b": 1}, {"xa": 1}),
    *({"a": 1, "b": 2}, {"xa": "s"}, {"a": "s"}, {"y": 1}, {"a": 1, "c": 3}),
]
KEYWORDS: list[Any] = [
    *({"type": "integer", "multipleOf": 3}, {"type": "integer", "minimum": -2, "maximum": 5}),
    *({"type": "number", "exclusiveMinimum": 1}, {"type": ["string", "integer"], "minimum": 3}),
    *({"type": "string", "minLength": 2}, {"type": "string", "format": "date"}, {"type": "array"}),
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
    {"type": "object", "propertyNames": {"pattern": "^x"}},
    {"type": "object", "required": ["b"], "properties": {"a": {"type": "integer"}}},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 1},
    {"type": "array", "minItems": 1, "maxItems": 2},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2},
    {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    {"type": "integer", "enum": [1, 5]},
]


@pytest.mark.parametrize("schema", KEYWORDS, ids=json.dumps)
async def test_a_grammar_takes_nothing_that_its_schema_does_not(
    compiler: Compiler, grammars: Grammars, tokenizer: Tokenizer, schema: Any
) -> None:
    assert fault_of(schema) is None
    grammar = await compiler.compile(Constraint(Content("json", json.dumps(schema))))
    judge = Draft202012Validator(schema)
    taken = [
        value for value in VALUES if says(grammars.matcher(grammar), json.dumps(value), tokenizer)
    ]
    assert taken, "it takes something"
    assert [value for value in taken if not judge.is_valid(value)] == []


async def test_calls_are_held_to(
    compiler: Compiler, grammars: Grammars, tokenizer: Tokenizer
) -> None:
    parameters = {
        "type": "object",
        "properties": {
            "q": {"type": "string"},
            "n": {"type": "integer"},
            "e": {"enum": ["up", "down"]},
            "s": {"type": "string", "maxLength": 2},
        },
        "required": ["q", "z"],
    }
    tools = [Tool("f", "", parameters), Tool("now", "", {})]

    def call(name: str, **values: str) -> str:
        pairs = (f"<arg_key>{k}</arg_key><arg_value>{v}</arg_value>" for k, v in values.items())
        return f"<tool_call>{name}{''.join(pairs)}</tool_call>"

    several = await compiler.compile(
        Constraint(None, json.dumps(call_structure(tools, single=False)))
    )
    single = await compiler.compile(
        Constraint(None, json.dumps(call_structure(tools[1:], single=True)))
    )
    both = await compiler.compile(
        Constraint(Content("regex", "no"), json.dumps(call_structure(tools, single=True)))
    )
    right = [call("f", q="any <b>", z="1"), call("f", q="", n="5", e="up", s="ab", z="x") * 2]
    wrong = [
        *("", "no", call("g"), call("f"), call("f", q="x"), call("f", q="x", n="five", z="1")),
        *(call("f", q="x", e="up ", z="1"), call("f", q="x", s="abc", z="1")),
        *(call("f", q="x", s="ab ", z="1"), call("f", q="x", z="1") + "a"),
    ]
    for grammar, texts, wanted in (
        *((several, right, True), (several, wrong, False)),
        *((single, [call("now"), call("now", any="1")], True), (single, [call("now") * 2], False)),
        *((both, ["no", right[0]], True), (both, ["yes", right[1]], False)),
    ):
        for text in texts:
            assert says(grammars.matcher(grammar), text, tokenizer) == wanted, text


@pytest.mark.parametrize(
    "content",
    [
        Content("json", '{"type": "string", "pattern": "(["}'),
        Content("json", '{"$ref": "#/nowhere"}'),
        Content("json", '{"$ref": "#"}'),
        Content("json", '{"type": "integer", "minimum": 5, "maximum": 2}'),
        Content("regex", "(["),
        Content("regex", "a(?=b)"),
        Content("grammar", "root ::= other"),
        Content("grammar", "no grammar"),
    ],
)
async def test_what_cannot_be_compiled_is_refused_in_a_line(
    compiler: Compiler, content: Content
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await compiler.compile(Constraint(content))
    assert "\n" not in caught.value.message
    assert 3 < len(caught.value.message) < 260
    assert ".cc" not in caught.value.message


async def test_what_takes_too_long_is_refused_and_the_next_is_served(compiler: Compiler) -> None:
    await compiler.compile(Constraint(Content("regex", "a")))
    began = time.monotonic()
    with pytest.raises(InvalidRequest, match="more than 2 s"):
        await compiler.compile(huge("slow"))
    assert time.monotonic() - began < 5
    began = time.monotonic()
    with pytest.raises(InvalidRequest, match="more than 2 s"):
        await compiler.compile(huge("slow"))
    assert time.monotonic() - began < 1, "the answer is known"
    assert await compiler.compile(Constraint(Content("regex", "b+")))


async def test_a_process_that_dies_costs_one_request(compiler: Compiler) -> None:
    await compiler.compile(Constraint(Content("regex", "c")))
    assert compiler.pid is not None
    asking = asyncio.create_task(compiler.compile(huge("dies")))
    await asyncio.sleep(0)  # the question is on its way
    os.kill(compiler.pid, signal.SIGKILL)
    with pytest.raises(InvalidRequest, match="can hold"):
        await asking
    assert await compiler.compile(Constraint(Content("regex", "d+")))


async def test_a_question_that_nobody_waits_for_is_not_answered_to_the_next(
    compiler: Compiler,
) -> None:
    await compiler.compile(Constraint(Content("regex", "h")))  # the process is there
    asking = asyncio.create_task(compiler.compile(huge("left")))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    first = await compiler.compile(Constraint(Content("regex", "e+")))
    assert first == await compiler.compile(Constraint(Content("regex", "e+")))
    assert first != await compiler.compile(Constraint(Content("regex", "f+")))


async def test_a_token_outside_the_mask_leaves_nothing_to_draw(
    compiler: Compiler, grammars: Grammars, tokenizer: Tokenizer
) -> None:
    matcher = grammars.matcher(await compiler.compile(Constraint(Content("regex", "a"))))
    matcher.push(tokenizer.encode("b")[0])
    assert not any(matcher.mask())
    assert matcher.mask()


async def test_more_than_some_questions_at_once_are_too_many(compiler: Compiler) -> None:
    texts = [f"g{i}" for i in range(40)]
    asked = [compiler.compile(Constraint(Content("regex", text))) for text in texts]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [one for one in answers if isinstance(one, Overloaded)]
    assert len(refused) == 40 - MOST_ASKING
    assert all(isinstance(one, bytes) for one in answers[:MOST_ASKING])


async def test_a_process_that_cannot_start_is_named(tmp_path: Path) -> None:
    broken = Compiler(tmp_path, 512, [1])  # a folder without a tokenizer
    with pytest.raises(CompilerFailed):
        await broken.compile(Constraint(Content("regex", "a")))
    assert broken.pid is None
