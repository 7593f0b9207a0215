"""Whole conversations: what is told, what is asked, in which order and how far apart.

Owns the mixture. A scene remembers what was told, so that every question has a true answer, and
asks about old things as often as about new ones. Invariant: nothing is asked that the text of the
conversation cannot answer, except to hear that it was never told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamglm.nano.training.dialog import Answer, Conversation, Effort, Said, Turn
from streamglm.nano.training.dice import Dice
from streamglm.nano.training.tasks import chat, counting, facts, lookups, markers, repeats, tools
from streamglm.nano.training.tasks.fact import Fact

BYTES_PER_TOKEN = 2.2
"""Bytes of UTF-8 that a token stands for, on average over all that is said here."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """How often each kind of turn is drawn, and how long the texts between them are."""

    tell: float = 2.4
    ask: float = 4.4
    unknown: float = 1.4
    repeat: float = 2.2
    lookup: float = 2.2
    count: float = 1.8
    chat: float = 0.7
    filler: float = 0.4
    tool: float = 0.45
    """The chance of a tool's turn, where tools are offered."""
    filler_bytes: int = 600
    rows: int = 12
    longest: int = 260


SHORT = Mixture()
LONG = Mixture(repeat=1.2, lookup=1.6, count=0.6, tool=0.2, filler=2.5, filler_bytes=4000, rows=30)


