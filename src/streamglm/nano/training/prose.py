"""Plain sentences about nothing in particular, and the values that facts have.

Owns the grammar of filler text and of values (codes, dates, prices). Knows no task. Every value
is drawn fresh, so nothing here can be learned by heart.
"""

from __future__ import annotations

from streamglm.nano.training import words
from streamglm.nano.training.dice import Dice, capital

_SENTENCES = (
    "(The|A) {adj} {animal} {verb} (the|a) {thing} (near|behind|under|beside) the {place}",
    "(The|A) {adj} {thing} stands (near|behind|in front of|beside) the {place}",
    "{name} {verb} (the|a|an old|a new) {thing} (in|near|at) the {place} {adverb}",
    "{name} {past} the {adj} {thing} on {day}",
    "{name} {past} {number} {food}s and {number2} {food2}s at the {place}",
    "On {day} {name} {past} a {thing} (for|from|with) {name2}",
    "In {city} the {place} (is open|was closed|is empty|was full) on {day}",
    "The {job} {past} the {thing} and {past2} the {thing2}",
    "The {job} of the {place} is called {name}",
    "The weather in {city} was {adj} (today|yesterday|on {day})",
    "It rained in {city} for {number} (hours|days|weeks)",
    "The {animal} and the {animal2} {past} the {thing} together",
    "There (is|was) a {colour} {thing} in the {place}",
    "There were {number} {animal}s in the {place}",
    "(My|Our|Her|His) {relation} {past} a {colour} {thing} in {month}",
    "{name} and {name2} went to {city} in {month}",
    "{name} wrote a (letter|book|song) about the {adj} {animal}",
    "The train to {city} leaves at {clock}",
    "A {food} costs {number} {unit} at the {place}",
    "Every {day} {name} {verb} the {place}",
    "The {colour} {thing} belongs to {name}",
    "They (talked|laughed|argued|thought) about the {thing} until {clock}",
    "Nobody {past} the {adj} {thing} in the {place}",
    "We (had|ate|made|bought) {food} and {food2} (for lunch|for dinner|at the {place})",
    "After that the {job} {past} the {place} {adverb}",
    "(First|Then|Later|Finally) the {animal} {past} the {adj} {thing}",
    "I {past} the {thing} because it was {adj}",
    "{name} likes {sport} but {name2} likes {sport2}",
    "The road from {city} to {city2} is {adj} and {adj2}",
    "When the {thing} was {adj}, {name} {past} it",
    "(If|When|Because) the {place} is {adj}, the {animal} {verb} the {thing}",
    "You can see the {place} from the {adj} {place2}",
)


class _Words:
    """Slots that draw their word when a pattern asks for it."""

    __slots__ = ("dice",)

    _lists = {  # noqa: RUF012  a constant table
        "adj": words.ADJECTIVES,
        "animal": words.ANIMALS,
        "thing": words.THINGS,
        "place": words.PLACES,
        "verb": words.VERBS,
        "past": words.PAST,
        "name": words.NAMES,
        "city": words.CITIES,
        "food": words.FOODS,
        "job": words.JOBS,
        "day": words.DAYS,
        "month": words.MONTHS,
        "colour": words.COLOURS,
        "relation": words.RELATIONS,
        "unit": words.UNITS,
        "sport": words.SPORTS,
        "adverb": words.ADVERBS,
        "number": words.NUMBERS,
        "street": words.STREETS,
    }

    def __init__(self, dice: Dice) -> None:
        self.dice = dice

    def __getitem__(self, slot: str) -> str:
        if slot == "clock":
            return clock(self.dice)
        return self.dice.pick(self._lists[slot.rstrip("2")])


def fill(dice: Dice, pattern: str) -> str:
    """One wording of `pattern` with any of the grammar's slots drawn at random."""
    return dice.say(pattern, _Words(dice))  # type: ignore[arg-type]


def sentence(dice: Dice) -> str:
    """A sentence with its full stop."""
    return capital(fill(dice, dice.pick(_SENTENCES))) + ("." if dice.chance(0.93) else "!")


def paragraph(dice: Dice, sentences: int) -> str:
    return " ".join([sentence(dice) for _ in range(sentences)])


def clock(dice: Dice) -> str:
    return f"{dice.below(24)}:{dice.below(60):02d}"


def date(dice: Dice) -> str:
    day, month = dice.between(1, 28), dice.pick(words.MONTHS)
    if dice.chance(0.3):
        return f"{dice.between(1950, 2030)}-{dice.between(1, 12):02d}-{day:02d}"
    return f"{day} {month}" if dice.chance(0.5) else f"{month} {day}"


def digits(dice: Dice, count: int) -> str:
    return "".join([dice.pick("0123456789") for _ in range(count)])


_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_MIXED = _UPPER + _LOWER + "0123456789"


def letters(dice: Dice, count: int, alphabet: str = _LOWER) -> str:
    return "".join([dice.pick(alphabet) for _ in range(count)])


