# ruff: noqa: E501  (a wording is one line)
"""Facts with wordings of their own: about the user, where someone lives, when something is.

Owns these sorts of facts and their wordings. An attribute of an owner ("the code of the safe") is
told in `facts` instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamglm.nano.training import phrases, prose, words
from streamglm.nano.training.dice import Dice, capital
from streamglm.nano.training.tasks.fact import Draw, Fact, word


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of fact. `who` draws whom it is about; None is the user."""

    key: str
    who: Draw | None
    value: Draw
    told: str
    asked: str
    answer: str
    missing: str


_USER = (
    Sort("name", None, prose.name,
         "(My name is {value}|I am {value}|I'm {value}|You can call me {value}|They call me {value}|Hello, I am {value}|Hi, my name is {value}).",
         "(What is my name|What's my name|Who am I|Do you know my name|Do you remember my name|How am I called|Tell me my name|What did I say my name was)?",
         "Your name is {value}.", "I was not told your name."),
    Sort("city", None, prose.city,
         "(I live in {value}|I'm living in {value}|My home is in {value}|I live and work in {value}).",
         "(Where do I live|Which city do I live in|Do you know where I live|In which city is my home|Where is my home)?",
         "You live in {value}.", "I was not told where you live."),
    Sort("origin", None, prose.city,
         "(I come from {value}|I am from {value}|I'm from {value}|I was born in {value}).",
         "(Where am I from|Where do I come from|Where was I born|Do you know where I come from)?",
         "You come from {value}.", "I was not told where you come from."),
    Sort("job", None, word(words.JOBS),
         "(I work as a {value}|I am a {value}|My job is {value}|I'm a {value} by trade|I earn my living as a {value}).",
         "(What is my job|What do I do for a living|What do I work as|Do you know my job|What's my job)?",
         "You work as a {value}.", "I was not told your job."),
    Sort("age", None, lambda dice: str(dice.between(6, 99)),
         "(I am {value} years old|I'm {value} years old|My age is {value}|I turned {value} last week).",
         "(How old am I|What is my age|Do you know how old I am|What's my age)?",
         "You are {value} years old.", "I was not told your age."),
    Sort("birthday", None, prose.date,
         "(My birthday is {value}|I was born on {value}|I have my birthday on {value}).",
         "(When is my birthday|When was I born|What is my birthday|Do you remember my birthday)?",
         "Your birthday is {value}.", "I was not told your birthday."),
    Sort("colour", None, word(words.COLOURS),
         "(My favourite colour is {value}|The colour I like best is {value}|I love the colour {value}|My favorite color is {value}).",
         "(What is my favourite colour|Which colour do I like best|What colour do I love|What is my favorite color)?",
         "Your favourite colour is {value}.", "I was not told your favourite colour."),
    Sort("food", None, word(words.FOODS),
         "(My favourite food is {value}|I like {value} best|I love to eat {value}|My favorite food is {value}).",
         "(What is my favourite food|Which food do I like best|What do I love to eat|What is my favorite food)?",
         "Your favourite food is {value}.", "I was not told your favourite food."),
    Sort("pet", None, lambda dice: f'{dice.pick(words.ANIMALS)} called {prose.name(dice)}',
         "(I have a {value}|At home I have a {value}|My pet is a {value}).",
         "(What pet do I have|Do you know my pet|Which animal do I have|What is my pet)?",
         "You have a {value}.", "I was not told what pet you have."),
    Sort("code", None, prose.code,
         "(My (|secret )code is {value}|The secret code is {value}|Here is my code: {value}|The code is {value}).",
         "(What is my code|What is the (|secret )code|Tell me the (|secret )code|What's the code|Which code did I give you|Do you remember the (|secret )code)?",
         "The code is {value}.", "I was not told a code."),
    Sort("word", None, prose.invented,
         "(The password is {value}|My password is {value}|The magic word is {value}|The secret word is {value}).",
         "(What is the password|What is my password|What is the magic word|What was the secret word|Tell me the password)?",
         "It is {value}.", "I was not told that word."),
)  # fmt: skip
_EVENTS = (
    "meeting party concert match exam dinner lesson wedding interview workshop picnic lecture trip "
    "race play opening sale repair check delivery"
).split()
_OTHERS = (
    Sort("city", prose.name, prose.city,
         "{who} (lives in|has moved to|comes home to|has a house in) {value}.",
         "(Where does {who} live|In which city does {who} live|Do you know where {who} lives)?",
         "{who} lives in {value}.", "I was not told where {who} lives."),
    Sort("job", prose.name, word(words.JOBS),
         "{who} (works as a|is a|has a job as a|earns money as a) {value}.",
         "(What does {who} do|What is {who}'s job|What does {who} work as|What is the job of {who})?",
         "{who} works as a {value}.", "I was not told what {who} does."),
    Sort("age", prose.name, lambda dice: str(dice.between(2, 99)),
         "{who} is {value} years old.",
         "(How old is {who}|What is the age of {who}|Do you know how old {who} is)?",
         "{who} is {value} years old.", "I was not told how old {who} is."),
    Sort("liking", prose.name, lambda dice: dice.pick((words.FOODS, words.SPORTS, words.ANIMALS)[dice.below(3)]),
         "{who} (likes|loves|likes most of all|is fond of) {value}.",
         "(What does {who} like|What does {who} love|What is {who} fond of)?",
         "{who} likes {value}.", "I was not told what {who} likes."),
    Sort("property", prose.name, lambda dice: f'{dice.pick(words.COLOURS)} {prose.thing(dice)}',
         "{who} (has a|owns a|bought a|found a|lost a) {value}.",
         "(What does {who} have|What does {who} own|What did {who} buy|What belongs to {who})?",
         "{who} has a {value}.", "I was not told what {who} has."),
    Sort("time", lambda dice: f'the {dice.pick(_EVENTS)}', lambda dice: f'{dice.pick(words.DAYS)} at {prose.clock(dice)}' if dice.chance(0.5) else prose.date(dice),
         "({Who} is on {value}|We have {who} on {value}|{Who} will be on {value}|{Who} was moved to {value}).",
         "(When is {who}|On which day is {who}|Do you know when {who} is|What is the date of {who})?",
         "{Who} is on {value}.", "I was not told when {who} is."),
    Sort("place", lambda dice: f'the {dice.pick(_EVENTS)}', lambda dice: f'the {dice.pick(words.PLACES)} of {prose.city(dice)}',
         "({Who} (is|takes place|will be) in {value}|We meet for {who} in {value}).",
         "(Where is {who}|Where does {who} take place|Do you know where {who} is|In which place is {who})?",
         "{Who} is in {value}.", "I was not told where {who} is."),
    Sort("whereabouts", lambda dice: f'the {dice.pick(words.ADJECTIVES)} {prose.thing(dice)}', prose.hideout,
         "(I (put|left|keep|hid) {who} {value}|{Who} (is|lies|stands) {value}|You will find {who} {value}).",
         "(Where is {who}|Where did I put {who}|Where do I find {who}|Do you know where {who} is)?",
         "{Who} is {value}.", "I was not told where {who} is."),
)  # fmt: skip
_LIKED: tuple[tuple[str, Draw], ...] = (
    ("number", lambda dice: str(dice.between(0, 999))),
    ("book", lambda dice: f"{capital(prose.invented(dice))} and the {dice.pick(words.ANIMALS)}"),
    (
        "film",
        lambda dice: (
            f"The {capital(dice.pick(words.ADJECTIVES))} {capital(dice.pick(words.THINGS))}"
        ),
    ),
    (
        "song",
        lambda dice: f"{capital(dice.pick(words.COLOURS))} {capital(dice.pick(words.PLACES))}",
    ),
    ("band", lambda dice: f"the {dice.pick(words.ADJECTIVES)} {dice.pick(words.ANIMALS)}s"),
    ("season", word(("spring", "summer", "autumn", "winter"))),
    ("month", word(words.MONTHS)),
    ("day", word(words.DAYS)),
    ("city", prose.city),
    ("tree", word(("oak", "elm", "pine", "birch", "willow", "maple", "ash"))),
    ("flower", word(("rose", "tulip", "lily", "daisy", "poppy", "orchid"))),
    ("animal", word(words.ANIMALS)),
    ("sport", word(words.SPORTS)),
    ("drink", word(("tea", "coffee", "cocoa", "juice", "water", "milk"))),
    ("game", prose.invented),
    ("word", prose.invented),
    ("letter", lambda dice: dice.pick("ABCDEFGHIJKLMNOPQRSTUVWXYZ")),
    ("shape", word(("circle", "square", "triangle", "star", "line"))),
    ("place", lambda dice: f"the {dice.pick(words.PLACES)}"),
    ("toy", prose.thing),
    ("teacher", prose.name),
)
_FAVOURITE = Sort(
    "favourite",
    None,
    lambda dice: "",
    "(My (favourite|favorite) {kind} is {value}|The {kind} I like (best|most) is {value}|{value} is my (favourite|favorite) {kind}|I like {value} more than any other {kind}).",
    "((What is|What's|Tell me|Do you know|Do you remember) my (favourite|favorite) {kind}(?|, please.)|Which {kind} do I like (best|most)?|What {kind} do I (like best|prefer)?)",
    "Your favourite {kind} is {value}.",
    "I was not told your favourite {kind}.",
)


