"""Characters that take several tokens arrive whole (CO-16)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamglm.text.detokenize import Detokenizer
from streamglm.text.tokenizer import Tokenizer

SAID = "ok 🦉 早安 👩‍👩‍👧 é naïve ﷽ 🇵🇹 end"


def texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*map(detokenizer.feed, ids), detokenizer.finish()]


def test_no_text_has_half_a_character(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(SAID)
    assert len(ids) > len(SAID)  # else nothing is split
    found = texts(tokenizer, ids)
    assert "".join(found) == SAID
    assert not any("\ufffd" in text for text in found)


def test_a_cut_inside_a_character_is_one_replacement(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(SAID)
    for k in range(len(ids) + 1):
        said = b"".join(map(tokenizer.said, ids[:k]))
        whole = said.decode("utf-8", "ignore")
        cut = len(whole.encode()) < len(said)
        assert "".join(texts(tokenizer, ids[:k])) == whole + "\ufffd" * cut


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(0, 520), max_size=40))
def test_any_ids_decode_as_one_string_would(tokenizer: Tokenizer, ids: list[int]) -> None:
    """Invalid bytes too: one by one they give what the joined bytes give."""
    said = b"".join(map(tokenizer.said, ids))
    assert "".join(texts(tokenizer, ids)) == said.decode("utf-8", "replace")


@pytest.mark.parametrize("special", ["<|user|>", "<|endoftext|>"])
def test_a_special_token_inside_a_character_does_not_break_it(
    tokenizer: Tokenizer, special: str
) -> None:
    owl = tokenizer.encode("🦉")
    (marker,) = tokenizer.encode(special)
    assert len(owl) > 1
    assert "".join(texts(tokenizer, [owl[0], marker, *owl[1:]])) == "🦉"
