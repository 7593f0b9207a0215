"""Tokens: the same as the template's, and what is learned from each."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from streamglm.nano.training import layout as layouts
from streamglm.nano.training import scene, tokens
from streamglm.nano.training.dialog import Answer, Conversation, Effort, Kind, Said, Thought, Turn
from streamglm.nano.training.dice import Dice
from streamglm.nano.training.layout import FULL, Layout


@pytest.mark.parametrize("seed", range(40))
def test_ids_are_those_of_the_rendered_template(
    seed: int, layout: Layout, tokenizer: Tokenizer, template: str
) -> None:
    mixture = scene.SHORT if seed % 4 else scene.LONG
    talk = scene.compose(Dice(seed), 300 + 60 * seed, mixture)
    rendered = tokenizer.encode(layouts.render(template, talk), add_special_tokens=False).ids
    assert layout.encode(talk).ids[:-1].tolist() == rendered


def _talk(kept: bool) -> Conversation:
    thought = Thought("low", "a high one", "the longest of them")
    first: Turn = [Said("one?"), Answer(Kind.CHAT, thought, "first")]
    last: Turn = [Said("two?"), Answer(Kind.CHAT, thought, "second")]
    return Conversation(Effort.HIGH, turns=[first, last], kept=[kept, True])


def _learned(layout: Layout, talk: Conversation) -> str:
    made = layout.encode(talk)
    return layout.tokenizer.decode(
        made.ids[made.weight >= FULL].tolist(), skip_special_tokens=False
    )


def test_an_answer_is_learned_with_its_reasoning_and_its_end(layout: Layout) -> None:
    said = _learned(layout, _talk(True))
    assert said == "a high one</think>first<|user|>a high one</think>second<|user|>"


def test_a_turn_without_its_reasoning_does_not_teach_to_leave_it_out(layout: Layout) -> None:
    assert _learned(layout, _talk(False)) == "first<|user|>a high one</think>second<|user|>"


def test_turns_that_do_not_fit_are_left_out_whole(layout: Layout) -> None:
    talk = scene.compose(Dice(3), 900, scene.SHORT)
    whole = layout.encode(talk)
    cut = layout.encode(talk, 600)
    assert 0 < len(cut.ids) <= 600
    assert cut.ids.tolist() == whole.ids[: len(cut.ids)].tolist()
    assert cut.ids[-1] in [tokens.token_id(token) for token in tokens.END]


def test_a_word_has_the_same_tokens_wherever_it_stands(tokenizer: Tokenizer) -> None:
    """What lets a small model copy a text without an error."""

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    for word in ("heron", "Xyzzy", "naïve", "42", "你好", "👩‍👩‍👧"):
        alone = ids(word)
        for around in ("{} a", "a {}", '"{}"', "a\n{}\n", "({})"):
            assert " ".join(map(str, alone)) in " ".join(map(str, ids(around.format(word))))


def test_every_byte_has_a_token_and_the_vocabulary_is_full(tokenizer: Tokenizer) -> None:
    every = bytes(range(256)).decode("latin-1") + "".join(map(chr, range(0x2600, 0x2700)))
    assert tokenizer.decode(tokenizer.encode(every).ids) == every
    assert tokenizer.get_vocab_size() == tokens.VOCAB_SIZE <= 2048
    assert tokenizer.token_to_id("<|video|>") == tokens.VOCAB_SIZE - 1
    assert np.iinfo(np.uint16).max >= tokens.VOCAB_SIZE


def test_each_digit_is_a_token(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode("1234567890").ids) == 10
