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
from streamglm.commands import chat, check, conversations, plan, rank, serve
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
    planning = commands.add_parser(
        "plan",
        help="say what fits, without a GPU",
        description="Say what fits in a room: lanes, window, pages, kept states. MODEL may also be "
        "random:glm-5.3-flash, the real shapes without weights. Exit status 2 when it does not "
        "fit; the refusal then names settings that do.",
    )
    plan.add_arguments(planning)
    planning.set_defaults(run=plan.run)
    checking = commands.add_parser(
        "check",
        help="prove that replies are exact on this machine",
        description="Prove on this machine that a reply's bits depend on its request alone: pages "
        "against whole windows, prompts resumed against fresh, in chunks against whole, streams "
        "together against alone, with poison in every unwritten page. Real rank processes compute; "
        "logits and states are compared bit for bit. Exit status 1 on any difference.",
    )
    check.add_arguments(checking)
    checking.set_defaults(run=check.run)
    ranking = commands.add_parser(
        "rank",
        help="be one rank of a server on another host",
        description="Be one rank of a server that waits for it at --master: `streamglm serve "
        "--ranks W --nnodes N --master HOST:PORT`, or without --nnodes for all ranks. Started by "
        "hand, or by torchrun, whose RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT it reads. The "
        "settings are those of serve, and equal on every host.",
    )
    rank.add_arguments(ranking)
    ranking.set_defaults(run=rank.run)
    learning = commands.add_parser(
        "conversations",
        help="see, export, remove and verify learned conversations",
        description="See, export, remove and verify what a server learned with "
        "--learn-conversations. A running server keeps the folder's lock: ask it over HTTP to "
        "remove (DELETE /v1/conversations/ID).",
    )
    conversations.add_arguments(learning)
    learning.set_defaults(run=conversations.run)
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
