"""`streamglm chat`: talk to a running server in the terminal.

Owns the keyboard and the drawing. Knows nothing of HTTP or of history, which are
`chat_client.py` and `chat_session.py`. Invariant: what a model sent reaches the terminal without
control characters, so no reply can move the cursor or change the terminal's state.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.segment import Segment, Segments
from rich.status import Status
from rich.style import Style

from streamglm.commands.chat_client import ChatError, Piece, Server
from streamglm.commands.chat_session import (
    EFFORTS,
    Command,
    Options,
    Say,
    Session,
    Summary,
    read_message,
    understand,
)

Reader = Callable[[str], str]

_DIM = Style(dim=True)
# C0 without newline and tab, DEL, and C1.
_CONTROL = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `streamglm chat`."""
    parser.add_argument(
        "--url",
        default="http://127.0.0.1:8080",
        help="where the server listens (default http://127.0.0.1:8080)",
    )
    parser.add_argument("--api-key", metavar="KEY", help="key, if the server asks for one")
    parser.add_argument(
        "--effort", choices=EFFORTS, help="how hard the model thinks; default is the server's"
    )
    parser.add_argument("--system", metavar="TEXT", help="system text that every question follows")
    parser.add_argument(
        "--max-tokens", metavar="N", type=int, help="longest reply; default is the whole window"
    )
    parser.add_argument(
        "--temperature", metavar="X", type=float, help="0 is greedy; default is the model's"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="same seed, same reply")
    thinking = parser.add_mutually_exclusive_group()
    thinking.add_argument(
        "--show-thinking",
        dest="thinking",
        action="store_true",
        default=None,
        help="show the reasoning (default in a terminal)",
    )
    thinking.add_argument(
        "--hide-thinking",
        dest="thinking",
        action="store_false",
        default=None,
        help="show the answer alone (default when the output is not a terminal)",
    )


def run(args: argparse.Namespace) -> int:
    """Chat until the input ends. The exit status: 0, 1 after an error that ended it, 130 after an
    interrupt of input that is not a terminal."""
    interactive = sys.stdin.isatty()
    screen = Screen(interactive=interactive, thinking=args.thinking)
    read = _keyboard() if interactive else _Lines(sys.stdin)
    options = Options(args.system, args.effort, args.max_tokens, args.temperature, args.seed)
    try:
        with Server(args.url, args.api_key) as server:
            model, context = server.model()
            screen.greet(model, server.url, context)
            return _Chat(screen, Session(server, model, options), interactive).run(read)
    except ChatError as error:
        screen.error(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


class _Lines:
    """Input that is not a terminal: lines, and no prompt."""

    def __init__(self, source: TextIO) -> None:
        self._source = source

    def __call__(self, prompt: str) -> str:
        line = self._source.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


def _keyboard() -> Reader:
    """`input`, with line editing and history where this Python has it."""
    # Imported here because importing it is what changes `input`, which a pipe must not see.
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401
    return input


class _Chat:
    """The loop: read a message, do what it says, until the input ends."""

    def __init__(self, screen: Screen, session: Session, interactive: bool) -> None:
        self._screen = screen
        self._session = session
        self._interactive = interactive

    def run(self, read: Reader) -> int:
        for message in self._messages(read):
            try:
                wanted = understand(message)
                if isinstance(wanted, Command) and wanted.name == "quit":
                    return 0
                if wanted is not None:
                    self._do(wanted)
            except ChatError as error:
                if not self._interactive:
                    raise
                self._screen.error(str(error))
        return 0

    def _messages(self, read: Reader) -> Iterator[str]:
        while True:
            try:
                message = read_message(read)
            except EOFError:
                return
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                self._screen.note("\n/quit or Ctrl-D leaves")
                continue
            yield message

    def _do(self, wanted: Say | Command) -> None:
        if isinstance(wanted, Say):
            self._ask(wanted.text)
        elif wanted.name == "retry":
            self._ask(self._session.retry())
        else:
            self._screen.note(self._session.command(wanted))

    def _ask(self, text: str) -> None:
        try:
            with self._screen.reply() as drawing, closing(self._session.ask(text)) as pieces:
                for piece in pieces:
                    drawing.piece(piece)
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            self._screen.note("stopped; /retry asks again")
        if self._session.summary:
            self._screen.summary(self._session.summary)
            if not self._session.kept:
                self._screen.note("no answer came, so the chat goes on without this question")


class Screen:
    """Everything that is written. Replies go to the output; what is said about them goes there
    too in a terminal, and to the error stream when the output may be read by a program."""

    def __init__(self, *, interactive: bool, thinking: bool | None) -> None:
        self._out = _console(sys.stdout)
        self._notes = self._out if interactive else _console(sys.stderr)
        self._thinking = self._out.is_terminal if thinking is None else thinking
        self._interactive = interactive

    def greet(self, model: str, url: str, context: int) -> None:
        """Say who is at the other end. Only for a person: a pipe holds replies alone."""
        if self._interactive:
            self.note(f"{model} at {url}, window {context:,} tokens; /help lists the commands")

    def note(self, text: str) -> None:
        """A dim remark of the chat's own."""
        self._notes.print(text, style="dim")

    def error(self, text: str) -> None:
        """What went wrong, in one line."""
        _console(sys.stderr).print(f"streamglm chat: {text}", style="red")

    def summary(self, summary: Summary) -> None:
        """The status line under a reply."""
        self.note(summary.line())

    def reply(self) -> Drawing:
        """Room for one reply."""
        return Drawing(self._out, self._thinking)


def _console(stream: TextIO) -> Console:
    """Plain text out: what a model writes is no markup, and the terminal wraps it."""
    return Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True)


class Drawing:
    """One reply while it is drawn: a spinner until text comes, reasoning dim, the answer plain."""

    def __init__(self, console: Console, thinking: bool) -> None:
        self._console = console
        self._thinking = thinking
        self._status: Status | None = None
        self._last = "\n"
        self._reasoned = False

    def __enter__(self) -> Drawing:
        if self._console.is_terminal:
            self._status = self._console.status("thinking", spinner="dots")
            self._status.start()
        return self

    def piece(self, piece: Piece) -> None:
        """Draw text as it comes."""
        if piece.reasoning and self._thinking:
            self._write(piece.reasoning, _DIM)
            self._reasoned = True
        if piece.answer:
            if self._reasoned:
                self._write(self._blank_line(), None)
                self._reasoned = False
            self._write(piece.answer, None)

    def _blank_line(self) -> str:
        return "\n" if self._last.endswith("\n") else "\n\n"

    def _write(self, text: str, style: Style | None) -> None:
        self._still()
        # As a segment, because rich would turn the tabs of a string into spaces.
        self._console.print(Segments([Segment(text.translate(_CONTROL), style)]), end="")
        self._last = text

    def _still(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._still()
        if not self._last.endswith("\n"):
            self._console.out()
