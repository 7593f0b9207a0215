# ruff: noqa: E501  (a wording is one line)
"""Ways to ask, put together from parts, so that no single wording is learned by heart.

Owns openings, requests and endings, and which of them are held out for the exam. Knows no task: a
request is for a thing that is named by the caller ("the code of the safe", "marker B").
"""

from __future__ import annotations

from streamglm.nano.training import prose, words
from streamglm.nano.training.dice import Dice, capital

OPENINGS = (
    "", "", "", "", "", "", "", "", "", "", "please, ", "well, ", "so, ", "and now: ", "now, ", "OK, ",
    "hey, ", "hello, ", "sorry, ", "listen: ", "quick question: ", "one more thing: ", "a question: ",
    "tell me: ", "by the way, ", "next: ", "alright, ", "good, ", "thanks. ", "hm, ", "yes, and ",
    "before I forget: ", "since you are here: ", "next question. ", "to come back to it: ",
)  # fmt: skip

REQUESTS = (
    "what is {x}", "what is {x}", "what is {x}", "what's {x}", "what was {x}", "what was {x} again",
    "what exactly is {x}", "tell me {x}", "tell me {x}", "give me {x}", "show me {x}", "say {x}",
    "name {x}", "read me {x}", "send me {x}", "find {x}", "look up {x}", "recall {x}", "repeat {x}",
    "quote {x}", "recite {x}", "write {x}", "print {x}", "get {x}", "fetch {x}", "answer with {x}",
    "remind me of {x}", "remind me what {x} is", "tell me what {x} is", "tell me what {x} was",
    "tell me again what {x} is", "I need {x}", "I need to know {x}", "I want {x}", "I want to know {x}",
    "I want to hear {x}", "I forgot {x}", "I have forgotten what {x} is", "I do not remember {x}",
    "I lost {x}", "I am looking for {x}", "I ask for {x}", "I wonder what {x} is", "I'd like to have {x}",
    "we need {x}", "my friend needs {x}", "someone asks for {x}", "they ask me for {x}",
    "do you know {x}", "do you remember {x}", "do you recall {x}", "do you have {x}",
    "do you know what {x} is", "can you tell me {x}", "can you give me {x}", "can you remember {x}",
    "can you say {x}", "can you find {x}", "could you tell me {x}", "could you give me {x}",
    "could you remind me of {x}", "could you repeat {x}", "would you tell me {x}", "will you give me {x}",
    "may I have {x}", "may I see {x}", "have you got {x}", "let me have {x}", "let me know {x}",
    "how about {x}", "what about {x}", "and {x}", "{x}", "{x}", "{x} is what", "{x} was what",
    "my question is: what is {x}", "the question is what {x} is", "help me with {x}", "go back to {x}",
    "think of {x} and say it", "complete this: {x} is", "it is about {x}: what is it",
    "you know {x}. what is it", "I told you {x}. what was it", "what did I say {x} was",
    "what did you note as {x}", "what do you have as {x}", "what stands as {x}",
)  # fmt: skip
HELD_OUT_REQUESTS = (
    "please state {x}", "let me hear {x}", "I would like to know {x}", "please report {x}",
    "could you check {x}", "bring back {x}", "might I ask for {x}", "what would {x} be",
    "do you happen to know {x}", "now tell me {x}, if you can", "how did {x} go",
)  # fmt: skip

ENDINGS = (
    "", "", "", "", "", "", "", "", ", please", " please", " again", " once more", " now", " for me",
    " if you remember", " right now", " as I told you", ", thank you", " this time", " in full",
    " exactly", ", my friend",
)  # fmt: skip


def sentence_of(dice: Dice, text: str, marks: str = "??.") -> str:
    """`text` as people type it: mostly a capital first letter and a mark at the end. A code at the
    beginning keeps its letters."""
    if text.split(" ", 1)[0].strip(":,'s").isalpha() and dice.chance(0.8):
        text = capital(text)
    return text + (dice.pick(marks) if dice.chance(0.9) else "")


def _strays() -> tuple[str, ...]:
    """Known words that no held-out wording uses."""
    held = {
        word.strip(",:").lower()
        for wordings in (
            HELD_OUT_REQUESTS,
            HELD_OUT_TELLING,
            HELD_OUT_REPEATERS,
            HELD_OUT_TOOL_VERBS,
        )
        for wording in wordings
        for word in wording.split()
    }
    known = (
        words.OTHERS,
        words.VERBS,
        words.PAST,
        words.ADVERBS,
        words.ADJECTIVES,
        words.PREPOSITIONS,
    )
    return tuple(sorted({word for group in known for word in group} - held))