def about_user(dice: Dice) -> Fact:
    """A fact about the user."""
    if dice.chance(0.3):
        kind, value = dice.pick(_LIKED)
        slots = {"kind": kind, "value": value(dice)}
        return _made(dice, _FAVOURITE, (f"favourite {kind}", "you"), slots)
    sort = dice.pick(_USER)
    return _made(dice, sort, (sort.key, "you"), {"value": sort.value(dice)})


def plainly(dice: Dice, who: str | None = None) -> Fact:
    """A fact told as people tell it; about `who`, if that is a person's name."""
    person = who is not None and who[:1].isupper()
    sorts = [sort for sort in _OTHERS if who is None or (sort.who is prose.name) == person]
    return _about(dice, dice.pick(sorts), who if person else None)


def alike(dice: Dice, fact: Fact) -> Fact:
    """A fact of the same sort about another, or of another sort about the same."""
    sort = next(sort for sort in _OTHERS if sort.key == fact.key[0])
    return _about(dice, sort) if dice.chance(0.5) else plainly(dice, fact.key[1])


def _about(dice: Dice, sort: Sort, who: str | None = None) -> Fact:
    assert sort.who is not None
    subject = who or sort.who(dice)
    slots = {"who": subject, "Who": capital(subject), "value": sort.value(dice)}
    return _made(dice, sort, (sort.key, subject), slots)


def _made(dice: Dice, sort: Sort, key: tuple[str, str], slots: dict[str, str]) -> Fact:
    return Fact(
        key=key,
        value=slots["value"],
        slots={},
        told=(phrases.telling(dice, dice.say(sort.told, slots)),),
        asked=tuple(phrases.vary(dice, dice.say(sort.asked, slots)) for _ in range(2)),
        answer=dice.say(sort.answer, slots),
        missing=dice.say(sort.missing, slots),
    )
