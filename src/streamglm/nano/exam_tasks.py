"""The exam's questions: fresh seeds, words and wordings that no training conversation holds.

Owns what is asked and how an answer is judged. Knows no server and no model. Half of the questions
of a section use wordings of the training mixture with fresh contents, half use wordings that are
written here alone; scores are kept apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from streamglm.nano.exam_long import ask_marker, long_markers
from streamglm.nano.exam_question import (
    Json,
    Question,
    assistant,
    exactly,
    holds,
    refuses,
    user,
)
from streamglm.nano.training import phrases, prose, scraps, words
from streamglm.nano.training.dialog import Answer, Call, Said
from streamglm.nano.training.dice import Dice
from streamglm.nano.training.tasks import chat, counting, facts, lookups, markers, repeats, tools
from streamglm.nano.training.tasks.fact import Fact

# ---- facts and what was never told


def _fact(dice: Dice) -> Fact:
    while True:
        fact = facts.draw(dice)
        if fact.slots:
            return fact


def _told(dice: Dice, fact: Fact, fresh: bool) -> str:
    if not fresh or not fact.slots:
        return fact.told[0]
    return phrases.tell(dice, dice.say("{owned} is {value}", fact.slots), fresh=True)


def _asked(dice: Dice, fact: Fact, fresh: bool) -> str:
    if not fresh or not fact.slots:
        return dice.pick(fact.asked)
    return phrases.request(dice, fact.slots["owned"], fresh=True)


def _small_talk(dice: Dice, turns: int) -> list[Json]:
    """Other things that are talked about, with scripted answers."""
    messages: list[Json] = []
    for _ in range(turns):
        turn = chat.draw(dice) if dice.chance(0.6) else counting.draw(dice)
        said, answer = turn[0], turn[-1]
        assert isinstance(said, Said)
        assert isinstance(answer, Answer)
        messages += [user(said.text), assistant(answer.text)]
    return messages


def fact(dice: Dice, fresh: bool) -> Question:
    """Several facts, other talk, then one of the facts."""
    told = [_fact(dice)]
    for _ in range(dice.between(1, 4)):
        other = facts.similar(dice, told[0]) if dice.chance(0.5) else facts.draw(dice)
        if all(other.key != f.key for f in told):
            told.append(other)
    messages: list[Json] = []
    for one in dice.shuffled(told):
        messages += [user(_told(dice, one, fresh)), assistant("Noted.")]
        messages += _small_talk(dice, dice.below(3))
    messages.append(user(_asked(dice, told[0], fresh)))
    return Question("facts", messages, holds(told[0].value), told[0].value, fresh)


def unknown(dice: Dice, fresh: bool) -> Question:
    """A fact, a marker or a row that was never given, beside similar ones that were."""
    told = [_fact(dice) for _ in range(dice.between(1, 4))]
    have = {f.key for f in told}
    messages: list[Json] = []
    for one in told:
        messages += [user(_told(dice, one, fresh)), assistant("Noted.")]
        messages += _small_talk(dice, dice.below(2))
    kind = dice.below(4)
    if kind == 0:
        marker = markers.draw(dice, "marker")
        while not marker.label:
            marker = markers.draw(dice, "marker")
        messages.append(user(ask_marker(dice, marker, fresh)))
    elif kind == 1:
        table = lookups.draw(dice, dice.between(4, 12), 2)
        question, _ = lookups.absent(dice, table)
        messages.append(user(f"{lookups.written(dice, table)}\n{question}"))
    else:
        missing = facts.similar(dice, dice.pick(told)) if dice.chance(0.5) else _fact(dice)
        while missing.key in have or not missing.slots:
            missing = _fact(dice)
        messages.append(user(_asked(dice, missing, fresh)))
    return Question("unknown", messages, refuses, "that it was not told", fresh)


# ---- repeats

_SCRAPS: tuple[tuple[str, Callable[[Dice, int], str]], ...] = (
    ("words", scraps.plain),
    ("ascii", scraps.noise),
    ("emoji", scraps.emoji),
    ("cjk", scraps.cjk),
    ("scripts", scraps.scripts),
    ("mixed", scraps.mixed),
    ("code", scraps.source),
    ("json", scraps.data),
)


def repeat(dice: Dice, fresh: bool) -> Question:
    """A text of up to 200 characters, said again."""
    _, make = dice.pick(_SCRAPS)
    text = ""
    while not text or set(text) <= {"0", "1"}:
        text = make(dice, dice.between(8, 200))[:200].strip()
    asked = phrases.repeat_request(dice, fresh=True) + text if fresh else repeats.framed(dice, text)
    return Question("repeats", [user(asked)], exactly(text), text, fresh, most=700)


# ---- look-ups


def lookup(
    dice: Dice, fresh: bool, *, section: str = "look-ups", backwards: float = 0.0
) -> Question:
    """A cell of a table by its row, sometimes with other talk in between."""
    table = lookups.draw(dice, dice.between(4, 16), dice.between(1, 4))
    cell = lookups.cell(dice, table, backwards)
    while backwards and not cell.backwards:  # no column of this table goes backwards
        table = lookups.draw(dice, dice.between(4, 16), dice.between(1, 4))
        cell = lookups.cell(dice, table, backwards)
    question, wanted = cell.question, cell.wanted
    if fresh and not backwards:
        row = dice.pick(table.rows)
        column = dice.between(1, len(table.columns) - 1)
        wanted = row[column]
        question = phrases.request(dice, f"the {table.columns[column]} of {row[0]}", fresh=True)
    text = lookups.show(dice, table).text
    if dice.chance(0.5):
        messages = [user(f"{text}\n{question}")]
    else:
        messages = [user(text), assistant("I have read it."), *_small_talk(dice, 2), user(question)]
    return Question(section, messages, holds(wanted), wanted, fresh and not backwards)


def lookup_back(dice: Dice, fresh: bool) -> Question:
    """A row's key by one of its cells: harder, since the key stands before what is asked."""
    return lookup(dice, fresh, section="look-ups backwards", backwards=1.0)


