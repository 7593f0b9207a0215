"""Calls in a reply's text: typed, streamed as written, the same however the text is cut
(CO-18, CO-19, CO-23)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamglm.text.markup import Kind, Markup
from streamglm.text.tools import Tool

TYPED = Tool(
    "f",
    "",
    {
        "type": "object",
        "properties": {
            "q": {"type": "string"},
            "n": {"type": "integer"},
            "x": {"type": "number"},
            "ok": {"type": "boolean"},
            "tags": {"type": "array"},
            "o": {"type": "object"},
            "z": {"type": "null"},
        },
    },
)
OTHER = Tool("lookup.now", "", {})
TOOLS = (TYPED, OTHER)


def call(name: str = "f", **values: str) -> str:
    """A call as GLM writes it."""
    pairs = (f"<arg_key>{k}</arg_key><arg_value>{v}</arg_value>" for k, v in values.items())
    return f"<tool_call>{name}{''.join(pairs)}</tool_call>"


ALL = call(q="10", n="10", x="1.50", ok="true", tags='["a", "b"]', o='{"k": 1}', z="null", u="7up")

Read = tuple[str, str, list[tuple[str, str]], int]


def read(
    parts: Iterable[str], *, thinking: bool = False, ended: bool = True, single: bool = False
) -> Read:
    """(reasoning, content, (name, arguments) of each call, complete calls)."""
    markup = Markup(thinking=thinking, tools=TOOLS, single=single)
    pieces = [piece for part in parts for piece in markup.feed(part)]
    pieces += markup.finish(ended=ended)
    text = {Kind.REASONING: "", Kind.CONTENT: ""}
    calls: list[tuple[str, str]] = []
    for kind, one in pieces:
        assert one, "a piece is never empty"
        if kind is Kind.CALL:
            calls.append((one, ""))
        elif kind is Kind.ARGUMENTS:
            calls[-1] = (calls[-1][0], calls[-1][1] + one)
        else:
            text[kind] += one
    return text[Kind.REASONING], text[Kind.CONTENT], calls, markup.calls


def values(text: str, **options: Any) -> list[tuple[str, Any]]:
    """The calls of `text` with their arguments as values."""
    return [(name, json.loads(arguments)) for name, arguments in read([text], **options)[2]]


def test_arguments_have_the_types_of_the_schema() -> None:
    wanted = {
        "q": "10",
        "n": 10,
        "x": 1.5,
        "ok": True,
        "tags": ["a", "b"],
        "o": {"k": 1},
        "z": None,
        "u": "7up",
    }
    assert values(ALL) == [("f", wanted)]
    assert read([ALL])[:2] == ("", "")
    assert read(ALL) == read([ALL])  # one character at a time


@pytest.mark.parametrize("thinking", [False, True])
def test_a_call_that_is_cut_is_never_complete(thinking: bool) -> None:
    text = f"why</think>{ALL}" if thinking else ALL
    for stop in range(len(text)):
        _, content, calls, complete = read([text[:stop]], thinking=thinking, ended=False)
        assert complete == 0
        assert not any(tag in content for tag in ("<tool_call>", "<arg_key>", "<arg_value>"))
        for _, arguments in calls:
            with pytest.raises(ValueError, match=r"Expecting|Unterminated|Extra"):
                json.loads(arguments)
    assert read([text], thinking=thinking, ended=False)[3] == 1


def test_a_string_is_passed_on_as_it_comes() -> None:
    markup = Markup(thinking=False, tools=TOOLS)
    markup.feed("<tool_call>f<arg_key>q</arg_key><arg_value>")
    assert [piece.text for piece in markup.feed('a "long')] == ['a \\"long']
    assert [piece.text for piece in markup.feed("\nvalue</arg")] == ["\\nvalue"]
    assert markup.feed("_value>")[0].text == '"'


# what a model may write around and inside calls
WORDS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        *("</think>", "<tool_", "call>", "</", "<", "f", "lookup.now", "q", "n", "12", '"', "🦉"),
        *(" ", "\n", "x y", "\\", ALL, call(q="a"), call("lookup.now"), "<arg_key>n</arg_key>"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    words=st.lists(WORDS, max_size=14),
    cuts=st.lists(st.integers(0, 120)),
    thinking=st.booleans(),
    ended=st.booleans(),
    single=st.booleans(),
)
def test_every_way_to_cut_gives_the_same(
    words: list[str], cuts: list[int], thinking: bool, ended: bool, single: bool
) -> None:
    text = "".join(words)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    parts = [text[a:b] for a, b in itertools.pairwise(edges)]
    whole = read([text], thinking=thinking, ended=ended, single=single)
    assert read(parts, thinking=thinking, ended=ended, single=single) == whole
    assert read(text, thinking=thinking, ended=ended, single=single) == whole
    for _, arguments in whole[2][: whole[3]]:
        assert isinstance(json.loads(arguments), dict)


@given(text=st.text(alphabet='ab<>/"\\\n🦉', max_size=30).filter(lambda t: "</arg_value>" not in t))
def test_any_string_arrives_as_it_was_written(text: str) -> None:
    assert values(call(q=text)) == [("f", {"q": text})]


def test_calls_follow_each_other() -> None:
    text = f"Both.\n{call(q='a')}\n{call('lookup.now')}\n"
    assert read([text]) == ("", "Both.\n", [("f", '{"q": "a"}'), ("lookup.now", "{}")], 2)
    assert read([text], single=True) == ("", "Both.\n", [("f", '{"q": "a"}')], 1)


def test_white_space_alone_beside_calls_is_no_content() -> None:
    assert read([f"\n{call()}\n"])[1] == ""
    assert read(["\n"])[1] == "\n"
    assert read([f"{call()}\nand"])[1] == "\nand"


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call> is a tag",
        "<tool_call></tool_call>",
        "a <tool_call>f g</tool_call>",
        "<tool_call>",
    ],
)
def test_a_tag_without_a_name_is_content(text: str) -> None:
    assert read([text]) == ("", text, [], 0)


def test_tags_inside_a_value_are_part_of_it() -> None:
    assert values(call(q="</tool_call><arg_key></think>")) == [
        ("f", {"q": "</tool_call><arg_key></think>"})
    ]


def test_white_space_between_tags_means_nothing() -> None:
    spread = "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>\n3\n</arg_value>\n</tool_call>"
    assert values(spread) == [("f", {"n": 3})]


def test_a_key_that_comes_twice_keeps_its_first_value() -> None:
    twice = call(q="a").replace("</tool_call>", "<arg_key>q</arg_key><arg_value>b</arg_value>")
    assert read([twice + "</tool_call>"])[2] == [("f", '{"q": "a"}')]


def test_a_missing_closing_tag_alone_is_forgiven() -> None:
    assert read([call(q="a").removesuffix("</tool_call>")]) == ("", "", [("f", '{"q": "a"}')], 1)
    assert read(["<tool_call>f<arg_key>q</arg_key><arg_value>a"])[3] == 0


# -- inside an open think block


def test_a_call_that_ends_open_reasoning_is_a_call() -> None:
    text = f"let me {call(q='1')}"
    assert read([text], thinking=True) == ("let me ", "", [("f", '{"q": "1"}')], 1)
    assert read([text, "\n", call("lookup.now")], thinking=True)[3] == 2
    assert read([text, call(q="2")], thinking=True, single=True)[2] == [("f", '{"q": "1"}')]


def test_a_call_that_closed_reasoning_mentions_stays_reasoning() -> None:
    text = f"let me {call(q='1')}"
    assert read([f"{text}</think>done"], thinking=True) == (text, "done", [], 0)


@pytest.mark.parametrize(
    "text",
    [
        f"{call(q='1')} or not",  # the reasoning went on
        call("unknown", q="1"),
        "<tool_call>f<arg_key>q</arg_key><arg_value>1",
        "use <tool_call> with f",
        f"{call()}</thi",
    ],
)
def test_a_mention_in_open_reasoning_is_no_call(text: str) -> None:
    assert read([text], thinking=True) == (text, "", [], 0)


def test_a_call_in_reasoning_that_is_cut_is_reasoning() -> None:
    assert read([call(q="1")], thinking=True, ended=False) == (call(q="1"), "", [], 0)
