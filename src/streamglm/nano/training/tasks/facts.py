# ruff: noqa: E501  (a wording is one line)
"""Facts that the user tells and asks for later, and facts that were never told.

Owns the wordings of statements, questions and answers about an attribute of something or someone,
and about the user. Invariant: an answer depends on what the conversation holds alone; the value
is drawn when the fact is told.
"""

from __future__ import annotations

from streamglm.nano.training import phrases, prose, words
from streamglm.nano.training.dialog import Answer, Kind, Said, Thought, Turn
from streamglm.nano.training.dice import Dice, capital
from streamglm.nano.training.tasks import profile
from streamglm.nano.training.tasks.fact import Draw, Fact, word


def _number(low: int, high: int, units: tuple[str, ...]) -> Draw:
    return lambda dice: f"{dice.between(low, high)} {dice.pick(units)}"


_THING_ATTRIBUTES: tuple[tuple[tuple[str, ...], Draw], ...] = (
    (
        ("code", "access code", "pin", "password", "number", "key code", "secret code"),
        prose.code,
    ),
    (
        ("serial number", "reference", "model", "label", "order number", "combination", "tag"),
        prose.code,
    ),
    (("colour", "color"), word(words.COLOURS)),
    (("price", "cost", "value"), prose.price),
    (("owner", "maker", "seller", "user"), prose.name),
    (("location", "hiding place", "place"), prose.hideout),
    (("weight",), _number(1, 900, ("grams", "kilos", "tons"))),
    (("length", "height", "width"), _number(2, 400, ("metres", "inches", "feet"))),
    (("name", "nickname"), lambda dice: capital(prose.invented(dice))),
    (("age",), _number(2, 99, ("years", "days", "weeks"))),
    (("material",), word(("wood", "iron", "glass", "copper", "paper", "stone", "wool", "clay"))),
    (("delivery date", "due date", "date"), prose.date),
)
_PERSON_ATTRIBUTES: tuple[tuple[tuple[str, ...], Draw], ...] = (
    (("phone number", "room number", "badge number", "account number"), prose.code),
    (("password", "code", "user name", "pin"), prose.code),
    (("birthday", "wedding day"), prose.date),
    (("age",), _number(3, 99, ("years",))),
    (("city", "hometown", "birthplace"), prose.city),
    (("address",), prose.address),
    (("job",), word(words.JOBS)),
    (("name", "nickname", "codename", "first name"), prose.name),
    (("favourite colour", "favorite color"), word(words.COLOURS)),
    (("favourite food", "favourite drink", "favorite food"), word(words.FOODS)),
    (("favourite animal", "pet"), word(words.ANIMALS)),
    (("favourite sport", "hobby"), word(words.SPORTS)),
    (("appointment", "arrival time", "start time", "alarm"), prose.clock),
    (("height",), _number(90, 210, ("centimetres",))),
    (("seat", "flight", "ticket number"), prose.code),
)

_CLAUSES = (
    "{owned} is {value}",
    "{owned} is {value}",
    "{owned} is {value}",
    "the {attribute} of {owner} is {value}",
    "the {attribute} of {owner} is {value}",
    "the {attribute} for {owner} is {value}",
    "{owner} has the {attribute} {value}",
    "{value} is {owned}",
    "{value} is the {attribute} of {owner}",
    "{owned}: {value}",
    "{owner}, {attribute}: {value}",
    "{owned} = {value}",
    "{owned} (was|has been|will be|should be|must be) {value}",
    "{owned} (was set to|has changed to|is now) {value}",
    "(for|about|as for|concerning) {owner}(,|:) the {attribute} is {value}",
    "(we gave|I gave|they gave) {owner} the {attribute} {value}",
    "I (set|changed) {owned} to {value}",
    "I (chose|noted|wrote down|picked) {value} as (the {attribute} of {owner}|{owned})",
    "{owner} got {value} as {attribute}",
    "(when|if) (someone|anyone) asks, {owned} is {value}",
)
"""Statements without what is said around them."""
_NAMED = "({owner} (is called|is named|has the name|goes by the name) {value}|I (call|named) {owner} {value})"
_CALLED = "(what is {owner} called|what's {owner} called|how is {owner} called|what do I call {owner}|what name does {owner} have)?"
_BARE = "( Answer with the value only.| Just the value.| Only the value, please.| Value only.)"


def _slots(dice: Dice, attribute: str, owner: str, value: str) -> dict[str, str]:
    owned = phrases.possessions(dice, attribute, owner)
    return {"attribute": attribute, "owner": owner, "owned": owned, "value": value}


def _build(dice: Dice, key: tuple[str, str], mine: str, yours: str, value: str) -> Fact:
    """`mine` and `yours` name the owner as the user and as the assistant does. Each wording says
    in its own way what belongs to whom."""
    attribute = key[0]
    slots = _slots(dice, attribute, mine, value)
    named = attribute == "name" and dice.chance(0.6)
    clause = dice.say(_NAMED if named else dice.pick(_CLAUSES), slots)
    return Fact(
        key=key,
        value=value,
        slots=slots,
        told=(phrases.tell(dice, clause),),
        asked=(
            capital(dice.say(_CALLED, slots)) if named else phrases.ask_for(dice, attribute, mine),
            phrases.ask_for(dice, attribute, mine),
        ),
        answer=f"The {attribute} of {yours} is {value}.",
        missing=f"I was not told the {attribute} of {yours}.",
    )


