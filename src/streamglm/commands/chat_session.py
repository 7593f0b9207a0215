"""The chat without its terminal: history, commands, and what a question asks of the server.

Owns what was said and which options are set. Knows no drawing and reads no keyboard, so tests
drive it with plain calls. Invariant: the history holds answered turns only; a turn that
failed, or was stopped before its answer began, is not sent again unless the user retries it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from streamglm.commands.chat_client import ChatError, Ended, Piece, Server

EFFORTS = ("low", "high", "max")

COMMANDS = MappingProxyType(
    {
        "help": "this list",
        "new": "forget everything said so far",
        "undo": "forget the last question and its answer",
        "retry": "ask the last question again",
        "effort": f"how hard the model thinks: /effort {' | '.join(EFFORTS)}",
        "system": "set the system text, or show it: /system TEXT",
        "quit": "leave (so does Ctrl-D)",
    }
)


@dataclass(frozen=True, slots=True)
class Say:
    """A line that is a message for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A line that is meant for the chat itself: a name of `COMMANDS`, and the rest of the line."""

    name: str
    argument: str


def read_message(read: Callable[[str], str]) -> str:
    """One message: lines are joined where one ends in a backslash.

    `read` takes a prompt and raises `EOFError` at the end of input, which passes through unless
    a message has begun.
    """
    lines = [read("> ")]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        try:
            lines.append(read(". "))
        except EOFError:
            break
    return "\n".join(lines)


def understand(message: str) -> Say | Command | None:
    """What a message asks for; None for an empty one. Two slashes say one to the model."""
    if not message.strip():
        return None
    if message.startswith("//"):
        return Say(message[1:])
    if not message.startswith("/"):
        return Say(message)
    name, _, argument = message[1:].partition(" ")
    if name not in COMMANDS:
        raise ChatError(f"unknown command /{name}; /help lists them, // sends a message with a /")
    return Command(name, argument.strip())


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and what came back."""

    user: str
    reasoning: str
    answer: str


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked of the server beside the messages; None leaves the choice to it."""

    system: str | None = None
    effort: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None


def request_body(options: Options, model: str, turns: Iterable[Turn], text: str) -> dict[str, Any]:
    """The body of `POST /v1/chat/completions` that asks `text` after `turns`."""
    messages = [{"role": "system", "content": options.system}] if options.system else []
    for turn in turns:
        messages.append({"role": "user", "content": turn.user})
        reply = {"role": "assistant", "content": turn.answer}
        messages.append(reply | ({"reasoning_content": turn.reasoning} if turn.reasoning else {}))
    messages.append({"role": "user", "content": text})
    chosen = {
        "reasoning_effort": options.effort,
        "max_tokens": options.max_tokens,
        "temperature": options.temperature,
        "seed": options.seed,
    }
    return {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    } | {name: value for name, value in chosen.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole reply in numbers: the server's counts, the client's seconds."""

    ended: Ended
    first_token_seconds: float
    tokens_per_second: float | None
    """Tokens after the first over the time after the first; None for a reply of one piece."""

    def line(self) -> str:
        """The status line under a reply."""
        ended = self.ended
        rate = "" if self.tokens_per_second is None else f" · {self.tokens_per_second:.1f} tokens/s"
        limit = " · stopped by the token limit" if ended.finish == "length" else ""
        return (
            f"{ended.completion_tokens} tokens{rate} · first after {self.first_token_seconds:.2f} s"
            f" · {ended.cached_tokens} of {ended.prompt_tokens} prompt tokens cached"
            f" · token_sha {ended.token_sha[:8] or 'none'}{limit}"
        )


class Session:
    """One chat: what was said, and how the next question is asked."""

    def __init__(
        self,
        server: Server,
        model: str,
        options: Options,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.turns: list[Turn] = []
        self.asked: str | None = None
        self.summary: Summary | None = None
        self.kept = False
        """Whether the last reply became part of the history."""
        self._server = server
        self._model = model
        self._now = now

    def ask(self, text: str) -> Generator[Piece, None, None]:
        """Ask, and yield the reply's pieces; `summary` is set once it ended whole.

        Closing the iterator, or an interrupt inside it, cancels the reply on the server; what
        was answered until then stays in the history. After a `ChatError` nothing stays.
        """
        self.asked, self.summary, self.kept = text, None, False
        body = request_body(self.options, self._model, self.turns, text)
        pieces: list[Piece] = []
        times = [self._now()]
        try:
            with closing(self._server.reply(body)) as events:
                for event in events:
                    if isinstance(event, Ended):
                        self.summary = _summary(event, times)
                    else:
                        pieces.append(event)
                        times.append(self._now())
                        yield event
        except (KeyboardInterrupt, GeneratorExit):
            self._keep(text, pieces)
            raise
        self._keep(text, pieces)

    def _keep(self, text: str, pieces: list[Piece]) -> None:
        answer = "".join(piece.answer for piece in pieces)
        self.kept = bool(answer)
        if answer:
            self.turns.append(Turn(text, "".join(piece.reasoning for piece in pieces), answer))

    def retry(self) -> str:
        """Forget the last answer, if there was one, and return its question."""
        if self.asked is None:
            raise ChatError("there is nothing to retry")
        if self.turns and self.turns[-1].user == self.asked:
            self.turns.pop()
        return self.asked

    def command(self, command: Command) -> str:
        """Do a command other than /retry and /quit; the text to show. Raises `ChatError`."""
        match command.name:
            case "new":
                self.turns.clear()
                self.asked = None
                return "a new chat"
            case "undo":
                return self._undo()
            case "effort":
                return self._effort(command.argument)
            case "system":
                return self._system(command.argument)
        width = max(map(len, COMMANDS))
        return "\n".join(f"/{name:<{width}}  {text}" for name, text in COMMANDS.items())

    def _undo(self) -> str:
        if not self.turns:
            raise ChatError("there is nothing to undo")
        turn = self.turns.pop()
        self.asked = self.turns[-1].user if self.turns else None
        return f"forgotten: {turn.user.splitlines()[0]}"

    def _effort(self, argument: str) -> str:
        if argument and argument not in EFFORTS:
            raise ChatError(f"effort {argument!r}: it may be {', '.join(EFFORTS)}")
        if argument:
            self.options = replace(self.options, effort=argument)
        return f"effort: {self.options.effort or 'as the server chooses'}"

    def _system(self, argument: str) -> str:
        if argument:
            self.options = replace(self.options, system=argument)
        return f"system text: {self.options.system or 'none'}"


def _summary(ended: Ended, times: list[float]) -> Summary:
    """`times` holds the moment of asking, then that of each piece."""
    spent = times[-1] - times[1] if len(times) > 2 else 0.0
    return Summary(
        ended=ended,
        first_token_seconds=times[1] - times[0] if len(times) > 1 else 0.0,
        tokens_per_second=(ended.completion_tokens - 1) / spent if spent > 0 else None,
    )