# ---- tools


def call(dice: Dice, fresh: bool) -> Question:
    """A request for one of several tools; the name and every argument must be right."""
    offered = tools.offer(dice)
    turn = tools.use(dice, offered)
    said, answer = turn[0], turn[1]
    assert isinstance(said, Said)
    assert isinstance(answer, Answer)
    text = said.text
    if fresh:
        first = answer.calls[0]
        listed = dice.pick((", ", "; ", " and ")).join(
            [f"{key} {tools.spoken(value)}" for key, value in first.arguments.items()]
        )
        text = f"{phrases.tool_request(dice, first.name, fresh=True)} with {listed}."
        calls: tuple[Call, ...] = (first,)
    else:
        calls = answer.calls
    wanted = [(c.name, dict(c.arguments)) for c in calls]
    return Question(
        "tool calls",
        [user(text)],
        lambda reply: [(c.name, dict(c.arguments)) for c in reply.calls] == wanted,
        json.dumps(wanted, ensure_ascii=False),
        fresh,
        tools=[tool.spec() for tool in offered],
    )


def result(dice: Dice, fresh: bool) -> Question:
    """Read a tool's result and say it."""
    offered = tools.offer(dice)
    said, answer, results, report = tools.use(dice, offered)
    assert isinstance(said, Said)
    assert isinstance(answer, Answer)
    assert isinstance(report, Answer)
    texts = getattr(results, "texts", ())
    sent = [
        {
            "id": f"call_{i}",
            "type": "function",
            "function": {"name": c.name, "arguments": json.dumps(dict(c.arguments))},
        }
        for i, c in enumerate(answer.calls)
    ]
    messages: list[Json] = [
        user(said.text),
        {"role": "assistant", "content": "", "tool_calls": sent},
        *(
            {"role": "tool", "tool_call_id": f"call_{i}", "content": text}
            for i, text in enumerate(texts)
        ),
    ]
    return Question(
        "tool results",
        messages,
        exactly(report.text),
        report.text,
        fresh,
        tools=[t.spec() for t in offered],
    )


