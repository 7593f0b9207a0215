"""Markers in long conversations: three planted anywhere, quoted at the end.

Owns conversations of a given length in tokens. Words that no training conversation holds are mixed
into what is planted.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from streamglm.nano.exam_question import Json, Question, assistant, holds_sentence, user
from streamglm.nano.training import phrases, prose, words
from streamglm.nano.training.dialog import Answer, Said
from streamglm.nano.training.dice import Dice
from streamglm.nano.training.tasks import chat, markers

_MARKER_PLANTED = (
    "Put this down as {name}: {sentence}",
    "My {noun} for later, called {name}: {sentence}",
    'Let us agree on {name}: "{sentence}"',
)


def _strange(dice: Dice, text: str) -> str:
    """`text` with some of its words exchanged for held-out ones of the same kind."""
    for known, held in (
        (words.NAMES, words.HELD_OUT_NAMES),
        (words.CITIES, words.HELD_OUT_CITIES),
        (words.ANIMALS, words.HELD_OUT_ANIMALS),
        (words.THINGS, words.HELD_OUT_THINGS),
        (words.ADJECTIVES, words.HELD_OUT_ADJECTIVES),
    ):
        if dice.chance(0.4):
            new = dice.pick(held)
            pattern = re.compile(rf"\b({'|'.join(known)})\b")
            text = pattern.sub(new, text, count=1)
    return text


def _marker_slots(marker: markers.Marker) -> dict[str, str]:
    return {"name": marker.name, "noun": marker.noun, "sentence": marker.sentence}


def ask_marker(dice: Dice, marker: markers.Marker, fresh: bool) -> str:
    if fresh:
        return phrases.request(dice, marker.name, fresh=True)
    return markers.asked(dice, marker)


def _planted(dice: Dice, marker: markers.Marker, fresh: bool) -> str:
    """A message that plants a marker, sometimes among other sentences."""
    if fresh:
        said = dice.say(dice.pick(_MARKER_PLANTED), _marker_slots(marker))
    else:
        said = markers.planted(dice, marker)
    if dice.chance(0.5):
        said = f"{prose.paragraph(dice, 3)}\n{said}\n{prose.paragraph(dice, 2)}"
    return said


def _other_talk(dice: Dice, room: int) -> tuple[str, str]:
    """A message of about `room` characters at most, and its scripted answer."""
    turn = chat.draw(dice)
    if dice.chance(0.6):
        turn = chat.filler(dice, max(100, min(room, dice.between(300, 3000))))
    said, answer = turn[0], turn[-1]
    assert isinstance(said, Said)
    assert isinstance(answer, Answer)
    return said.text, answer.text


def long_markers(
    dice: Dice, tokens: int, section: str, fresh: bool, group: str, measure: Callable[[str], int]
) -> list[Question]:
    """Three markers anywhere in a conversation of `tokens` tokens; three questions, each by
    itself. `measure` counts the tokens of a text."""
    chosen: list[markers.Marker] = []
    while len(chosen) < 3:
        marker = markers.draw(dice, "marker")
        strange = _strange(dice, marker.sentence) if '"' not in marker.sentence else marker.sentence
        if marker.label and all(marker.label != m.label for m in chosen):
            chosen.append(markers.Marker("marker", marker.label, strange, ""))
    goals = sorted(dice.unit() * (tokens - 300) for _ in chosen)
    left = list(zip(goals, chosen, strict=True))
    messages: list[Json] = []
    used = 40
    while left or used < tokens - 120:
        if left and used >= left[0][0]:
            text, reply = _planted(dice, left.pop(0)[1], fresh), "Noted."
        else:
            text, reply = _other_talk(dice, 2 * int((left[0][0] if left else tokens) - used))
        messages += [user(text), assistant(reply)]
        used += measure(text) + measure(reply) + 6
    return [
        Question(
            section,
            [*messages, user(ask_marker(dice, marker, fresh))],
            holds_sentence(marker.sentence),
            marker.sentence,
            fresh,
            group=group,
        )
        for marker in chosen
    ]
