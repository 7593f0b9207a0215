"""The command line: one parser, one command a file in `commands/`.

Owns the parser and the exit status. Knows nothing of what a command does. A known failure
(`StreamglmError`) is one line on stderr and exit status 1; a bad flag is argparse's status 2.
Importing this module imports no torch, so `--help` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from streamglm import __version__, config
from streamglm.commands import chat, serve
from streamglm.errors import StreamglmError


def build_parser() -> argparse.ArgumentParser:
    """The parser with every command; `docs/cli.md` is generated from it."""
    parser = argparse.ArgumentParser(
        prog="streamglm",
        description="A streaming server for GLM-5.3-Flash in which a reply depends on its "
        "request alone.",
    )
    parser.add_argument("--version", action="version", version=f"streamglm {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    serving = commands.add_parser(
        "serve",
        help="serve a checkpoint over HTTP",
        description="Serve a checkpoint over HTTP. Every flag is also a variable "
        "(STREAMGLM_PORT for --port) and a key of the TOML file of --config.",
    )
    config.add_arguments(serving)
    serving.set_defaults(run=serve.run)
    chatting = commands.add_parser(
        "chat",
        help="talk to a running server in the terminal",
        description="Talk to a running server in the terminal.",
    )
    chat.add_arguments(chatting)
    chatting.set_defaults(run=chat.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; the console script exits with it."""
    arguments = build_parser().parse_args(argv)
    try:
        status = arguments.run(arguments)
    except StreamglmError as error:
        print(f"streamglm: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    assert isinstance(status, int)
    return status
