# ruff: noqa: E501  (a wording is one line)
"""Look-ups in lists and tables that stand in the conversation.

Owns tables, the formats they are written in, and questions about a cell, a row, a place in the
order, or a row that is not there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from streamglm.nano.training import phrases, prose, words
from streamglm.nano.training.dialog import Answer, Kind, Said, Thought, Turn
from streamglm.nano.training.dice import Dice, capital

Draw = Callable[[Dice], str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with a key in the first column. Keys are unique, and so are the values of `unique`
    columns, so that a question can go backwards."""

    noun: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    unique: tuple[bool, ...]


def _count(dice: Dice) -> str:
    return str(dice.between(1, 99))


def _amount(dice: Dice) -> str:
    return str(dice.between(1, 999) if dice.chance(0.8) else dice.between(1000, 99999))


_SUBJECTS: tuple[tuple[str, str, Draw, tuple[tuple[str, Draw, bool], ...]], ...] = (
    ("person", "name", prose.name, (
        ("age", _count, True), ("city", prose.city, True), ("job", lambda d: d.pick(words.JOBS), True),
        ("phone", lambda d: prose.digits(d, 6), True), ("colour", lambda d: d.pick(words.COLOURS), True),
        ("birthday", prose.date, True), ("room", _amount, True), ("team", lambda d: d.pick("ABCD"), False),
        ("score", _amount, True), ("pet", lambda d: d.pick(words.ANIMALS), True),
    )),
    ("item", "item", lambda d: d.pick((words.FOODS, words.THINGS)[d.below(2)]), (
        ("price", _amount, True), ("stock", _count, True), ("colour", lambda d: d.pick(words.COLOURS), True),
        ("code", prose.code, True), ("shelf", lambda d: d.pick("ABCDEFGH") + str(d.between(1, 9)), True),
        ("weight", _amount, True), ("owner", prose.name, True), ("place", lambda d: d.pick(words.PLACES), True),
    )),
    ("city", "city", prose.city, (
        ("population", _amount, True), ("temperature", lambda d: str(d.between(-20, 40)), True),
        ("mayor", prose.name, True), ("zip", lambda d: prose.digits(d, 5), True), ("river", lambda d: capital(prose.invented(d)), True),
        ("weather", lambda d: d.pick(("sunny", "rain", "snow", "fog", "wind", "cloudy")), False),
    )),
    ("animal", "animal", lambda d: d.pick(words.ANIMALS), (
        ("count", _count, True), ("name", prose.name, True), ("food", lambda d: d.pick(words.FOODS), True),
        ("age", _count, True), ("house", lambda d: d.pick(words.PLACES), True), ("weight", _amount, True),
    )),
    ("code", "code", prose.code, (
        ("owner", prose.name, True), ("door", lambda d: d.pick(words.PLACES), True), ("date", prose.date, True),
        ("status", lambda d: d.pick(("open", "closed", "lost", "new", "used")), False), ("value", _amount, True),
    )),
    ("meeting", "day", lambda d: d.pick(words.DAYS), (
        ("time", prose.clock, True), ("room", prose.code, True), ("host", prose.name, True),
        ("topic", lambda d: d.pick(words.THINGS), True), ("city", prose.city, True),
    )),
)  # fmt: skip


def _different(dice: Dice, draw: Draw, count: int) -> list[str]:
    seen: dict[str, None] = {}
    for _ in range(count * 6):
        seen[draw(dice)] = None
        if len(seen) == count:
            break
    return list(seen)


def draw(dice: Dice, rows: int, columns: int) -> Table:
    """A table of about `rows` rows and `columns` columns besides the key."""
    noun, key, draw_key, others = dice.pick(_SUBJECTS)
    picked = dice.several(others, min(columns, len(others)))
    keys = _different(dice, draw_key, rows)
    cells = [keys]
    unique = [True]
    for _, make, one in picked:
        values = _different(dice, make, len(keys)) if one else []
        unique.append(one and len(values) == len(keys))
        if not unique[-1]:
            values = [make(dice) for _ in keys]
        cells.append(values)
    return Table(
        noun,
        (key, *(name for name, _, _ in picked)),
        tuple(zip(*cells, strict=True)),
        tuple(unique),
    )


