"""The token that begins a user's turn is found where a template writes one."""

from __future__ import annotations

import pytest

from streamglm.nano import folder
from streamglm.text.template import ChatTemplate
from streamglm.text.tokenizer import Tokenizer
from streamglm.text.turns import turn_ids


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    found = Tokenizer.from_folder(folder())
    assert found is not None
    return found


def test_the_built_in_model_begins_a_users_turn_with_one_token(tokenizer: Tokenizer) -> None:
    template = ChatTemplate.from_folder(folder())
    assert turn_ids(tokenizer, template) == frozenset(tokenizer.encode("<|user|>"))


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{% for m in messages %}user: {{ m.content }}{% endfor %}",
        "<|user|>nothing of it",
    ],
    ids=["refuses", "plain-words", "drops-it"],
)
def test_a_template_without_such_a_token_has_none(tokenizer: Tokenizer, source: str) -> None:
    assert turn_ids(tokenizer, ChatTemplate(source)) == frozenset()


def test_the_last_special_token_before_the_text_counts(tokenizer: Tokenizer) -> None:
    template = ChatTemplate(
        "[gMASK]<sop><|system|>hi<|user|> {{ messages[0].content }}<|assistant|>"
    )
    assert turn_ids(tokenizer, template) == frozenset(tokenizer.encode("<|user|>"))


def test_without_a_tokenizer_or_a_template_there_is_none(tokenizer: Tokenizer) -> None:
    assert turn_ids(None, ChatTemplate("x")) == turn_ids(tokenizer, None) == frozenset()
