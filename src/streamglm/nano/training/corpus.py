"""The text that nano's tokenizer learns its merges from: conversations of the training mixture.

Owns the choice of text only. A change of any wording changes the merges, and with them the ids.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamglm.nano.training import scene, words
from streamglm.nano.training.dialog import Answer, Said
from streamglm.nano.training.dice import Dice, capital

_COMMON = (
    words.NAMES,
    words.CITIES,
    words.COLOURS,
    words.ANIMALS,
    words.THINGS,
    words.PLACES,
    words.FOODS,
    words.JOBS,
    words.RELATIONS,
    words.ADJECTIVES,
    words.VERBS,
    words.PAST,
    words.DAYS,
    words.MONTHS,
    words.NUMBERS,
)


def lines(conversations: int = 1500) -> Iterator[str]:
    """What both sides say, and the word lists themselves, so that each common word counts."""
    dice = Dice(4)
    for _ in range(conversations):
        talk = scene.compose(dice, 600, scene.SHORT)
        yield from (str(tool) for tool in talk.tools)
        for turn in talk.turns:
            for message in turn:
                if isinstance(message, Said):
                    yield message.text
                elif isinstance(message, Answer):
                    yield message.text
                    yield message.thought.max
    for _ in range(60):
        for group in _COMMON:
            yield " ".join(group)
    for _ in range(3):
        yield " ".join(map(capital, words.ANIMALS + words.THINGS + words.FOODS + words.ADJECTIVES))