# ---- counting and spelling


def spell(dice: Dice, fresh: bool) -> Question:
    if not fresh:
        said, answer = counting.spell(dice)
        assert isinstance(said, Said)
        assert isinstance(answer, Answer)
        return Question("spelling", [user(said.text)], exactly(answer.text), answer.text, fresh)
    held = words.HELD_OUT_ANIMALS + words.HELD_OUT_THINGS + words.HELD_OUT_ADJECTIVES
    word = dice.pick(held) if dice.chance(0.5) else prose.invented(dice)
    asked = dice.say(
        "(Give me the spelling of {w}.|How would you spell {w}?|Please spell out {w}.)", {"w": word}
    )
    return Question("spelling", [user(asked)], holds("-".join(word)), "-".join(word), fresh)


def count(dice: Dice, fresh: bool) -> Question:
    turn = dice.pick((counting.count_items, counting.count_letters))(dice)
    said, answer = turn[0], turn[-1]
    assert isinstance(said, Said)
    assert isinstance(answer, Answer)
    wanted = answer.text.removesuffix(".")
    return Question(
        "counting", [user(said.text)], holds(wanted), wanted, fresh, effort="max", most=300
    )


# ---- several turns, answered live


def turns(dice: Dice, fresh: bool) -> Question:
    """Tell, talk, and ask, the model answering each message itself."""
    one, two = _fact(dice), facts.draw(dice)
    talk = [message["content"] for message in _small_talk(dice, 2) if message["role"] == "user"]
    said = (_told(dice, one, fresh), talk[0], _told(dice, two, fresh), talk[1])
    return Question(
        "several turns", [user(_asked(dice, one, fresh))], holds(one.value), one.value, fresh,
        effort="max", before=said,
    )  # fmt: skip


SECTIONS: dict[str, tuple[Callable[[Dice, bool], Question], int]] = {
    "facts": (fact, 60),
    "unknown": (unknown, 60),
    "repeats": (repeat, 100),
    "look-ups": (lookup, 80),
    "look-ups backwards": (lookup_back, 30),
    "tool calls": (call, 80),
    "tool results": (result, 40),
    "spelling": (spell, 40),
    "counting": (count, 40),
    "several turns": (turns, 30),
}
LENGTHS = {"4k": (4096, 40), "16k": (16_384, 20), "32k": (32_000, 10)}
"""Markers by length: tokens, and conversations of three questions each."""


def questions(
    seed: int,
    scale: float,
    measure: Callable[[str], int],
    lengths: Sequence[str],
    sections: Sequence[str] = tuple(SECTIONS),
) -> list[Question]:
    """The exam of a seed; `scale` multiplies the counts."""
    asked: list[Question] = []
    for number, (name, (make, full)) in enumerate(SECTIONS.items()):
        amount = max(2, round(full * scale)) if name in sections else 0
        asked += [
            make(Dice(seed * 7919 + number * 1009 + i, sensible=True), i % 2 == 1)
            for i in range(amount)
        ]
    for name in lengths:
        tokens, amount = LENGTHS[name]
        for i in range(max(2, round(amount * scale))):
            dice = Dice(seed * 7919 + tokens * 13 + i, sensible=True)
            asked += long_markers(
                dice, tokens, f"markers {name}", i % 2 == 1, f"{name}-{i}", measure
            )
    return asked


def efforts(seed: int, amount: int) -> list[Question]:
    """The same questions at each effort, to compare how long the reasoning is."""
    asked = []
    for i in range(amount):
        for effort in ("low", "high", "max"):
            question = fact(Dice(seed * 104_729 + i, sensible=True), False)
            asked.append(
                Question(
                    "effort " + effort,
                    question.messages,
                    question.judge,
                    question.wanted,
                    False,
                    effort=effort,
                )
            )
    return asked
