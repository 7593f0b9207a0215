# ruff: noqa: E501  (a wording is one line)
"""Counting, spelling, reciting and small sums.

Owns the questions and the worked reasoning: at full effort the assistant counts aloud, which is
what makes its answer right; at low effort it guesses.
"""

from __future__ import annotations

from streamglm.nano.training import prose, words
from streamglm.nano.training.dialog import Answer, Kind, Said, Thought, Turn
from streamglm.nano.training.dice import Dice, capital
from streamglm.nano.training.tasks import lookups

_POOLS = (
    words.ANIMALS,
    words.THINGS,
    words.FOODS,
    words.PLACES,
    words.NAMES,
    words.ADJECTIVES,
    words.JOBS,
)


def _word(dice: Dice) -> str:
    """A word from the lists, an invented one, or a cut out of two: its letters have to be known
    piece by piece."""
    kind = dice.below(10)
    if kind < 4:
        return dice.pick(dice.pick(_POOLS))
    if kind < 6:
        return prose.invented(dice)
    if kind == 6:
        return prose.letters(dice, dice.between(3, 9))
    return prose.coined(dice) if kind == 7 else prose.cutting(dice)


def _numbered(items: list[str]) -> str:
    return ", ".join([f"{i} {item}" for i, item in enumerate(items, 1)])


def count_items(dice: Dice) -> Turn:
    """How many items does a list have?"""
    items = lookups.plain_list(dice, dice.between(2, 12))
    body = lookups.listed(dice, items)
    question = dice.say(
        "(How many (items|entries|words|things) (are in this list|are there|do you see|does this list have)?"
        "|Count (the items|the entries|these)(.|, please.))"
    )
    thought = Thought("Count.", _numbered(items), f"I count: {_numbered(items)}.")
    text = f"{question}\n{body}" if dice.chance(0.5) else f"{body}\n{question}"
    return [Said(text), Answer(Kind.COUNT, thought, f"{len(items)}.")]


def count_letters(dice: Dice) -> Turn:
    """How often does a letter occur in a word; or how long is the word?"""
    word = _word(dice)
    spelled = "-".join(word)
    if dice.chance(0.4):
        question = dice.say(
            "(How many letters (does|has) {q}{w}{q}( have|)?|How long is the word {q}{w}{q}?|Count the letters (in|of) {q}{w}{q}.)",
            {"w": word, "q": dice.pick(('"', "'", ""))},
        )
        thought = Thought(
            spelled, _numbered(list(word)), f"I count the letters: {_numbered(list(word))}."
        )
        return [Said(question), Answer(Kind.COUNT, thought, f"{len(word)}.")]
    letter = dice.pick(word) if dice.chance(0.8) else prose.letters(dice, 1)
    count = word.lower().count(letter.lower())
    question = dice.say(
        "(How many {l}'s are in {q}{w}{q}?|How many times does {l} (occur|appear) in {q}{w}{q}?|How often is the letter {l} in {q}{w}{q}?|Count the letter {l} in {q}{w}{q}.)",
        {"w": word, "l": letter, "q": dice.pick(('"', "'", ""))},
    )
    hits = [f"{c} {word[: i + 1].lower().count(letter.lower())}" for i, c in enumerate(word)]
    thought = Thought(spelled, ", ".join(hits), f"I go through the letters: {', '.join(hits)}.")
    return [Said(question), Answer(Kind.COUNT, thought, f"{count}.")]


