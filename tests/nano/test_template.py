"""Nano's chat template against golden prompts, in a plain sandbox and in transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from transformers import AutoTokenizer

from streamglm.nano import folder

GOLDEN = Path(__file__).parent.parent / "data" / "chat_template.json"
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text("utf-8"))["cases"]

# Nano's own wording where the golden file has marks.
TOOLS_OPEN = "\n# Tools\n\nThese functions are at hand, one JSON object a line:\n<tools>\n"
TOOLS_CLOSE = (
    "</tools>\n\nTo use one, write its name and each argument between these tags:\n"
    "<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>"
)
HEAD = "[gMASK]<sop><|system|>Reasoning Effort: Max"

Render = Callable[..., str]


@pytest.fixture(scope="module")
def plain() -> Render:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string((folder() / "chat_template.jinja").read_text("utf-8")).render


@pytest.fixture(scope="module")
def transformers() -> Render:
    tokenizer: Any = AutoTokenizer.from_pretrained(folder())

    def render(messages: list[dict[str, Any]], **variables: Any) -> str:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, **variables)
        return text

    return render


@pytest.mark.parametrize("engine", ["plain", "transformers"])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_golden_prompt(case: dict[str, Any], engine: str, request: pytest.FixtureRequest) -> None:
    render: Render = request.getfixturevalue(engine)
    given = {key: value for key, value in case.items() if key not in ("name", "rendered")}
    wanted = case["rendered"].replace("{TOOLS_OPEN}", TOOLS_OPEN)
    assert render(**given) == wanted.replace("{TOOLS_CLOSE}", TOOLS_CLOSE)


def body(render: Render, messages: list[dict[str, Any]], **variables: Any) -> str:
    """What is rendered behind the fixed head."""
    text = render(messages=messages, **variables)
    assert text.startswith(HEAD)
    return text.removeprefix(HEAD)


def calls(*ids: str) -> dict[str, Any]:
    """An assistant turn with one call an id."""
    made = [{"id": i, "function": {"name": "f", "arguments": {}}} for i in ids]
    return {"role": "assistant", "content": "", "tool_calls": made}


def results(*ids: str) -> list[dict[str, Any]]:
    """One tool turn an id, each saying its id."""
    return [{"role": "tool", "tool_call_id": i, "content": f"of {i}"} for i in ids]


def told(render: Render, *turns: dict[str, Any]) -> str:
    """The ids of the responses, in the order in which they stand."""
    text = body(render, list(turns))
    return "".join(part[3] for part in text.split("<tool_response>")[1:])


def test_results_come_in_the_order_of_their_calls(plain: Render) -> None:
    assert told(plain, calls("a", "b", "c"), *results("c", "a", "b")) == "abc"


@pytest.mark.parametrize(
    ("made", "given"),
    [("ab", "bx"), ("ab", "bab"), ("aba", "ba")],
    ids=["foreign-id", "result-twice", "call-twice"],
)
def test_results_whose_ids_do_not_match_uniquely_stay_put(
    plain: Render, made: str, given: str
) -> None:
    assert told(plain, calls(*made), *results(*given)) == given


def test_each_run_of_results_is_ordered_by_its_own_calls(plain: Render) -> None:
    turns = [calls("a", "b"), *results("b", "a"), calls("c", "d"), *results("d", "c")]
    assert told(plain, *turns) == "abcd"
    assert body(plain, turns).count("<|observation|>") == 2


def test_results_without_a_call_in_front_stay_put(plain: Render) -> None:
    user = {"role": "user", "content": "x"}
    assert told(plain, calls("a", "b"), user, *results("b", "a")) == "ba"


def test_thinking_switched_off_closes_the_block(plain: Render) -> None:
    turns = [{"role": "user", "content": "x"}]
    off = body(plain, turns, add_generation_prompt=True, enable_thinking=False)
    assert off == "<|user|>x<|assistant|><think></think>"
    on = body(plain, turns, add_generation_prompt=True, enable_thinking=True)
    assert on == "<|user|>x<|assistant|><think>"


def test_clear_thinking_keeps_reasoning_behind_the_last_user_turn(plain: Render) -> None:
    thought = {"role": "assistant", "content": "y", "reasoning_content": "r"}
    turns = [{"role": "user", "content": "x"}, thought, {"role": "user", "content": "z"}, thought]
    assert body(plain, turns, clear_thinking=True) == (
        "<|user|>x<|assistant|><think></think>y<|user|>z<|assistant|><think>r</think>y"
    )


def _tool(**more: Any) -> dict[str, Any]:
    properties = {"strict": {"type": "boolean"}}
    return {"type": "function", "function": {"name": "f", "parameters": properties} | more}


SHOWN = '{"name": "f", "parameters": {"strict": {"type": "boolean"}}}'


@pytest.mark.parametrize(
    "tool",
    [
        _tool(),
        _tool(strict=True),
        _tool(defer_loading=False, strict=False),
        _tool()["function"],
    ],
    ids=["plain", "strict", "both-keys", "without-wrapper"],
)
def test_flags_of_a_tool_are_removed_and_its_parameters_kept(
    plain: Render, tool: dict[str, Any]
) -> None:
    wanted = f"<|system|>{TOOLS_OPEN}{SHOWN}\n{TOOLS_CLOSE}"
    assert body(plain, [], tools=[tool]) == wanted


@pytest.mark.parametrize("tool", [_tool(defer_loading=True), _tool() | {"defer_loading": True}])
def test_deferred_tools_alone_leave_no_block(plain: Render, tool: dict[str, Any]) -> None:
    assert body(plain, [], tools=[tool]) == ""


@pytest.mark.parametrize("arguments", [None, {}, ""])
def test_a_call_without_arguments(plain: Render, arguments: object) -> None:
    call = {"id": "a", "function": {"name": "f", "arguments": arguments}}
    turns = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    assert body(plain, turns) == "<|assistant|><think></think><tool_call>f</tool_call>"


def test_argument_values_are_raw_text_or_json(plain: Render) -> None:
    given = {"s": 'a "b" <c>', "n": 5, "t": True, "z": None, "l": [1, "é"]}
    call = {"id": "a", "function": {"name": "f", "arguments": given}}
    text = body(plain, [{"role": "assistant", "content": "", "tool_calls": [call]}])
    values = [part.split("</arg_value>")[0] for part in text.split("<arg_value>")[1:]]
    assert values == ['a "b" <c>', "5", "true", "null", '[1, "é"]']


def test_a_video_part_has_its_own_tokens(plain: Render) -> None:
    turns = [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]}]
    assert body(plain, turns) == "<|user|><|begin_of_video|><|video|><|end_of_video|>"
