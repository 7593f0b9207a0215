"""A server that learns, killed again and again: what each next one finds must be right.

One folder, one server after the other. Each life is checked against replies of a server that keeps
nothing: the conversation that the last life was killed in goes on, and then another begins in
which this life is killed. A salt a life keeps conversations apart, so that each is written anew.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from support.server import Server, serving_until_killed
from support.talk import cached, greedy, ids, words

TURNS = 5
TURN_TOKENS = 150


def prompt_of(talk: int, turn: int) -> list[int]:
    """The prompt of a turn: all turns before it, and its own tokens."""
    return [token for one in range(turn + 1) for token in words(100 * talk + one, TURN_TOKENS)]


def references(fresh: Server, talks: int) -> dict[tuple[int, int], list[int]]:
    """The replies of a server that keeps nothing, to every turn and the one after the last."""
    return {
        (talk, turn): ids(fresh.complete(prompt_of(talk, turn), **greedy(6)))
        for talk in range(talks)
        for turn in range(TURNS + 1)
    }


@dataclass
class Record:
    """What the lives came to."""

    lives: int = 0
    resumed: int = 0
    """Lives that found something of the conversation that was killed."""
    leftovers: int = 0
    """Lives that found and removed something half-written."""
    warnings: list[str] = field(default_factory=list)


def lives(folder: Path, want: dict[tuple[int, int], list[int]], count: int, *, seed: int) -> Record:
    """`count` lives and kills, and one more life that ends well."""
    draw, record = random.Random(seed), Record()
    talks = 1 + max(talk for talk, _ in want)
    flags = ("--learn-conversations", str(folder), "--parallel", "2", "--kv-poison")
    before: tuple[int, str] | None = None
    for life in range(count + 1):
        with serving_until_killed("nano", *flags) as server:
            if before is not None:
                talk, salt = before
                reply = server.complete(
                    prompt_of(talk, TURNS), cache_salt=salt, learn=False, **greedy(6)
                )
                assert ids(reply) == want[talk, TURNS], f"life {life}: another reply"
                record.resumed += cached(reply) > 0
            leftover = [line for line in server.lines if "half-written" in line]
            record.leftovers += bool(leftover)
            record.warnings += [line for line in server.lines if " WARNING streamglm.disk" in line]
            if life == count:
                server.process.send_signal(signal.SIGTERM)
                assert server.process.wait(60) == 0
                break
            before = life % talks, f"life {seed}-{life}"
            _talk_and_kill(server, folder, before, want, draw)
            record.lives += 1
    return record


def _talk_and_kill(
    server: Server,
    folder: Path,
    talk: tuple[int, str],
    want: dict[tuple[int, int], list[int]],
    draw: random.Random,
) -> None:
    """Let a conversation go on until a random moment, or, every other time, until the folder
    grows."""
    seconds, grow = draw.uniform(0.0, 2.0), draw.random() < 0.5
    size = _size(folder)

    def kill() -> None:
        deadline = time.monotonic() + (5.0 if grow else seconds)
        while time.monotonic() < deadline and not (grow and _size(folder) > size):
            time.sleep(0.001)
        time.sleep(draw.uniform(0.0, 0.02) if grow else 0.0)
        server.process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with contextlib.suppress(httpx.HTTPError):
        for turn in range(TURNS):
            reply = server.complete(prompt_of(talk[0], turn), cache_salt=talk[1], **greedy(6))
            assert ids(reply) == want[talk[0], turn]
    killer.join()
    server.process.wait(30)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def clean(folder: Path) -> Sequence[Path]:
    """Files on their way that a start would have to remove."""
    return list(folder.glob("tmp-*/*"))