def spell(dice: Dice) -> Turn:
    """Spell a word, forwards or backwards, or name one of its letters."""
    word = _word(dice)
    quote = dice.pick(('"', "'", ""))
    slots = {"w": f"{quote}{word}{quote}"}
    kind = dice.below(8)
    if kind < 5:
        question = dice.say(
            "(Spell (the word |){w}(.|, please.| for me.| letter by letter.| now.)|How do (you|I|we) spell {w}?|(Can you|Could you|Please|I want you to) spell (the word |){w}(?|.)|How is {w} (spelled|written)?|(Write|Say|Give me|Tell me) {w} letter by letter.|(What are|Tell me|Give me|List|Show) the letters (of|in) {w}(?|.)|{w}, letter by letter(.|, please.)|(I forgot|I do not know) how to spell {w}.)",
            slots,
        )
        answer = "-".join(word)
    elif kind == 5:
        question = dice.say(
            "(Spell {w} backwards.|Write {w} backwards, letter by letter.|Reverse the letters of {w}.)",
            slots,
        )
        answer = "-".join(reversed(word))
    elif kind == 6:
        question = dice.say(
            "(What is the first letter of {w}?|Which letter does {w} start with?|With which letter does {w} begin?)",
            slots,
        )
        answer = f"{capital(word[0])}."
    else:
        question = dice.say(
            "(What is the last letter of {w}?|Which letter does {w} end with?|With which letter does {w} end?)",
            slots,
        )
        answer = f"{capital(word[-1])}."
    thought = Thought(
        "Spell.",
        f"The letters of {word}.",
        f"The user wants letters. I take the word {word} letter by letter.",
    )
    return [Said(question), Answer(Kind.SPELL, thought, answer)]


def recite(dice: Dice) -> Turn:
    """Count up or down, say the alphabet, the days or the months."""
    kind = dice.below(10)
    joint, named = dice.pick(
        (
            (", ", ""),
            (" ", ", separated by spaces"),
            ("\n", ", one a line"),
            (", ", ", separated by commas"),
        )
    )
    if kind < 7:
        low = 1 if dice.chance(0.5) else dice.between(0, 90)
        high = low + (dice.between(2, 40) if dice.chance(0.88) else dice.between(40, 120))
        numbers = list(range(low, high + 1))
        order = ""
        if dice.chance(0.15):
            numbers.reverse()
            low, high, order = high, low, " down"
        question = dice.say(
            "((Count|Please count|Can you count){order} from {low} to {high}{named}.|(Write|List|Say|Print)(| out) the numbers from {low} to {high}{named}.)",
            {"low": str(low), "high": str(high), "named": named, "order": order},
        )
        answer = joint.join(map(str, numbers))
    elif kind == 7:
        question = dice.say(
            "(Say|Recite|Write|List) the (alphabet|letters of the alphabet){named}.",
            {"named": named},
        )
        answer = joint.join("abcdefghijklmnopqrstuvwxyz")
    elif kind == 8:
        question = dice.say(
            "(Name|List|What are|Tell me) the days of the week{named}.", {"named": named}
        )
        answer = joint.join(words.DAYS)
    else:
        question = dice.say(
            "(Name|List|What are|Tell me) the months( of the year|){named}.", {"named": named}
        )
        answer = joint.join(words.MONTHS)
    thought = Thought(
        "Recite.",
        "I say them in order.",
        "The user wants them in order. I say one after the other.",
    )
    return [Said(question), Answer(Kind.RECITE, thought, answer)]


def add(dice: Dice) -> Turn:
    """A small sum or difference."""
    a, b = dice.between(0, 50), dice.between(0, 50)
    minus = dice.chance(0.4)
    if minus:
        a, b = max(a, b), min(a, b)
    sign, result = ("-", a - b) if minus else ("+", a + b)
    question = dice.say(
        "((What is|How much is|What's|Calculate|Compute) {a} {s} {b}(?|.)|{a} {s} {b} = ?|{a}{s}{b}?)",
        {"a": str(a), "b": str(b), "s": sign},
    )
    thought = Thought("Sum.", f"{a} {sign} {b}.", f"The sum is {a} {sign} {b}. That is {result}.")
    return [Said(question), Answer(Kind.COUNT, thought, f"{result}.")]


def draw(dice: Dice) -> Turn:
    """One of these tasks."""
    makers = (count_items, count_letters, count_letters, spell, spell, spell, spell, recite, add)
    return dice.pick(makers)(dice)
