# ruff: noqa: E501  (a wording is one line)
"""Marker sentences: planted anywhere, quoted back word for word.

Owns labels, the ways to plant a marker (a message of its own, or inside other text), and the
questions that ask for it. Invariant: the answer to a marker question is the sentence, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamglm.nano.training import phrases, prose, scraps, words
from streamglm.nano.training.dialog import Answer, Kind, Said, Thought, Turn
from streamglm.nano.training.dice import Dice, capital

_NOUNS = (
    "marker", "marker", "marker", "note", "note", "line", "sentence", "message", "phrase",
    "reminder", "secret", "quote", "entry", "remark",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Marker:
    """A labelled sentence. `subject` is a word that the sentence holds and a question may use."""

    noun: str
    label: str
    sentence: str
    subject: str

    @property
    def name(self) -> str:
        """How the marker is called in text: `marker B`, `the red note`, or plainly `the note`."""
        if not self.label:
            return f"the {self.noun}"
        if self.label in words.COLOURS or self.label in words.ADJECTIVES:
            return f"the {self.label} {self.noun}"
        return f"{self.noun} {self.label}"


def _label(dice: Dice) -> str:
    kind = dice.below(9)
    if kind < 2:
        return dice.pick("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    if kind < 4:
        return str(dice.between(1, 99))
    if kind == 4:
        return dice.pick(words.COLOURS)
    if kind == 5:
        return dice.pick("ABCDEFGHIJKLMNOPQRSTUVWXYZ") + str(dice.between(1, 99))
    if kind == 6:
        return capital(dice.pick(words.ANIMALS))
    if kind == 7:
        return prose.code(dice)
    return dice.pick(words.ADJECTIVES)


_SENTENCES = (
    "the {adj} {subject} {verb} the {thing} at {clock}",
    "the {adj} {subject} {past} the {colour} {thing} near the {place}",
    "the {subject} of {city} is {adj} and {adj2}",
    "a {adj} {subject} waits under gate {code}",
    "{name} {past} the {subject} and the {thing} on {day}",
    "{number} {subject}s in {city} with code {code}",
    "the {subject} opens with {code} after {clock}",
    "meet {name} at the {place} with the {subject}",
    "never show the {subject} to {name} before {clock}",
    "{colour} {subject}, {adj} {thing}, {adj2} {place}",
    "my {relation} keeps the {subject} behind the {adj} {thing}",
    "the word for the {subject} is {invented}",
    "{invented} {invented2} {subject} {invented3}",
    "the {subject} costs {price} in {month}",
    "when the {subject} is {adj}, call {digits}",
)


class _Slots:
    """The grammar's slots, with those that markers add."""

    def __init__(self, dice: Dice, subject: str) -> None:
        self.dice = dice
        self.subject = subject

    def __getitem__(self, slot: str) -> str:
        dice = self.dice
        match slot.rstrip("23"):
            case "subject":
                return self.subject
            case "code":
                return prose.code(dice)
            case "invented":
                return prose.invented(dice)
            case "price":
                return prose.price(dice)
            case "digits":
                return prose.digits(dice, dice.between(3, 7))
            case "name":
                return prose.name(dice)
            case "city":
                return prose.city(dice)
            case _:
                return prose.fill(dice, "{" + slot + "}")


def draw(dice: Dice, noun: str | None = None) -> Marker:
    """A marker; `noun` joins several markers into one series."""
    subject = dice.pick((words.ANIMALS, words.THINGS, words.FOODS)[dice.below(3)])
    if dice.chance(0.12):
        sentence = scraps.scrap(dice, dice.between(10, 60)).replace("\n", " ")
    else:
        text = dice.say(dice.pick(_SENTENCES), _Slots(dice, subject))  # type: ignore[arg-type]
        sentence = (capital(text) if dice.chance(0.7) else text) + dice.pick((".", ".", "", "!"))
    label = _label(dice) if dice.chance(0.85) else ""
    return Marker(noun or dice.pick(_NOUNS), label, sentence, subject)