def _owner(dice: Dice) -> tuple[str, str, bool]:
    """The owner in the user's words, in the assistant's, and whether it is a person."""
    kind = dice.below(13)
    if kind == 12:
        noun = dice.pick(words.ANIMALS)
        return f"my {noun}", f"your {noun}", True
    if kind < 2:
        noun = prose.thing(dice)
        return f"my {noun}", f"your {noun}", False
    if kind < 4:
        noun = f"the {dice.pick(words.ADJECTIVES)} {prose.thing(dice)}"
        return noun, noun, False
    if kind == 4:
        noun = f"the {dice.pick(words.PLACES)} {prose.thing(dice)}"
        return noun, noun, False
    if kind == 5:
        noun = f"{prose.name(dice)}'s {prose.thing(dice)}"
        return noun, noun, False
    if kind == 6:
        noun = f"the {dice.pick((words.PLACES, words.ANIMALS, words.THINGS)[dice.below(3)])}"
        return noun, noun, False
    if kind == 7:
        noun = f"{dice.pick(words.COLOURS)} {prose.thing(dice)}"
        return f"the {noun}", f"the {noun}", False
    if kind < 10:
        noun = prose.name(dice)
        return noun, noun, True
    if kind == 10:
        noun = dice.pick(words.RELATIONS)
        return f"my {noun}", f"your {noun}", True
    noun = f"the {dice.pick(words.JOBS)}"
    return noun, noun, True


def draw(dice: Dice) -> Fact:
    """A fact about something, someone, or the user."""
    mark = dice.unit()
    if mark < 0.22:
        return profile.about_user(dice)
    if mark < 0.4:
        return profile.plainly(dice)
    return _of(dice, *_owner(dice))


def _of(dice: Dice, mine: str, yours: str, person: bool, attribute: str | None = None) -> Fact:
    table = _PERSON_ATTRIBUTES if person else _THING_ATTRIBUTES
    names, value = dice.pick(table)
    return _build(dice, (attribute or dice.pick(names), yours), mine, yours, value(dice))


def similar(dice: Dice, fact: Fact) -> Fact:
    """A fact that shares its owner or its attribute with `fact`, so that both must be read."""
    attribute, yours = fact.key
    if yours == "you":
        return profile.about_user(dice)
    if not fact.slots:
        return profile.alike(dice, fact)
    mine = "my " + yours[5:] if yours.startswith("your ") else yours
    person = any(attribute in names for names, _ in _PERSON_ATTRIBUTES)
    if dice.chance(0.5):
        return _of(dice, mine, yours, person)
    table = _PERSON_ATTRIBUTES if person else _THING_ATTRIBUTES
    value = next((draw for names, draw in table if attribute in names), prose.code)
    while True:
        mine, yours, other = _owner(dice)
        if other == person:
            return _build(dice, (attribute, yours), mine, yours, value(dice))


# Reasoning, by effort.
def _recall(what: str) -> Thought:
    return Thought(
        "Recall.",
        f"I was asked for {what}. It was told before.",
        f"The user asks for {what}. I look back at what was said. It was told before, so I can "
        "answer.",
    )


def _search(what: str) -> Thought:
    return Thought(
        "Recall.",
        f"I was asked for {what}. It was never told.",
        f"The user asks for {what}. I look back at what was said. It was never told, so I say so.",
    )


def _what(fact: Fact) -> str:
    attribute, yours = fact.key
    return f"their {attribute}" if yours == "you" else f"the {attribute}"


_NOTED = (
    "Noted.",
    "Noted.",
    "I will remember that.",
    "Thank you, I will remember that.",
    "Got it.",
    "OK, noted.",
)
NOTING = Thought(
    "Note it.", "A fact to keep in mind.", "The user tells me something. I keep it in mind."
)


def tell(dice: Dice, told: list[Fact]) -> Turn:
    """One message that tells all of `told`."""
    if len(told) == 1:
        text = told[0].told[0]
        reply = told[0].answer if dice.chance(0.3) else dice.pick(_NOTED)
    else:
        joint = dice.pick((" ", " ", "\n", "\n- "))
        text = joint.join([fact.told[0] for fact in told])
        if joint == "\n- ":
            text = (
                dice.say("(Some facts|Remember this|Notes|Here is what you should know):\n- ")
                + text
            )
        reply = dice.pick(_NOTED)
    return [Said(text), Answer(Kind.NOTED, NOTING, reply)]


def ask(dice: Dice, fact: Fact, *, only: bool = False) -> Turn:
    """Ask for a fact that was told; `only` when no other told fact has its attribute, so that a
    question may leave the owner out."""
    question = dice.pick(fact.asked)
    if only and fact.slots and dice.chance(0.3):
        question = phrases.request(dice, f"the {fact.key[0]}")
    if dice.chance(0.15):
        bare = Answer(Kind.FACT, _recall(_what(fact)), fact.value)
        return [Said(question + dice.say(_BARE)), bare]
    return [Said(question), Answer(Kind.FACT, _recall(_what(fact)), fact.answer)]


def ask_unknown(dice: Dice, fact: Fact) -> Turn:
    """Ask for a fact that was not told."""
    question = dice.pick(fact.asked)
    if dice.chance(0.1):
        question += dice.say(_BARE)
    return [Said(question), Answer(Kind.UNKNOWN, _search(_what(fact)), fact.missing)]