def written(dice: Dice, table: Table) -> str:
    """The table as text, in one of the formats that people paste."""
    form = dice.below(8)
    rows = table.rows
    if form == 0:
        head = " | ".join(table.columns)
        line = " | ".join(["---"] * len(table.columns))
        body = "\n".join([f"| {' | '.join(row)} |" for row in rows])
        return f"| {head} |\n| {line} |\n{body}"
    if form == 1:
        joint = dice.pick((",", ", ", ";", "\t"))
        return "\n".join([joint.join(row) for row in (table.columns, *rows)])
    if form == 2:
        value = [dict(zip(table.columns, row, strict=True)) for row in rows]
        return json.dumps(value, ensure_ascii=False, indent=2 if dice.chance(0.2) else None)
    if form == 3 and len(table.columns) == 2:
        return json.dumps(dict(rows), ensure_ascii=False)  # type: ignore[arg-type]
    if form == 4 and len(table.columns) == 2:
        joint = dice.pick((": ", " - ", " = ", " -> "))
        return "\n".join([joint.join(row) for row in rows])
    if form == 5:
        return "\n".join([f"{i}. {_line(table, row)}" for i, row in enumerate(rows, 1)])
    if form == 6:
        return "\n".join([f"- {_line(table, row)}" for row in rows])
    return " ".join([f"{_line(table, row)}." for row in rows])


def _line(table: Table, row: tuple[str, ...]) -> str:
    rest = ", ".join(
        [f"{name} {value}" for name, value in zip(table.columns[1:], row[1:], strict=True)]
    )
    return f"{row[0]}: {rest}" if rest else row[0]


_CELL = (
    "What is the {column} of {key}?",
    "(What's|Tell me|Give me|Find|Look up) the {column} of {key}(?|.)",
    "(Which|What) {column} (does {key} have|belongs to {key}|is given for {key}|stands next to {key})?",
    "{key}: {column}?",
    "(In|From|According to) the (table|list|data)( above|), what is the {column} of {key}?",
    "(Look at|Use|Read) the (table|list|data). What is {key}'s {column}?",
    "What is {key}'s {column}?",
    "(I need|I want|I would like) the {column} of {key}(.|, please.)",
    "(For|As for|Regarding|About) {key}(,|:) (what is the {column}|which {column} is given|which {column} is listed)?",
    "(Check|See|Search) the (table|list|data)(:|.) (what|which) {column} (goes with|belongs to|is next to) {key}?",
    "(Read|Show|Say) (me |)the {column} (of|for) {key}.",
)
_BACK = (
    "(Which|What) {noun} has the {column} {value}?",
    "(Which|What) {noun} has {value} as {column}?",
    "(Find|Name|Tell me|Give me) the {noun} (with|that has) the {column} {value}.",
    "The {column} {value} belongs to (which|what) {noun}?",
    "(In|From) the (table|list|data), (which|what) {noun} has {column} {value}?",
    "(Who|What) has the {column} {value}?",
    "(Whose|Which {noun}'s) {column} is {value}?",
)
READ = Thought(
    "Look up.",
    "I find the row and read the value.",
    "The user asks about the list. I find the right row first, then I read the value in it.",
)
MISSED = Thought(
    "Look up.",
    "I look for the row. It is not there.",
    "The user asks about the list. I go through all the rows. There is no such row, so I say so.",
)


def few(dice: Dice, most: int) -> int:
    """A number up to `most`, oftener a small one: small tables teach what large ones need."""
    return min(dice.between(1, most), dice.between(1, most))


def asked(dice: Dice, table: Table) -> tuple[str, Answer]:
    """A question about a row that is there, or now and then about one that is not."""
    if dice.chance(0.2):
        return absent(dice, table)
    made = cell(dice, table)
    return made.question, made.answer


def show(dice: Dice, table: Table) -> Said:
    """A message that holds the table, to be asked about later."""
    opening = dice.say(
        "(Here is|This is|Look at|Remember|Keep|Read|I have) (a|the|this|my) (list|table|data)(:|.)\n"
    )
    return Said(opening + written(dice, table) if dice.chance(0.8) else written(dice, table))


@dataclass(frozen=True, slots=True)
class Cell:
    """A question about a cell and its answer. `wanted` is what the answer has to hold: the cell, or
    its row's key when the question goes `backwards`."""

    question: str
    answer: Answer
    wanted: str
    backwards: bool