_PLANTED = (
    "{Name}: {sentence}",
    '{Name}: "{sentence}"',
    "{Name} is: {sentence}",
    '{Name} (is|says|reads) "{sentence}"',
    "(Remember|Note|Keep|Save|Store) {name}: {sentence}",
    '(Remember|Note|Keep|Save|Store) {name}: "{sentence}"',
    "(Here is|This is|Here comes) {name}: {sentence}",
    "(Here is|This is|Here comes) {name}. {sentence}",
    "[{name}] {sentence}",
    "{Name} - {sentence}",
    "{Name} = {sentence}",
    "{Name}:\n{sentence}",
    "<{noun}> {name}: {sentence}",
    "Please (remember|keep in mind|do not forget) {name}: {sentence}",
    "I want you to (remember|keep) {name}. It (is|reads|says): {sentence}",
    "*** {name}: {sentence} ***",
    "(Write down|Record|Memorise|File|Put down) {name}: {sentence}",
    '(The text|The wording) of {name} is: "{sentence}"',
    "(Now|Next|Then|And now) (comes|follows) {name}: {sentence}",
    "(Under|As|For) {name} (I wrote|I noted|we have)(:|) {sentence}",
    '{Name}, (word for word|exactly|in full): "{sentence}"',
)
_ALONG = (
    "Here it comes. ", "Listen. ", "And now: ", "By the way. ", "Attention! ", "Please note. ", "Next. ",
    "I will ask for this later. ", "This matters. ", "For the record. ", "Do not lose this. ", "OK. ",
)  # fmt: skip
_ASKED = (
    "(Quote|Repeat|Recite|Give me|Tell me|Write|Say) {name}(.| exactly.| word for word.|, please.)",
    "(What is|What was|What does|What did) {name}( say| read|)?",
    "(Please |)(quote|repeat|recite|give me) {name}(.| exactly.| word for word.| again.)",
    "(Can|Could) you (quote|repeat|recite|tell me|give me) {name}(| exactly| word for word)?",
    "(Do you remember|What did I write in|What did I say in|What stands in) {name}?",
    "{Name}(?|, please.| again, please.)",
    "What (exactly |)(is|was) the text of {name}?",
    "(Go back to|Find|Look for|Look up) {name} and (quote|repeat) it(.| exactly.)",
    "(I need|I forgot|I lost) {name}. (Quote it.|What was it?|Please repeat it.)",
    "(Which|What) (words|text|sentence) (did I give|did I write|did I file|belongs|stand) (as|under|for) {name}?",
    "(Show|Read|Send|Print) (me |){name}(.| exactly.| word for word.|, please.)",
    "(Someone asks for|They want|My friend wants) {name}. (What do you answer?|Quote it.)",
    "(I want|I would like|I'd like) to (see|hear|read) {name}( again|)(.|, please.)",
)
_UNNAMED = (
    "(Please |)(remember|keep|note|don't forget|memorise) (this|the following)(: |:\n){sentence}",
    '(Please |)(remember|keep|note) this {noun}: "{sentence}"',
    "(Remember|Keep in mind|Note|Do not forget|Important)(: |:\n){sentence}",
    "(I want you to remember|You should remember|Keep for later) this(: |:\n){sentence}",
)
_BY_SUBJECT = (
    "What (did I (say|tell you|write)|do you know) about the {subject}?",
    "What was (that|it|the thing) (about|with) the {subject}?",
    "(Quote|Repeat|Give me|Find) the {noun} (about|with|that mentions) the {subject}(.| exactly.)",
    "(Which|What) {noun} (was about|mentions|talks about) the {subject}?",
)
_ALONE = (
    "(What was|Quote|Repeat|What is) the {noun} (I asked you to remember|I gave you|you should keep|from before)(?|.)",
    "(What did I ask you to remember|Which {noun} did I give you)?",
    "What (did I tell you to (remember|keep|note)|should you remember|was I asking you to keep)?",
    "(Tell me|Say|Repeat|Quote) what (I asked you to remember|I told you to remember|you should remember)(.|, please.)",
)