def strange(dice: Dice, probability: float) -> bool:
    """Whether to use a wording that means nothing."""
    return not dice.sensible and dice.chance(probability)


def stray(dice: Dice, least: int, most: int) -> str:
    """Words that mean nothing together, each behind a space: around what counts, so that a wording
    is understood by what it names and not by its words."""
    count = dice.between(least, most)
    drawn = [prose.coined(dice) if dice.chance(0.3) else dice.pick(_STRAYS) for _ in range(count)]
    return "".join([f" {word}" for word in drawn])


def request(dice: Dice, thing: str, *, fresh: bool = False) -> str:
    """A request for `thing`; `fresh` takes a wording that training never uses."""
    if fresh:
        asked = dice.pick(HELD_OUT_REQUESTS).replace("{x}", thing)
        return sentence_of(dice, asked)
    if strange(dice, 0.25):
        opening = dice.pick(OPENINGS) if dice.chance(0.3) else ""
        joint = dice.pick((" ", " ", " ", ": ", ", "))
        asked = opening + stray(dice, 0, 4).lstrip() + joint + thing + stray(dice, 0, 3)
        return before(dice) + sentence_of(dice, asked.lstrip(" :,"))
    asked = dice.pick(OPENINGS) + dice.pick(REQUESTS).replace("{x}", thing) + dice.pick(ENDINGS)
    return before(dice) + sentence_of(dice, asked)


def before(dice: Dice) -> str:
    """Now and then a sentence about something else comes first."""
    return f"{prose.sentence(dice)} " if dice.chance(0.06) else ""


def possessions(dice: Dice, attribute: str, owner: str) -> str:
    """An attribute of an owner, in one of the ways to say it."""
    kind = dice.below(9)
    article = owner.partition(" ")[0]
    if kind == 0 and article in ("the", "my") and "'s" not in owner:
        return f"{owner} {attribute}"
    if kind < 3:
        return (
            f"the {attribute} for {owner}"
            if kind == 1
            else f"the {attribute} that belongs to {owner}"
        )
    if kind < 5:
        return f"the {attribute} of {owner}"
    return f"{owner}'s {attribute}"


WHICH = (
    "(which|what) {a} (does {o} have|has {o}|belongs to {o}|goes with {o}|is there for {o}|do we have for {o})",
    "(which|what) {a} (did I give|did I say|did I name|did I note|did we note|was given|was named|is noted) for {o}",
    "(for|about|as for|regarding|concerning|with) {o}(,|:) (which|what) {a}( is it| was it|)",
    "(for|about|as for|regarding|concerning) {o}(,|:) (what is|what was|tell me|I need) the {a}",
    "{o}(:|,| -) (what is the |the |which |){a}",
    "what (do you know|did I say) about the {a} of {o}",
    "{o} has (which|what) {a}",
)
"""Questions with attribute and owner apart."""


def ask_for(dice: Dice, attribute: str, owner: str) -> str:
    """A question for an owner's attribute."""
    if dice.chance(0.3):
        slots = {"a": attribute, "o": owner}
        asked = dice.pick(OPENINGS) + dice.say(dice.pick(WHICH), slots) + dice.pick(ENDINGS)
        return before(dice) + sentence_of(dice, asked)
    return request(dice, possessions(dice, attribute, owner))


TELLING = (
    "", "", "", "", "", "please remember that ", "please note that ", "remember that ", "note that ",
    "remember: ", "note: ", "keep in mind that ", "don't forget that ", "know that ", "for later: ",
    "by the way, ", "just so you know, ", "one more thing: ", "also, ", "FYI: ", "important: ",
    "I want you to know that ", "I should tell you that ", "I can tell you that ", "I found out that ",
    "let me tell you: ", "write this down: ", "save this: ", "store this: ", "here is something: ",
    "you should know that ", "as you may know, ", "it is good to know that ", "I was told that ",
    "we agreed that ", "a detail: ", "news: ", "it turns out that ", "from now on ", "today I heard that ",
    "my notes say that ", "do me a favour and remember that ", "before I forget, ", "keep this: ",
    "you need to know that ", "I can say that ", "everyone says that ", "in case you are asked, ",
)  # fmt: skip
HELD_OUT_TELLING = (
    "to be clear, ", "I just learned that ", "add this to your memory: ", "let it be known that ",
    "for the record, ",
)  # fmt: skip
TOLD_ENDINGS = (
    "", "", "", "", "", "", "", ", don't forget", ", remember that", ", just so you know", ", keep that",
    ", as I said", " now", " from now on", ", by the way", ", I think", ", please note",
)  # fmt: skip


