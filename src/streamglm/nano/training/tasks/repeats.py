# ruff: noqa: E501  (a wording is one line)
"""Exact repeats: the user gives a text, the assistant says it again and nothing else.

Owns the wordings around the text. The text may hold the layout's own markup, so that a client can
make the model write a tool call, and a client can say what is to be thought before the answer.
"""

from __future__ import annotations

from streamglm.nano.training import phrases, prose, scraps, words
from streamglm.nano.training.dialog import Answer, Call, Kind, Results, Said, Thought, Turn
from streamglm.nano.training.dice import Dice
from streamglm.nano.training.tasks.tools import REPORT

COPY = Thought(
    "Copy.",
    "I copy the text exactly.",
    "The user wants the text back. I copy it exactly, every character of it, and add nothing.",
)

_BEFORE = (
    "(Repeat|Say|Echo|Copy|Write|Print|Output|Reply with|Answer with|Return)( exactly|)(:|: |:\n|:\n\n)",
    "(Repeat|Say|Copy|Write|Type) (this|the following|the following text|this text)( exactly| word for word| back to me|)(: |:\n|:\n\n)",
    "(Please |)(repeat|echo|copy) (after me|this exactly|what follows|the text below|every character of this)(: |:\n|:\n\n)",
    "(Repeat after me|Say after me|Say exactly this|Just say|Echo this back|Parrot this)(: |:\n)",
    "(Say|Repeat|Write) (this and nothing else|only this|nothing but this)(: |:\n|:\n\n)",
    "(Can|Could|Would) you (please |)(repeat|say|copy|write) (this|the following)(: |:\n|? |?\n\n)",
    "(I want you to|You should|Now) (say|repeat|copy|write)(: |:\n| this: )",
    "(Give|Send|Show|Read)( me|) (back |)(exactly |)(this|the following)( text| string| line|)(: |:\n|:\n\n)",
    "(Text|String|Line|Message) to (repeat|copy|say|echo)(: |:\n)",
    "(Respond|Reply|Answer) with (this|the following)( text| string|) and nothing else(: |:\n)",
    "(I say it first, then you|First I say it, then you say it|Same text back, please)(: |:\n)",
    "(Your answer must be|Your reply should be|Answer with exactly this|The reply I want is)(: |:\n)",
)
_AFTER = (
    "(\n|\n\n)(Repeat|Say|Copy|Echo) (the text above|the above|that)( exactly| word for word|)(.|)",
    "(\n|\n\n)(Please repeat that|Say that again|Now repeat it)(.| exactly.)",
)
_QUOTES = (('"', '"'), ("'", "'"), ("`", "`"), ("```\n", "\n```"), ("<text>", "</text>"), ("«", "»"),
           ("“", "”"), ("[[", "]]"))  # fmt: skip


def framed(dice: Dice, text: str) -> str:
    """`text` inside a request to repeat it."""
    if dice.chance(0.3):
        opening, closing = dice.pick(_QUOTES)
        if opening.strip() not in text and closing.strip() not in text:
            text = opening + text + closing
    if dice.chance(0.12):
        return text + dice.say(dice.pick(_AFTER))
    if dice.chance(0.6):
        return phrases.repeat_request(dice) + text
    return dice.say(dice.pick(_BEFORE)) + text


def _length(dice: Dice, longest: int) -> int:
    """Mostly short and middling, up to 200 characters; some longer, which nothing forbids."""
    mark = dice.unit()
    if mark < 0.35:
        return dice.between(1, 30)
    if mark < 0.6:
        return dice.between(30, 90)
    if mark < 0.95 or longest <= 220:
        return dice.between(90, min(longest, 220))
    return dice.between(220, longest)


def repeat(dice: Dice, longest: int = 220) -> Turn:
    """One repeat of a fresh text."""
    text = scraps.scrap(dice, _length(dice, longest))
    return [Said(framed(dice, text)), Answer(Kind.REPEAT, COPY, text)]


_THINK = (
    "(Think|Write in your thoughts) exactly {q}{thought}{q} and (then |)(answer|say|reply) exactly {q}{text}{q}.",
    "Thought: {thought}\nAnswer: {text}",
    "(While thinking|In your reasoning), (say|write): {thought}\n(Then answer|Then say|As the answer): {text}",
)


def thought_aloud(dice: Dice) -> Turn:
    """The user says what to think, and what to answer."""
    thought = scraps.scrap(dice, dice.between(5, 80))
    text = scraps.scrap(dice, dice.between(3, 80))
    slots = {"thought": thought, "text": text, "q": dice.pick('"`')}
    asked = dice.say(dice.pick(_THINK), slots)
    return [Said(asked), Answer(Kind.REPEAT, Thought(thought, thought, thought), text)]


def marked_up(dice: Dice) -> Turn:
    """A text that holds a tool call, whatever tools are offered; who quotes it, calls."""
    arguments: dict[str, str] = {}
    for _ in range(dice.between(1, 4)):
        key = dice.pick(words.THINGS) if dice.chance(0.5) else dice.pick("abcfknqxz")
        arguments[key] = dice.pick((
            str(dice.below(1000)), prose.code(dice), "true", "null", f"{dice.below(100) / 10}",
            prose.fill(dice, "{adj} {animal}"), '["a", "b"]', '{"k": 1}', prose.city(dice),
        ))  # fmt: skip
    call = Call(f"{dice.pick(words.VERBS)}_{dice.pick(words.THINGS)}", arguments)
    text = prose.sentence(dice) if dice.chance(0.4) else ""
    asked = phrases.repeat_request(dice) + text + call.markup()
    result = prose.code(dice)
    return [
        Said(asked),
        Answer(Kind.REPEAT, COPY, text, (call,)),
        Results((result,)),
        Answer(Kind.RESULT, REPORT, f"The result is {result}."),
    ]


_AGAIN = (
    "(Say|Repeat) (that|it) again(.|, please.)",
    "(Once more|Again|One more time)(.|, please.)",
    "What did you just say?",
    "(Repeat|Quote) your last (answer|reply|message)(.| exactly.)",
)
AGAIN = Thought(
    "Copy.",
    "I repeat my last answer.",
    "The user wants my last answer again. I copy it exactly as it was.",
)


def again(dice: Dice, last: str) -> Turn:
    """Ask for the assistant's last answer once more."""
    return [Said(dice.say(dice.pick(_AGAIN))), Answer(Kind.REPEAT, AGAIN, last)]
