"""Text to ids and back: nothing is lost, nothing is added."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from streamglm.errors import CheckpointError
from streamglm.nano import folder
from streamglm.text.tokenizer import Tokenizer, byte_alphabet

TEXT = st.text(st.characters(codec="utf-8"))


def test_the_alphabet_spells_every_byte_once() -> None:
    assert sorted(byte_alphabet().values()) == list(range(256))


def test_the_alphabet_is_the_librarys() -> None:
    assert set(byte_alphabet()) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())


@settings(max_examples=200, deadline=None)
@given(text=TEXT)
def test_decoding_gives_back_the_text(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_every_piece_is_what_the_library_decodes(tokenizer: Tokenizer) -> None:
    """Pieces are spelled without the library; a wrong alphabet would show here."""
    raw = tokenizers.Tokenizer.from_file(str(folder() / "tokenizer.json"))
    for token in range(tokenizer.size):
        theirs = raw.decode([token], skip_special_tokens=False)
        assert tokenizer.piece(token).decode("utf-8", "replace") == theirs


def test_special_tokens_in_the_text_become_their_ids(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|user|>a<think>")
    assert len(ids) == 3
    assert ids[0] in tokenizer.special_ids
    assert ids[2] not in tokenizer.special_ids


def test_special_tokens_are_not_said_and_tags_are(tokenizer: Tokenizer) -> None:
    role, tag = tokenizer.encode("<|user|><think>")
    assert (tokenizer.said(role), tokenizer.piece(role)) == (b"", b"<|user|>")
    assert tokenizer.said(tag) == b"<think>"


def test_ids_beyond_the_vocabulary_say_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.piece(tokenizer.size) == tokenizer.said(tokenizer.size + 7) == b""


def test_nothing_is_added_to_a_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("") == []
    assert len(tokenizer.encode("a")) == 1


def test_a_folder_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    assert Tokenizer.from_folder(tmp_path) is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model":')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be read"):
        Tokenizer.from_folder(tmp_path)


def test_a_tokenizer_whose_pieces_are_not_bytes_is_refused() -> None:
    with pytest.raises(CheckpointError, match="byte-level"):
        Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a")))


def test_padding_and_truncation_of_the_file_do_not_apply(tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer.from_file(str(folder() / "tokenizer.json"))
    backend.enable_truncation(3)
    backend.enable_padding(length=9)
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer is not None
    assert len(tokenizer.encode("a b c d e f g h i j k l m")) > 9
    assert len(tokenizer.encode("a")) == 1