class Scene:
    """A conversation in the making."""

    def __init__(self, dice: Dice, mixture: Mixture) -> None:
        self.dice = dice
        self.mixture = mixture
        self.talk = Conversation(Effort(dice.pick((0, 1, 2, 2))))
        self.facts: dict[tuple[str, str], Fact] = {}
        self.markers: dict[tuple[str, str], markers.Marker] = {}
        self.tables: list[lookups.Table] = []
        self.tools: list[tools.Tool] = []
        self.persona = ""
        self.bytes = 120

    # ---- the opening

    def open(self) -> None:
        """System messages and tools."""
        dice = self.dice
        if dice.chance(0.36):
            self.tools = tools.offer(dice)
            self.talk.tools = [tool.spec() for tool in self.tools]
            self.bytes += sum(len(str(spec)) for spec in self.talk.tools)
        mark = dice.unit()
        if mark < 0.25:
            self._system(dice.pick(chat.SYSTEMS))
        elif mark < 0.32:
            text, self.persona = chat.persona(dice)
            self._system(text)
        elif mark < 0.42:
            self._system("\n".join([self._new_fact().told[0] for _ in range(dice.between(1, 5))]))
        elif mark < 0.48:
            self._system(markers.planted(dice, self._new_marker()))

    def _system(self, text: str) -> None:
        self.talk.systems.append(text)
        self.bytes += len(text.encode())

    # ---- turns

    def add(self, turn: Turn) -> None:
        self.talk.turns.append(turn)
        for message in turn:
            if isinstance(message, Said):
                self.bytes += len(message.text.encode()) + 4
            elif isinstance(message, Answer):
                thought = message.thought.at(self.talk.effort)
                self.bytes += (
                    len(message.text.encode()) + len(thought) + 10 + 60 * len(message.calls)
                )
            else:
                self.bytes += sum(len(text.encode()) + 6 for text in message.texts)

    def _new_fact(self) -> Fact:
        dice = self.dice
        fact = facts.draw(dice)
        if self.facts and dice.chance(0.3):
            fact = facts.similar(dice, dice.pick(list(self.facts.values())))
        self.facts[fact.key] = fact
        return fact

    def _new_marker(self) -> markers.Marker:
        dice = self.dice
        noun = (
            dice.pick(list(self.markers.values())).noun
            if self.markers and dice.chance(0.6)
            else None
        )
        while True:
            marker = markers.draw(dice, noun)
            unnamed = not marker.label and any(not m.label for m in self.markers.values())
            if not unnamed and (marker.noun, marker.label) not in self.markers:
                self.markers[marker.noun, marker.label] = marker
                return marker

    def tell(self) -> None:
        """Tell facts, plant markers, or show a table."""
        dice = self.dice
        mark = dice.unit()
        if mark < 0.4:
            many = dice.between(2, 6) if dice.chance(0.25) else 1
            self.add(
                facts.tell(
                    dice, list({f.key: f for f in (self._new_fact() for _ in range(many))}.values())
                )
            )
        elif mark < 0.88:
            many = dice.between(2, 4) if dice.chance(0.2) else 1
            self.add(markers.plant(dice, [self._new_marker() for _ in range(many)]))
        else:
            self.show()

    def show(self) -> None:
        """A table, and the first questions about it."""
        dice = self.dice
        table = lookups.draw(dice, dice.between(2, self.mixture.rows), lookups.few(dice, 4))
        shown = lookups.show(dice, table)
        self.tables.append(table)
        question, answer = lookups.asked(dice, table)
        self.add([Said(f"{shown.text}\n{question}"), answer])
        for _ in range(dice.below(4)):
            question, answer = lookups.asked(dice, table)
            self.add([Said(question), answer])

    def ask(self) -> None:
        """Ask for something that was told, however long ago."""
        dice = self.dice
        stores = [
            store
            for store in (list(self.facts.values()), list(self.markers.values()), self.tables)
            if store
        ]
        if not stores:
            self.tell()
            return
        store = list(self.markers.values()) if self.markers and dice.chance(0.35) else []
        item = dice.pick(store or dice.pick(stores))
        if isinstance(item, Fact):
            only = sum(key[0] == item.key[0] for key in self.facts) == 1
            self.add(facts.ask(dice, item, only=only))
        elif isinstance(item, markers.Marker):
            others = [m for m in self.markers.values() if m is not item]
            self.add(markers.ask(dice, item, others, alone=not self.facts))
        elif isinstance(item, lookups.Table) and len(self.tables) == 1:
            question, answer = lookups.asked(dice, item)
            self.add([Said(question), answer])
        else:
            self.show()

    def unknown(self) -> None:
        """Ask for something that was never told."""
        dice = self.dice
        mark = dice.unit()
        if mark < 0.25:
            self._unknown_marker()
        elif mark < 0.32 and self.tools:
            self.add(tools.missing(dice, self.tools))
        elif mark < 0.4 and len(self.tables) == 1:
            question, answer = lookups.absent(dice, self.tables[0])
            self.add([Said(question), answer])
        else:
            self._unknown_fact()

    def _unknown_fact(self) -> None:
        dice = self.dice
        for _ in range(20):
            near = self.facts and dice.chance(0.6)
            fact = (
                facts.similar(dice, dice.pick(list(self.facts.values())))
                if near
                else facts.draw(dice)
            )
            vague = fact.key[1] == "you" and fact.key[0] in ("code", "word", "name", "colour")
            if fact.key not in self.facts and not (vague and self._said(fact.key[0])):
                self.add(facts.ask_unknown(dice, fact))
                return
        self.add(chat.draw(dice))

    def _said(self, attribute: str) -> bool:
        """Whether a told fact could be meant by a question that names no owner."""
        alike = {"word": ("password", "word"), "code": ("code", "pin", "number")}.get(
            attribute, (attribute,)
        )
        return any(part in key[0] for key in self.facts for part in alike)

    def _unknown_marker(self) -> None:
        dice = self.dice
        noun = (
            dice.pick(list(self.markers.values())).noun
            if self.markers and dice.chance(0.7)
            else None
        )
        marker = markers.draw(dice, noun)
        if (not marker.label and self.markers) or (marker.noun, marker.label) in self.markers:
            self._unknown_fact()
            return
        self.add(markers.ask_unknown(dice, marker))

    def repeat(self) -> None:
        dice = self.dice
        mark = dice.unit()
        last = self._last()
        if mark < 0.06 and last:
            self.add(repeats.again(dice, last))
        elif mark < 0.1:
            self.add(repeats.thought_aloud(dice))
        elif mark < 0.13:
            self.add(repeats.marked_up(dice))
        else:
            self.add(repeats.repeat(dice, self.mixture.longest))

    def _last(self) -> str:
        """The assistant's last answer, when it is worth repeating."""
        last = self.talk.turns[-1][-1] if self.talk.turns else None
        return last.text if isinstance(last, Answer) else ""

    def lookup(self) -> None:
        if self.dice.chance(0.5):
            self.show()
        else:
            self.add(lookups.quick(self.dice, self.dice.between(2, self.mixture.rows)))

    def count(self) -> None:
        self.add(counting.draw(self.dice))

    def tool(self) -> None:
        self.add(tools.use(self.dice, self.tools))

    def chat(self) -> None:
        if self.persona and self.dice.chance(0.3):
            self.add(chat.ask_name(self.dice, self.persona))
            return
        turn = chat.draw(self.dice)
        names = ("My name is nano.", "I am nano, the small model that comes with streamglm.")
        answer = turn[-1]
        if self.persona and isinstance(answer, Answer) and answer.text in names:
            turn = chat.ask_name(self.dice, self.persona)
        self.add(turn)

    def filler(self) -> None:
        """A long text; now and then something to remember stands inside it."""
        dice = self.dice
        turn = chat.filler(
            dice, dice.between(self.mixture.filler_bytes // 6, self.mixture.filler_bytes)
        )
        said = turn[0]
        if dice.chance(0.6) and isinstance(said, Said):
            sentences = said.text.split(". ")
            for _ in range(dice.between(1, 3)):
                text = (
                    markers.planted(dice, self._new_marker())
                    if dice.chance(0.6)
                    else self._new_fact().told[0]
                )
                text = text.rstrip(".") if dice.chance(0.5) else text
                sentences.insert(dice.below(len(sentences) + 1), text)
            joint = dice.pick((". ", ".\n"))
            turn[0] = Said(joint.join(sentences))
        self.add(turn)


_ACTIONS: tuple[tuple[str, Callable[[Scene], None]], ...] = (
    ("tell", Scene.tell), ("ask", Scene.ask), ("unknown", Scene.unknown), ("repeat", Scene.repeat),
    ("lookup", Scene.lookup), ("count", Scene.count), ("chat", Scene.chat),
    ("filler", Scene.filler),
)  # fmt: skip


def compose(dice: Dice, tokens: int, mixture: Mixture) -> Conversation:
    """A conversation of about `tokens` tokens, at most."""
    scene = Scene(dice, mixture)
    scene.open()
    room = tokens * BYTES_PER_TOKEN * 0.92
    actions = [action for _, action in _ACTIONS]
    edges: list[float] = []
    for name, _ in _ACTIONS:
        edges.append((edges[-1] if edges else 0.0) + getattr(mixture, name))
    closing = min(0.3 * room, 7000)
    while not scene.talk.turns or scene.bytes < room:
        if scene.tools and dice.chance(mixture.tool):
            action: Callable[[Scene], None] = Scene.tool
        elif scene.bytes > room - closing and mixture.filler > 1:
            action = dice.pick((Scene.ask, Scene.ask, Scene.ask, Scene.unknown))
        else:
            action = dice.weighted(actions, edges)
        action(scene)
    talk = scene.talk
    if len(talk.turns) > 1 and dice.chance(0.4):
        talk.turns.pop()  # the one that went over
    keep_all = dice.chance(0.5)
    talk.kept = [keep_all or dice.chance(0.35) for _ in talk.turns]
    talk.kept[-1] = True
    return talk
