"""Nano's tokenizer: every byte has an id, and the added tokens stand in the real order."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from streamglm.nano import folder
from streamglm.nano.training import tokens

BASE = tokens.VOCAB_SIZE - len(tokens.ADDED)

# The real model's list of added tokens, ids 154820 to 154855, as its fact sheet gives them.
REAL = {
    0: "<|endoftext|>",
    2: "[gMASK]",
    4: "<sop>",
    6: "<|system|>",
    7: "<|user|>",
    8: "<|assistant|>",
    9: "<|observation|>",
    10: "<|begin_of_image|>",
    13: "<|end_of_video|>",
    18: "<|code_prefix|>",
    21: "<think>",
    22: "</think>",
    23: "<tool_call>",
    25: "<tool_response>",
    27: "<arg_key>",
    29: "<arg_value>",
    31: "/nothink",
    34: "<|image|>",
    35: "<|video|>",
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(folder() / "tokenizer.json"))


def test_base_entries_and_added_tokens_fill_the_vocabulary(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size(with_added_tokens=False) == BASE == 2012
    assert tokenizer.get_vocab_size() == tokens.VOCAB_SIZE == 2048
    assert sorted(tokenizer.get_vocab().values()) == list(range(2048))


@pytest.mark.parametrize(("place", "token"), REAL.items())
def test_added_tokens_stand_in_the_real_order(tokenizer: Tokenizer, place: int, token: str) -> None:
    assert tokenizer.token_to_id(token) == BASE + place == tokens.token_id(token)


def test_the_first_eighteen_added_tokens_are_hidden_with_special_tokens(
    tokenizer: Tokenizer,
) -> None:
    added = tokenizer.get_added_tokens_decoder()
    assert [i for i, token in added.items() if token.special] == list(range(BASE, BASE + 18))
    ids = tokenizer.encode("<|user|><think>a</think><|endoftext|>").ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think>a</think>"


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world. It's 12345 o'clock\r\n\n  indented\ttext ",
        "日本語のテキスト, 한국어, Ελληνικά, עברית",
        "🌧️👩‍👩‍👧 e\u0301 \u200b \ufeff",
        "\x00\x01\x1f\x7f\x80ÿ",
        'def f(x):\n    return {"a": [1, 2.5e-3]}\n',
        "",
    ],
    ids=["english", "scripts", "emoji", "controls", "code", "empty"],
)
def test_text_comes_back_as_it_was(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_every_byte_has_an_id_of_its_own(tokenizer: Tokenizer) -> None:
    """Characters whose UTF-8 holds every byte value that UTF-8 uses spell no unknown token."""
    used: set[int] = set()
    for point in (*range(0x80), *range(0x80, 0x800, 31), 0x1000, 0x8421, 0xFFFD, 0x10FFFF):
        encoded = chr(point).encode()
        ids = tokenizer.encode(chr(point)).ids
        assert 1 <= len(ids) <= len(encoded)
        used.update(ids)
    assert len(used) > 128
    assert len([t for t in tokenizer.get_vocab() if len(t) == 1]) == 256


def test_no_token_is_put_in_front(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a").ids == [tokenizer.token_to_id("a")]
    assert tokenizer.encode("").ids == []


def test_words_stand_without_their_space_and_digits_alone(tokenizer: Tokenizer) -> None:
    pieces = tokenizer.pre_tokenizer.pre_tokenize_str("one 123 Two's")
    assert [piece for piece, _ in pieces] == ["one", "Ġ", "1", "2", "3", "Ġ", "Two", "'", "s"]


def test_transformers_reads_the_same_ids(tokenizer: Tokenizer) -> None:
    theirs: Any = AutoTokenizer.from_pretrained(folder())
    text = "[gMASK]<sop><|user|>Is it raining?<|assistant|><think>Yes — 雨.</think>"
    assert theirs(text)["input_ids"] == tokenizer.encode(text).ids
    assert (theirs.eos_token_id, theirs.pad_token_id, len(theirs)) == (BASE, BASE, 2048)
