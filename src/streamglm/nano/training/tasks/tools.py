# ruff: noqa: E501  (a wording is one line)
"""Tools: which to call, with which typed arguments, and what to say about the result.

Owns tool specifications, requests that name every argument, results and answers. Invariant: every
argument of a call can be read from the request, in its words, and has the type of its schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streamglm.nano.training import phrases, prose, words
from streamglm.nano.training.dialog import Answer, Call, Kind, Results, Said, Thought, Turn
from streamglm.nano.training.dice import Dice, capital


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter with its schema and a source of values."""

    name: str
    schema: dict[str, Any]
    draw: Callable[[Dice], Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool; `request` is a natural wording with every parameter as a slot, or empty."""

    name: str
    about: str
    parameters: tuple[Parameter, ...]
    required: int
    results: tuple[tuple[str, Callable[[Dice], Any]], ...]
    request: str = ""

    def spec(self) -> dict[str, Any]:
        """The tool as a client sends it."""
        properties = {p.name: p.schema for p in self.parameters}
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.about,
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": [p.name for p in self.parameters[: self.required]],
                },
            },
        }


_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_NUMBER = {"type": "number"}
_BOOLEAN = {"type": "boolean"}
_OBJECT = {"type": "object"}
_STRINGS = {"type": "array", "items": {"type": "string"}}


def _enum(*options: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(options)}


def _one_of(options: Sequence[str]) -> Callable[[Dice], str]:
    return lambda dice: dice.pick(options)


def _integer(low: int, high: int) -> Callable[[Dice], int]:
    return lambda dice: dice.between(low, high)


def _decimal(dice: Dice) -> float:
    return dice.between(1, 999) / dice.pick((2, 4, 10))


def _flag(dice: Dice) -> bool:
    return dice.chance(0.5)


def _words_list(dice: Dice) -> list[str]:
    return dice.several(
        dice.pick((words.ANIMALS, words.FOODS, words.THINGS, words.COLOURS)), dice.between(1, 4)
    )


def _text(dice: Dice) -> str:
    return (
        prose.sentence(dice)[:-1].lower()
        if dice.chance(0.6)
        else prose.fill(dice, "{adj} {animal}")
    )


_SKY = ("sunny", "rain", "snow", "fog", "wind", "cloudy", "storm")

_KNOWN = (
    Tool("get_weather", "Weather of a city.",
         (Parameter("city", _STRING, prose.city), Parameter("days", _INTEGER, _integer(1, 14))), 1,
         (("sky", lambda d: d.pick(_SKY)), ("temperature", _integer(-15, 38))),
         "(What is|What's|Tell me|Get) the weather in {city} for( the next|) {days} days(?|.)"),
    Tool("get_time", "Time in a city.", (Parameter("city", _STRING, prose.city),), 1,
         (("time", prose.clock),), "(What time is it|Tell me the time|What is the time) in {city}(?|.)"),
    Tool("add", "Add two numbers.",
         (Parameter("a", _INTEGER, _integer(0, 9999)), Parameter("b", _INTEGER, _integer(0, 9999))), 2,
         (("sum", _integer(0, 20000)),), "((What is|How much is|Compute) {a} plus {b}?|Add {a} and {b}.|{a} + {b} = ?)"),
    Tool("multiply", "Multiply two numbers.",
         (Parameter("a", _NUMBER, _decimal), Parameter("b", _INTEGER, _integer(0, 999))), 2,
         (("product", _integer(0, 20000)),), "((What is|How much is|Compute) {a} times {b}?|Multiply {a} by {b}.)"),
    Tool("set_timer", "Start a timer.",
         (Parameter("minutes", _INTEGER, _integer(1, 90)), Parameter("label", _STRING, lambda d: d.pick(words.FOODS))), 1,
         (("status", lambda d: d.pick(("ok", "started", "set"))),),
         "(Set|Start) a timer (of|for) {minutes} minutes (for the|called|labelled) {label}."),
    Tool("send_message", "Send a text to a person.",
         (Parameter("to", _STRING, prose.name), Parameter("text", _STRING, _text)), 2,
         (("status", lambda d: d.pick(("sent", "queued", "ok"))),),
         '(Send|Write) (a message to |){to}(: | saying: | with the text: ){text}'),
    Tool("set_light", "Switch a lamp.",
         (Parameter("room", _STRING, lambda d: d.pick(words.PLACES)), Parameter("on", _BOOLEAN, _flag), Parameter("level", _INTEGER, _integer(0, 100))), 2,
         (("state", lambda d: d.pick(("on", "off", "ok"))),),
         "(Set|Switch) the light in the {room}: on {on}, level {level}."),
    Tool("convert", "Convert an amount of money.",
         (Parameter("amount", _NUMBER, _decimal), Parameter("from", _enum("EUR", "USD", "GBP"), lambda d: d.pick(("EUR", "USD", "GBP"))), Parameter("to", _enum("EUR", "USD", "GBP"), lambda d: d.pick(("EUR", "USD", "GBP")))), 3,
         (("result", _decimal),), "(Convert|How much is|Change) {amount} {from} (to|in|into) {to}(?|.)"),
    Tool("search", "Search the library.",
         (Parameter("query", _STRING, lambda d: prose.fill(d, "{adj} {animal}")), Parameter("limit", _INTEGER, _integer(1, 50))), 1,
         (("hits", _integer(0, 500)), ("first", lambda d: d.pick(words.THINGS))),
         "(Search for|Find|Look for) {query}, (at most|limit|up to) {limit}( results|)."),
    Tool("book_table", "Book a table.",
         (Parameter("name", _STRING, prose.name), Parameter("people", _INTEGER, _integer(1, 12)), Parameter("time", _STRING, prose.clock)), 3,
         (("number", prose.code),), "Book a table for {people} (people|persons) at {time} (under the name|for|in the name of) {name}."),
    Tool("buy", "Buy goods.",
         (Parameter("items", _STRINGS, _words_list), Parameter("express", _BOOLEAN, _flag)), 1,
         (("order", prose.code), ("total", _decimal)), ""),
)  # fmt: skip

_TYPES: tuple[tuple[dict[str, Any], Callable[[Dice], Any]], ...] = (
    (_STRING, prose.city), (_STRING, prose.name), (_STRING, prose.code), (_STRING, _text),
    (_STRING, lambda d: d.pick(words.COLOURS)), (_STRING, lambda d: str(d.below(1000))),
    (_INTEGER, _integer(0, 999)), (_INTEGER, _integer(-50, 50)), (_NUMBER, _decimal), (_BOOLEAN, _flag),
    (_OBJECT, lambda d: {d.pick(words.THINGS): d.pick((d.below(100), prose.code(d), True))}),
    (_STRINGS, _words_list), (_STRING, prose.date), (_STRING, prose.clock),
)  # fmt: skip
_PARAMETER_NAMES = (
    "city name code text colour value size count limit mode title user date time place tag level "
    "amount item items kind path query note speed target source"
).split()
_VERBS = (
    "get set find open close move send read write list make run stop start check update delete load "
    "save show play lock count sort"
).split()


def invented(dice: Dice) -> Tool:
    """A tool that no list holds, so that its specification has to be read."""
    verb, noun = dice.pick(_VERBS), dice.pick(words.THINGS)
    if dice.chance(0.2):
        verb, noun = prose.coined(dice), dice.pick((noun, prose.coined(dice)))
    parameters: list[Parameter] = []
    for name in dice.several(_PARAMETER_NAMES, dice.between(1, 4)):
        if dice.chance(0.15):
            name = dice.pick((dice.pick(words.THINGS), prose.coined(dice)))
            if any(name == p.name for p in parameters):
                continue
        schema, draw = dice.pick(_TYPES)
        if dice.chance(0.1):
            options = dice.several(words.ADJECTIVES, 3)
            schema, draw = _enum(*options), _one_of(options)
        if dice.chance(0.2):
            schema = {**schema, "description": f"The {name}."}
        parameters.append(Parameter(name, schema, draw))
    style = dice.below(3)
    name = f"{verb}_{noun}" if style else verb + capital(noun)
    results = (
        (
            dice.pick(("status", "result", "value", "number", "answer", "name")),
            dice.pick(_TYPES)[1],
        ),
    )
    about = dice.pick(
        (f"{capital(verb)} the {noun}.", f"{capital(verb)} a {noun}.", prose.sentence(dice))
    )
    return Tool(name, about, tuple(parameters), dice.between(1, len(parameters)), results)


def offer(dice: Dice) -> list[Tool]:
    """Tools for a conversation, with different names."""
    chosen: dict[str, Tool] = {}
    for _ in range(dice.between(1, 4)):
        tool = dice.pick(_KNOWN) if dice.chance(0.35) else invented(dice)
        chosen[tool.name] = tool
    return list(chosen.values())


def spoken(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


_LISTS = (
    (" with ", "{p} {v}", ", ", " and ", "."),
    (" with ", "{p} = {v}", ", ", ", ", "."),
    (" where ", "{p} is {v}", ", ", " and ", "."),
    (" for ", "{p} {v}", ", ", " and ", ""),
    (": ", "{p} {v}", ", ", ", ", "."),
    (". Arguments: ", "{p} {v}", ", ", ", ", "."),
    (". Arguments: ", "{p}: {v}", "; ", "; ", ""),
    (" using ", "{p} {v}", ", ", " and ", "."),
    (" and set ", "{p} to {v}", ", ", " and ", "."),
    (". It takes ", "{p} {v}", ", ", " and ", "."),
    (". The ", "{p} is {v}", ", the ", " and the ", "."),
    (":\n", "- {p}: {v}", "\n", "\n", ""),
    (" ", "{p}={v}", " ", " ", ""),
    (", ", "{p} {v}", ", ", ", ", ""),
    ("? ", "{p}: {v}", ", ", ", ", "."),
    (" {", "{p}: {v}", ", ", ", ", "}"),
    ("(", "{p}: {v}", ", ", ", ", ")"),
    ("(", "{p}={v}", ", ", ", ", ")"),
)
"""How arguments are listed: opening, one argument, between two, before the last, closing."""


_OPENINGS = (" with ", " with ", " where ", " for ", ": ", " using ", " given ", ", ", ". ", " and ", " (", " - ",
             ":\n", " having ", ". Use ", ". Arguments: ", ", by ", " taking ", " at ", "? ", "; ", " [")  # fmt: skip
_PAIRS = ("{p} {v}", "{p} {v}", "{p} {v}", "{p} = {v}", "{p}={v}", "{p}: {v}", "{p} is {v}", "the {p} {v}",
          "{v} as {p}", "{v} for {p}", "{p} of {v}", "{p} set to {v}", "{p} -> {v}")  # fmt: skip
_JOINTS = (", ", ", ", "; ", " and ", " and ", "\n", " / ", ", and ", " plus ", " with ")
_CLOSINGS = ("", "", ".", ".", ".", "?", "!", " please.", " now.")


def _listed(dice: Dice, pairs: list[tuple[str, str]]) -> str:
    """Names and values in a form put together from parts."""
    opening, one, joint = dice.pick(_OPENINGS), dice.pick(_PAIRS), dice.pick(_JOINTS)
    shown = [one.replace("{p}", key).replace("{v}", value) for key, value in pairs]
    last = dice.pick((joint, joint, " and ", ", "))
    body = shown[0] if len(shown) == 1 else joint.join(shown[:-1]) + last + shown[-1]
    closing = {"(": ")", "[": "]"}.get(opening.strip()) or dice.pick(_CLOSINGS)
    return (
        (phrases.stray(dice, 1, 2) if phrases.strange(dice, 0.15) else "")
        + opening
        + body
        + closing
    )


def _asked(dice: Dice, tool: Tool, arguments: dict[str, Any]) -> str:
    """A request that holds every argument."""
    texts = {key: spoken(value) for key, value in arguments.items()}
    if tool.request and len(arguments) == len(tool.parameters) and dice.chance(0.7):
        return phrases.before(dice) + dice.say(tool.request, texts)
    if dice.chance(0.6):
        return phrases.tool_request(dice, tool.name) + _listed(dice, list(texts.items()))
    opening, one, joint, last, closing = dice.pick(_LISTS)
    shown = [one.replace("{p}", key).replace("{v}", value) for key, value in texts.items()]
    body = shown[0] if len(shown) == 1 else joint.join(shown[:-1]) + last + shown[-1]
    return phrases.tool_request(dice, tool.name) + opening + body + closing


def _arguments(dice: Dice, tool: Tool) -> dict[str, Any]:
    """Values for the required parameters and for some of the others."""
    return {
        p.name: p.draw(dice)
        for i, p in enumerate(tool.parameters)
        if i < tool.required or dice.chance(0.7)
    }


def _result(dice: Dice, tool: Tool) -> tuple[str, str]:
    """What a tool returns, and what is said about it."""
    if dice.chance(0.08):
        error = dice.pick(("not found", "timeout", "no access", "busy", "bad value"))
        return json.dumps({"error": error}), f"The tool failed: {error}."
    fields = {name: draw(dice) for name, draw in tool.results}
    said = " and ".join([f"the {name} is {spoken(value)}" for name, value in fields.items()])
    if dice.chance(0.15) and len(fields) == 1:
        only = spoken(next(iter(fields.values())))
        return only, f"The result is {only}."
    return json.dumps(fields, ensure_ascii=False), f"{capital(said)}."


def _thought(names: list[str]) -> Thought:
    called = " and ".join(dict.fromkeys(names))
    return Thought(
        f"Call {called}.",
        f"I need {called}. I read the arguments from the request.",
        f"The user wants something done. The tool for it is {called}. I read the arguments from the "
        "request.",
    )


REPORT = Thought(
    "Report.",
    "The tool answered. I report it.",
    "The tool has answered. I read the result and tell the user what it says.",
)


def use(dice: Dice, tools: list[Tool]) -> Turn:
    """A request, the call or calls, the results, the report."""
    tool = dice.pick(tools)
    count = 2 if dice.chance(0.12) else 1
    arguments = [_arguments(dice, tool) for _ in range(count)]
    asked = _asked(dice, tool, arguments[0])
    if count == 2:
        asked = f"{asked.rstrip('.')}{dice.pick((', and then: ', '. Then: ', '. Also: '))}{_asked(dice, tool, arguments[1])}"
    calls = tuple(Call(tool.name, a) for a in arguments)
    outcomes = [_result(dice, tool) for _ in calls]
    said = " ".join([text for _, text in outcomes])
    return [
        Said(asked),
        Answer(Kind.CALL, _thought([tool.name]), "", calls),
        Results(tuple(result for result, _ in outcomes)),
        Answer(Kind.RESULT, REPORT, said),
    ]


def missing(dice: Dice, tools: list[Tool]) -> Turn:
    """A request for a tool that is not offered."""
    names = {tool.name for tool in tools}
    tool = invented(dice)
    while tool.name in names:
        tool = invented(dice)
    asked = phrases.tool_request(dice, tool.name)
    thought = Thought(
        "No tool.",
        f"There is no tool {tool.name}.",
        f"The user wants {tool.name}. I look at the tools. There is no such tool.",
    )
    return [Said(f"{asked}."), Answer(Kind.UNKNOWN, thought, f"I have no tool named {tool.name}.")]
