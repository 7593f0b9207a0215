"""`streamglm conversations`: see, take away, remove and verify what was learned.

Owns the command's own arguments and its output. The folder is read as it lies, beside a server that
writes to it; what changes it needs the folder's lock, and a running server is asked over HTTP
instead (`DELETE /v1/conversations`). Knows no model: text is shown where a checkpoint is named.
"""

from __future__ import annotations

import argparse
import json
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from streamglm import nano
from streamglm.commands.learned import view_of
from streamglm.core.engine import ConversationView
from streamglm.disk.index import Index
from streamglm.disk.nouns import Conversation
from streamglm.disk.store import Store
from streamglm.disk.verify import Verdict, tokens_on, verify
from streamglm.errors import ConversationNotFound, DiskError
from streamglm.kinds import LEARN_FOLDER
from streamglm.text.tokenizer import Tokenizer

DAMAGED = 1
"""Exit status when something is damaged."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """A folder that is open, and what its index says."""

    store: Store
    index: Index
    page_rows: int

    def views(self) -> list[ConversationView]:
        return [view_of(one, self.page_rows) for one in self.index.conversations()]

    def find(self, name: str) -> Conversation:
        """The conversation whose id begins like `name`, if it is one."""
        found = [one for one in self.index.conversations() if one.id.startswith(name)]
        if len(found) != 1:
            raise ConversationNotFound(
                f"{len(found)} conversations have an id that begins with {name!r}; "
                "`streamglm conversations ls` lists them"
            )
        return found[0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs, each with what it takes."""
    parser.add_argument(
        "--learn-conversations",
        metavar="DIR",
        default=str(LEARN_FOLDER),
        help=f"the folder that a server learned into (default {LEARN_FOLDER})",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, text, action in (
        ("ls", "list the conversations, the most recently used first", _ls),
        ("show", "one conversation: its turns, its files, its beginning", _show),
        ("rm", "remove conversations and their files", _rm),
        (
            "export",
            "write a conversation's tokens, and its text where MODEL is named, as JSON",
            _export,
        ),
        ("verify", "read every record and compare its checksums", _verify),
    ):
        verb = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        verb.set_defaults(act=action)
        if name in ("show", "export"):
            verb.add_argument("id", help="the conversation, or the beginning of its id")
            verb.add_argument("--model", help="a checkpoint folder or `nano`, whose words to show")
        if name == "rm":
            verb.add_argument("id", nargs="*", help="conversations, or beginnings of their ids")
            verb.add_argument("--all", action="store_true", help="all of them")
        if name == "verify":
            verb.add_argument("--repair", action="store_true", help="remove what is damaged")
        if name in ("ls", "show", "verify"):
            verb.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Do one verb; 0, or 1 when `verify` finds damage. Raises `StreamglmError`."""
    act: Callable[[Shelf, argparse.Namespace], int] = arguments.act
    writes = arguments.verb == "rm" or getattr(arguments, "repair", False)
    folder = Path(arguments.learn_conversations).expanduser()
    if not folder.is_dir():
        raise DiskError(f"{folder}: no such folder; --learn-conversations names another")
    store = Store(folder, write=writes)
    try:
        index = Index(b"")
        index.load(*store.rows())
        store.worlds()
        return act(Shelf(store, index, _page_rows(store, index)), arguments)
    finally:
        store.close()


def _page_rows(store: Store, index: Index) -> int:
    """Tokens of a page, by the first record that says so; 0 in an empty folder."""
    for stored in index.states():
        for node in stored.node.path():
            if node.size:
                tokens = tokens_on(store, node)
                return len(tokens) // 4
    return 0


def _ls(shelf: Shelf, arguments: argparse.Namespace) -> int:
    views = shelf.views()
    if arguments.json:
        print(json.dumps([asdict(one) for one in views], indent=2))
        return 0
    table = Table()
    for name in ("id", "tokens", "turns", "MiB", "begun", "used"):
        table.add_column(name, justify="left" if name == "id" else "right")
    for one in views:
        table.add_row(
            one.id,
            f"{one.tokens:,}",
            str(len(one.states)),
            f"{one.bytes / 2**20:,.1f}",
            _moment(one.created),
            _moment(one.used),
        )
    Console().print(table)
    print(f"{len(views)} conversations, {shelf.index.bytes / 2**20:,.1f} MiB of records")
    return 0


def _show(shelf: Shelf, arguments: argparse.Namespace) -> int:
    conversation = shelf.find(arguments.id)
    view = view_of(conversation, shelf.page_rows)
    ids = _ids(shelf, conversation)
    files = len(conversation.states) + conversation.pages
    shown: dict[str, Any] = {**asdict(view), "files": files, "tokens_on_disk": len(ids)}
    tokenizer = _tokenizer(arguments.model)
    if tokenizer is not None:
        shown["text"] = tokenizer.decode(ids)
    if arguments.json:
        print(json.dumps(shown, indent=2))
        return 0
    for name, value in shown.items():
        if name == "states":
            for state in view.states:
                print(f"turn: {state.tokens:,} tokens, used {_moment(state.used)}")
        else:
            print(f"{name}: {_moment(value) if name in ('created', 'used') else value}")
    return 0


def _rm(shelf: Shelf, arguments: argparse.Namespace) -> int:
    if arguments.all == bool(arguments.id):
        raise DiskError("name conversations, or --all of them")
    wanted = (
        shelf.index.conversations()
        if arguments.all
        else [shelf.find(name) for name in arguments.id]
    )
    for conversation in wanted:
        gone = [
            one for stored in reversed(conversation.states) for one in shelf.index.remove(stored)
        ]
        shelf.store.remove(gone)
        print(
            f"removed {conversation.id}: {len(gone)} records, {sum(g.size for g in gone):,} bytes"
        )
    return 0


def _export(shelf: Shelf, arguments: argparse.Namespace) -> int:
    conversation = shelf.find(arguments.id)
    ids = _ids(shelf, conversation)
    tokenizer = _tokenizer(arguments.model)
    exported: dict[str, Any] = {
        **asdict(view_of(conversation, shelf.page_rows)),
        "token_ids": ids,
        "text": None if tokenizer is None else tokenizer.decode(ids),
    }
    print(json.dumps(exported))
    return 0


def _verify(shelf: Shelf, arguments: argparse.Namespace) -> int:
    verdict = verify(shelf.store, shelf.index)
    if arguments.repair:
        for damage in verdict.damaged:
            shelf.store.remove(shelf.index.lose(damage.key, damage.kind))
    if arguments.json:
        print(json.dumps(_as_json(verdict), indent=2))
    else:
        print(f"{verdict.records} records, {verdict.bytes:,} bytes, {len(verdict.damaged)} damaged")
        for damage in verdict.damaged:
            done = "removed" if arguments.repair else "damaged"
            print(f"{done}: {damage.kind.name.lower()} {damage.key.hex()[:12]}: {damage.why}")
    return DAMAGED if verdict.damaged and not arguments.repair else 0


def _as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "records": verdict.records,
        "bytes": verdict.bytes,
        "damaged": [
            {"kind": one.kind.name.lower(), "key": one.key.hex(), "why": one.why}
            for one in verdict.damaged
        ],
    }


def _ids(shelf: Shelf, conversation: Conversation) -> list[int]:
    """The token ids of a conversation's pages, from its first on as far as they are there."""
    tokens = array("I")
    for node in reversed(list(conversation.tip.node.path())):
        if not node.size:
            break
        tokens.frombytes(tokens_on(shelf.store, node))
    return tokens.tolist()


def _tokenizer(model: str | None) -> Tokenizer | None:
    if model is None:
        return None
    return Tokenizer.from_folder(nano.folder() if model == "nano" else Path(model))


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