def cell(dice: Dice, table: Table, backwards: float = 0.45) -> Cell:
    """A question about a cell, by its row's key, or backwards, where that is unique."""
    row = dice.pick(table.rows)
    column = dice.between(1, len(table.columns) - 1)
    slots = {
        "column": table.columns[column],
        "key": row[0],
        "value": row[column],
        "noun": table.noun,
    }
    if table.unique[column] and dice.chance(backwards):
        text = f"The {slots['column']} {row[column]} belongs to {row[0]}."
        return Cell(_back(dice, slots), Answer(Kind.BACKWARDS, READ, text), row[0], True)
    text = f"The {slots['column']} of {row[0]} is {row[column]}."
    return Cell(_forth(dice, slots), Answer(Kind.LOOKUP, READ, text), row[column], False)


def _forth(dice: Dice, slots: dict[str, str]) -> str:
    """A question for a cell by its row's key."""
    if dice.chance(0.5):
        return phrases.ask_for(dice, slots["column"], slots["key"])
    return phrases.vary(dice, dice.say(dice.pick(_CELL), slots))


def _back(dice: Dice, slots: dict[str, str]) -> str:
    """A question for a row's key by one of its cells."""
    if dice.chance(0.4):
        joint = dice.pick((" with the ", " that has the ", " whose ", " with "))
        copula = " is " if joint == " whose " else " "
        thing = f"the {slots['noun']}{joint}{slots['column']}{copula}{slots['value']}"
        return phrases.request(dice, thing)
    return phrases.vary(dice, dice.say(dice.pick(_BACK), slots))


def absent(dice: Dice, table: Table) -> tuple[str, Answer]:
    """A question about a row that is not there."""
    make = next(draw_key for noun, _, draw_key, _ in _SUBJECTS if noun == table.noun)
    have = {row[0] for row in table.rows}
    key = next((k for k in (make(dice) for _ in range(40)) if k not in have), "")
    key = key or capital(prose.invented(dice))
    slots = {"column": dice.pick(table.columns[1:]), "key": key}
    return _forth(dice, slots), Answer(Kind.UNKNOWN, MISSED, f"{key} is not in the list.")


_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_PLACE = (
    "(What|Which) (is the {nth} item|item is the {nth}|entry is the {nth} one)?",
    "(Name|Tell me|Give me) the {nth} (item|entry|word)(.| of the list.)",
    "What comes {nth}?",
)
_PREVIOUS = (
    "What (comes|stands) (right |)before {key}?",
    "(Which|What) (item|entry) (precedes|stands before|is just before) {key}?",
)
_NEXT = (
    "What comes (right |)after {key}?",
    "(Which|What) (item|entry) (follows|stands after|is next after) {key}?",
)


def order(dice: Dice, items: list[str]) -> tuple[str, Answer]:
    """A question about the order of a list."""
    if dice.chance(0.5):
        place = dice.below(min(len(items), len(_ORDINALS)))
        nth = _ORDINALS[place]
        if dice.chance(0.15):
            place, nth = len(items) - 1, "last"
        question = dice.say(dice.pick(_PLACE), {"nth": nth})
        return question, Answer(Kind.LOOKUP, READ, f"{items[place]}.")
    place = dice.below(len(items) - 1)
    if dice.chance(0.5):
        question = dice.say(dice.pick(_PREVIOUS), {"key": items[place + 1]})
        return question, Answer(Kind.BACKWARDS, READ, f"{items[place]}.")
    question = dice.say(dice.pick(_NEXT), {"key": items[place]})
    return question, Answer(Kind.LOOKUP, READ, f"{items[place + 1]}.")


def plain_list(dice: Dice, count: int) -> list[str]:
    """Different words for a simple list."""
    pool = dice.pick(
        (words.ANIMALS, words.THINGS, words.FOODS, words.NAMES, words.CITIES, words.COLOURS)
    )
    return dice.several(pool, min(count, len(pool)))


def listed(dice: Dice, items: list[str]) -> str:
    """A simple list as text."""
    form = dice.below(5)
    if form == 0:
        return "\n".join([f"{i}. {item}" for i, item in enumerate(items, 1)])
    if form == 1:
        return "\n".join([f"- {item}" for item in items])
    if form == 2:
        return "\n".join(items)
    if form == 3:
        return json.dumps(items, ensure_ascii=False)
    return ", ".join(items)


def quick(dice: Dice, rows: int) -> Turn:
    """Table and question in one message."""
    if dice.chance(0.25):
        items = plain_list(dice, max(3, min(rows, 15)))
        question, answer = order(dice, items)
        body = listed(dice, items)
    else:
        table = draw(dice, rows, few(dice, 4))
        question, answer = asked(dice, table)
        body = written(dice, table)
    if dice.chance(0.5):
        return [Said(f"{body}\n{question}"), answer]
    return [Said(f"{question}\n{body}"), answer]
