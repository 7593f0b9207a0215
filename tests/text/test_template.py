"""The chat template's sandbox: what templates count on, and what they may not do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamglm.errors import CheckpointError, InvalidRequest
from streamglm.text.template import ChatTemplate

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def render(source: str, **variables: Any) -> str:
    return ChatTemplate(source).render(HELLO, variables=variables).text


def test_blocks_leave_no_lines_and_no_indent() -> None:
    assert render("a\n  {% if true %}\nb\n  {% endif %}\nc") == "a\nb\nc"


def test_loop_controls_work() -> None:
    assert (
        render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}")
        == "01"
    )


def test_tojson_keeps_characters_and_takes_options() -> None:
    assert render("{{ x | tojson }}", x={"b": "é<", "a": 1}) == '{"b": "é<", "a": 1}'
    compact = render("{{ x | tojson(separators=(',', ':'), sort_keys=true) }}", x={"b": 1, "a": 2})
    assert compact == '{"a":2,"b":1}'


def test_the_date_is_there() -> None:
    assert render("{{ strftime_now('%Y') }}").isdecimal()


def test_variables_reach_the_template_and_absent_ones_are_undefined() -> None:
    source = "{{ effort if effort is defined else 'none' }}{{ tools is none }}"
    assert render(source) == "noneTrue"
    assert render(source, effort="low") == "lowTrue"


def test_a_refusal_of_the_template_is_a_400_in_its_own_words() -> None:
    with pytest.raises(InvalidRequest, match="refuses: no such role") as caught:
        render("{{ raise_exception('no such role') }}")
    assert caught.value.param == "messages"
    assert caught.value.status == 400


def test_a_long_refusal_is_cut() -> None:
    with pytest.raises(InvalidRequest) as caught:
        render("{{ raise_exception('x' * 100000) }}")
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[3].content }}",
        "{{ 1 + messages[0].content }}",
        "{{ messages.x.y }}",
        "{{ 1 // 0 }}",
        "{{ 'a'.b() }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
    ],
)
def test_a_template_that_cannot_render_says_so_without_details(source: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        render(source)
    assert caught.value.message == "The chat template cannot render these messages."


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__ }}",
        "{% include 'other' %}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    """Each would reach Python's insides, a file, or the caller's list."""
    messages = [*HELLO]
    try:
        text = ChatTemplate(source).render(messages).text
    except InvalidRequest:
        text = ""
    assert text == ""
    assert messages == HELLO


@pytest.mark.parametrize(
    ("end", "thinking"),
    [("<think>", True), ("<think>\n", True), ("<think></think>", False), ("", False)],
)
def test_it_tells_whether_the_prompt_ends_inside_a_think_block(end: str, thinking: bool) -> None:
    source = "{{ messages[0].content }}{% if add_generation_prompt %}>" + end + "{% endif %}"
    assert ChatTemplate(source).render(HELLO).thinking is thinking
    assert not ChatTemplate(source).render(HELLO, add_generation_prompt=False).thinking


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(CheckpointError, match="line 2"):
        ChatTemplate("a\n{% if %}")


def folder(path: Path, config: object = None, jinja: str | None = None) -> Path:
    if config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    if jinja is not None:
        (path / "chat_template.jinja").write_text(jinja)
    return path


def found(path: Path) -> str:
    template = ChatTemplate.from_folder(path)
    assert template is not None
    return template.render(HELLO).text


def test_the_file_beside_the_weights_comes_first(tmp_path: Path) -> None:
    assert found(folder(tmp_path, {"chat_template": "inside"}, "beside")) == "beside"


@pytest.mark.parametrize(
    "inside",
    ["inside", [{"name": "x", "template": "no"}, {"name": "default", "template": "inside"}]],
    ids=["text", "list"],
)
def test_a_template_inside_the_configuration_is_found(tmp_path: Path, inside: object) -> None:
    assert found(folder(tmp_path, {"chat_template": inside})) == "inside"


def test_special_tokens_are_variables(tmp_path: Path) -> None:
    config = {"eos_token": "<e>", "pad_token": {"content": "<p>"}, "bos_token": None}
    assert (
        found(folder(tmp_path, config, "{{ eos_token }}{{ pad_token }}{{ bos_token }}")) == "<e><p>"
    )


def test_a_folder_without_a_template_has_none(tmp_path: Path) -> None:
    assert ChatTemplate.from_folder(tmp_path) is None
    assert ChatTemplate.from_folder(folder(tmp_path, {"eos_token": "x"})) is None


@pytest.mark.parametrize("bad", ["{", "[]"])
def test_a_damaged_configuration_is_named(tmp_path: Path, bad: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(bad)
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json"):
        ChatTemplate.from_folder(tmp_path)
