"""What the other APIs are made of: parts of a reply, and errors under other names."""

from __future__ import annotations

import pytest

from streamglm.edge.parts import Part, Parts, is_whole
from streamglm.edge.renames import Renames
from streamglm.errors import InvalidRequest, Overloaded
from streamglm.text.pieces import Kind, Piece


def test_parts_do_not_depend_on_how_the_pieces_were_cut() -> None:
    pieces = [
        Piece(Kind.REASONING, "we"),
        Piece(Kind.REASONING, "igh"),
        Piece(Kind.CONTENT, ""),
        Piece(Kind.CALL, "add"),
        Piece(Kind.CALL, "now"),
        Piece(Kind.ARGUMENTS, '{"a"'),
        Piece(Kind.ARGUMENTS, ": 1}"),
        Piece(Kind.CONTENT, "so"),
    ]
    parts = Parts()
    begun = [parts.add(piece) for piece in pieces]
    assert begun == [True, False, False, True, True, False, False, True]
    assert [(part.kind, part.name, part.text) for part in parts.all] == [
        (Kind.REASONING, "", "weigh"),
        (Kind.CALL, "add", ""),
        (Kind.CALL, "now", '{"a": 1}'),
        (Kind.CONTENT, "", "so"),
    ]


def test_the_longest_path_is_renamed_with_its_numbers() -> None:
    renames = Renames({"a[].b": "x[].y", "a": "z", "a[].b[].c": "w[][]"})
    found = {path: renames.path(path) for path in ("a[3].b", "a[3].b[4].c.d", "a[1]", "ab", "q.a")}
    assert found == {
        "a[3].b": "x[3].y",
        "a[3].b[4].c.d": "w[3][4].d",
        "a[1]": "z[1]",
        "ab": "ab",
        "q.a": "q.a",
    }


def test_an_error_names_what_was_sent_in_its_message_too() -> None:
    renames = Renames({"stop": "stop_sequences"})
    with pytest.raises(InvalidRequest) as renamed, renames.errors():
        raise InvalidRequest("`stop[0]` is empty; `stop` is a list.", param="stop[0]")
    assert renamed.value.param == "stop_sequences[0]"
    assert str(renamed.value) == "`stop_sequences[0]` is empty; `stop` is a list."
    with pytest.raises(Overloaded, match="full"), renames.errors():
        raise Overloaded("full")


@pytest.mark.parametrize(
    ("text", "whole"),
    [("{}", True), ('{"a":1}', True), ("", False), ('{"a":', False), ("[1]", False)],
)
def test_a_call_is_whole_when_its_arguments_are_an_object(text: str, whole: bool) -> None:
    call = Part(Kind.CALL, "f")
    call.add(text)
    assert is_whole(call) is whole


def test_arguments_too_deep_to_read_are_not_whole() -> None:
    call = Part(Kind.CALL, "f")
    call.add('{"a":' * 100_000 + "1" + "}" * 100_000)
    assert not is_whole(call)