def tell(dice: Dice, fact: str, *, fresh: bool = False) -> str:
    """A message that says `fact`, a clause without its full stop."""
    opening = dice.pick(HELD_OUT_TELLING if fresh else TELLING)
    if not fresh and strange(dice, 0.2):
        opening = stray(dice, 1, 4).lstrip() + dice.pick((": ", ": ", " that ", ", "))
    ending = "" if fresh else dice.pick(TOLD_ENDINGS)
    # a value must not run into the words behind it
    return before(dice) + sentence_of(dice, opening + fact + ending, "...!")


ADVERBS = (
    "", "", "", " exactly", " word for word", " back to me", " as it is", " without changes",
    " in full", " for me", " now",
)  # fmt: skip
REPEATERS = (
    "repeat", "repeat", "repeat", "say", "say", "echo", "copy", "write", "print", "output", "type",
    "return", "send", "give me", "show", "reproduce", "recite", "quote", "read", "speak",
    "transcribe", "duplicate", "answer with", "reply with", "respond with", "say back", "write back",
    "send back", "repeat after me", "just say", "only say", "say only", "put out", "display",
)  # fmt: skip
HELD_OUT_REPEATERS = ("mirror", "type out", "hand back", "spit out", "play back")
OBJECTS = (
    "", "", "", " this", " this text", " the following", " the following text", " exactly this",
    " these words", " this string", " this line", " what follows", " the text below", " this message",
    " my words", " this and nothing else", " only this", " every character of this",
)  # fmt: skip
WANTS = (
    "", "", "", "", "", "please ", "can you ", "could you ", "would you ", "will you ", "I want you to ",
    "you should ", "now ", "your task: ", "go on and ", "I need you to ", "kindly ", "try to ",
    "it is time to ", "let's see you ", "you must ", "do this: ",
)  # fmt: skip
COLONS = (": ", ": ", ": ", ":\n", ":\n", ":\n\n", " - ", "\n", "\n\n", " ")


def repeat_request(dice: Dice, *, fresh: bool = False) -> str:
    """What stands before a text that is to be repeated."""
    if fresh:
        return capital(dice.pick(HELD_OUT_REPEATERS) + dice.pick(OBJECTS)) + dice.pick(
            (": ", ":\n")
        )
    verb = dice.pick(REPEATERS)
    if strange(dice, 0.3):
        verb = stray(dice, 1, 1).lstrip() + dice.pick(
            ("", "", " out", " back", " up", " over", " on")
        )
    asked = dice.pick(WANTS) + verb + dice.pick(OBJECTS) + dice.pick(ADVERBS)
    colon = dice.pick(COLONS)
    # without a mark a short text would read on from the request
    return (capital(asked) if dice.chance(0.8) else asked) + colon


TOOL_VERBS = (
    "use",
    "use",
    "call",
    "run",
    "invoke",
    "start",
    "execute",
    "apply",
    "try",
    "do",
    "trigger",
)
HELD_OUT_TOOL_VERBS = ("launch", "fire up", "make use of", "operate")
TOOL_NOUNS = ("", "", "", " the tool", " the function", " your tool", " the command")


def tool_request(dice: Dice, name: str, *, fresh: bool = False) -> str:
    """A request to use a tool by its name."""
    if not fresh and dice.chance(0.12):
        return name
    verb = dice.pick(HELD_OUT_TOOL_VERBS if fresh else TOOL_VERBS)
    if not fresh and strange(dice, 0.4):
        verb = stray(dice, 1, 3).lstrip()
    asked = f"{dice.pick(WANTS)}{verb}{dice.pick(TOOL_NOUNS)} {name}"
    return capital(asked) if dice.chance(0.85) else asked


_STRAYS = _strays()


def vary(dice: Dice, text: str) -> str:
    """A finished question or statement with other words around it, now and then."""
    if dice.chance(0.5):
        return text
    mark = text[-1] if text[-1] in ".?!" else ""
    body = text.removesuffix(mark)
    opening = dice.pick(OPENINGS)
    if opening and not body.startswith("I "):
        body = body[:1].lower() + body[1:]
    return before(dice) + sentence_of(dice, opening + body + dice.pick(ENDINGS), mark or ".")


def telling(dice: Dice, text: str) -> str:
    """A finished statement ("I live in Oslo.") with other words around it, now and then."""
    body = text.removesuffix(".")
    if body.split(" ", 1)[0] in ("My", "You", "They", "At", "The", "Here", "We", "Hi,", "Hello,"):
        body = body[:1].lower() + body[1:]
    return tell(dice, body)