QUOTE = Thought(
    "Quote.",
    "I find the sentence and quote it exactly.",
    "The user wants the sentence that was given before. I find it and quote it word for word.",
)
SEARCHED = Thought(
    "Quote.",
    "I look for the sentence. It was never given.",
    "The user wants a sentence that should have been given before. I look back. It was never "
    "given, so I say so.",
)


def _slots(marker: Marker) -> dict[str, str]:
    return {
        "name": marker.name,
        "Name": capital(marker.name),
        "noun": marker.noun,
        "sentence": marker.sentence,
        "subject": marker.subject,
    }


def planted(dice: Dice, marker: Marker) -> str:
    """The text that plants a marker. It may be a message, or stand inside other text."""
    while True:
        if marker.label and phrases.strange(dice, 0.25):
            return _loosely(dice, marker)
        pattern = dice.pick(_PLANTED if marker.label or dice.chance(0.3) else _UNNAMED)
        # a quoted sentence with quotes of its own would not say where it ends
        if '"' not in pattern or '"' not in marker.sentence:
            opening = dice.pick(_ALONG) if dice.chance(0.3) else ""
            return opening + dice.say(pattern, _slots(marker))


def _loosely(dice: Dice, marker: Marker) -> str:
    """Name and sentence among words that mean nothing."""
    name = phrases.stray(dice, 0, 4).lstrip()
    joint = dice.pick((": ", ": ", ": ", " - ", " = ", ":\n"))
    quote = dice.pick(("", "", '"')) if '"' not in marker.sentence else ""
    text = f"{name} {marker.name}{phrases.stray(dice, 0, 3)}{joint}{quote}{marker.sentence}{quote}"
    return capital(text.lstrip())


def plant(dice: Dice, markers: list[Marker]) -> Turn:
    """One message that plants `markers`, alone or among other sentences."""
    parts = [planted(dice, marker) for marker in markers]
    joint = "\n" if len(parts) > 1 or dice.chance(0.5) else " "
    if dice.chance(0.4):
        parts.insert(0, prose.paragraph(dice, dice.between(1, 4)))
    if dice.chance(0.4):
        parts.append(prose.paragraph(dice, dice.between(1, 4)))
    reply = dice.pick(("Noted.", "Noted.", "I will remember it.", "I will keep it.", "OK."))
    thought = Thought(
        "Keep.", "A sentence to keep.", "The user gives me a sentence. I keep it word for word."
    )
    return [Said(joint.join(parts)), Answer(Kind.NOTED, thought, reply)]


def asked(dice: Dice, marker: Marker) -> str:
    """A question for a marker by its name."""
    if dice.chance(0.6):
        return phrases.request(dice, marker.name)
    return phrases.vary(dice, dice.say(dice.pick(_ASKED), _slots(marker)))


def ask(dice: Dice, marker: Marker, others: list[Marker], *, alone: bool = True) -> Turn:
    """Ask for a planted marker; `others` are the rest of those planted, `alone` holds when nothing
    else was told that could be meant."""
    patterns: tuple[str, ...] = _ASKED
    if alone and not others and dice.chance(0.3 if marker.label else 0.7):
        patterns = _ALONE
    elif not any(m.subject == marker.subject for m in others) and dice.chance(0.12):
        if marker.subject in marker.sentence:
            patterns = _BY_SUBJECT
    if patterns is _ASKED:
        question = asked(dice, marker)
    else:
        question = phrases.vary(dice, dice.say(dice.pick(patterns), _slots(marker)))
    return [Said(question), Answer(Kind.MARKER, QUOTE, marker.sentence)]


def ask_unknown(dice: Dice, marker: Marker) -> Turn:
    """Ask for a marker that was never planted."""
    question = asked(dice, marker)
    return [Said(question), Answer(Kind.UNKNOWN, SEARCHED, f"I was not told {marker.name}.")]