def code(dice: Dice) -> str:
    """A code that no one could guess: digits, letters, words, or a mixture."""
    kind = dice.below(8)
    if kind == 0:
        return digits(dice, dice.between(3, 8))
    if kind == 1:
        return f"{letters(dice, dice.between(1, 3), _UPPER)}-{digits(dice, dice.between(2, 4))}"
    if kind == 2:
        return letters(dice, dice.between(4, 10), _MIXED)
    if kind == 3:
        return dice.pick(words.ANIMALS) + digits(dice, dice.between(1, 4))
    if kind == 4:
        pair = f"{dice.pick(words.COLOURS)}-{dice.pick(words.THINGS)}"
        return f"{pair}-{digits(dice, dice.between(1, 3))}"
    if kind == 5:
        return "-".join([digits(dice, dice.between(2, 4)) for _ in range(dice.between(2, 3))])
    if kind == 6:
        return letters(dice, dice.between(2, 4), _UPPER) + digits(dice, dice.between(1, 4))
    return f"{letters(dice, 4, _LOWER + '0123456789')}-{letters(dice, 4, _LOWER + '0123456789')}"


_SYLLABLES = (
    "ba be bo da de do fa fi ga go ha ka ke ko la le li lo ma mi mo na ne ni no pa po ra re ri ro "
    "sa se si so ta te ti to va ve vi wa zo"
).split()
_CODAS = ("", "", "n", "r", "l", "s", "k", "x", "th", "nd")


LISTS = (
    words.NAMES,
    words.CITIES,
    words.COLOURS,
    words.ANIMALS,
    words.THINGS,
    words.PLACES,
    words.FOODS,
    words.JOBS,
    words.ADJECTIVES,
    words.VERBS,
    words.PAST,
    words.MONTHS,
    words.NUMBERS,
    words.OTHERS,
    words.SMALL,
    words.DAYS,
    words.STREETS,
    words.SPORTS,
    words.RELATIONS,
)


def cutting(dice: Dice, longest: int = 11) -> str:
    """A stretch cut out of two words: it falls into pieces of the vocabulary that occur in no
    whole word, and every piece has to be known to be copied."""
    while True:
        both = dice.pick(dice.pick(LISTS)).lower() + dice.pick(dice.pick(LISTS)).lower()
        begin = dice.below(max(1, len(both) - 3))
        word = both[begin : begin + dice.between(3, longest)]
        if word not in words.HELD_OUT:
            return word


EVERY = tuple(sorted({word.lower() for group in LISTS for word in group}))
"""All these words once."""


def _followers() -> dict[str, str]:
    """Which letters follow two letters in the words that are known, as often as they do; a space
    begins and ends a word."""
    table: dict[str, list[str]] = {}
    for word in EVERY:
        for a, b, c in zip(f"  {word}", f" {word}", f"{word} ", strict=False):
            table.setdefault(a + b, []).append(c)
    return {pair: "".join(sorted(letters)) for pair, letters in table.items()}


_FOLLOWERS = _followers()


def coined(dice: Dice) -> str:
    """A word that sounds like the known ones, letter after letter: whatever pieces of the
    vocabulary a strange word falls into, they occur here."""
    while True:
        word = "  "
        while (letter := dice.pick(_FOLLOWERS[word[-2:]])) != " " and len(word) < 14:
            word += letter
        if len(word) > 4 and word[2:] not in words.HELD_OUT:
            return word[2:]


def invented(dice: Dice) -> str:
    """A word that does not exist, to learn that words need not be known to be quoted. The words
    that are held out for the exam never come about."""
    kind = dice.below(8)
    if kind < 3:
        return cutting(dice)
    if kind < 6:
        return coined(dice)
    while True:
        body = "".join([dice.pick(_SYLLABLES) for _ in range(dice.between(1, 3))])
        word = body + dice.pick(_CODAS)
        if word not in words.HELD_OUT:
            return word


def name(dice: Dice) -> str:
    return capital(invented(dice)) if dice.chance(0.3) else dice.pick(words.NAMES)


def city(dice: Dice) -> str:
    return capital(invented(dice)) if dice.chance(0.3) else dice.pick(words.CITIES)


def thing(dice: Dice) -> str:
    return invented(dice) if dice.chance(0.15) else dice.pick(words.THINGS)


def price(dice: Dice) -> str:
    amount = str(dice.between(1, 99) if dice.chance(0.7) else dice.between(100, 9999))
    if dice.chance(0.3):
        amount += f".{dice.below(100):02d}"
    return f"{amount} {dice.pick(('euros', 'dollars', 'pounds'))}"


def address(dice: Dice) -> str:
    return (
        f"{dice.between(1, 199)} {dice.pick(words.STREETS)} {dice.pick(('Street', 'Road', 'Lane'))}"
    )


def hideout(dice: Dice) -> str:
    where = dice.pick(("under", "behind", "inside", "above", "beside", "near"))
    return f"{where} the {dice.pick(words.ADJECTIVES)} {thing(dice)}"
