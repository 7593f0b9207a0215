"""Conversations that two ranks have learned: they survive a restart of two, and only of two.

A state is published when the records of every rank are there; each rank reads and writes its own,
and the world is part of whose records they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.server import Server, serving
from support.talk import cached, greedy, words

PROMPT = words(1, 330)
NEXT = PROMPT + words(2, 40)
MARK = 320
"""The last page boundary of the first prompt."""


@contextmanager
def life(folder: Path, ranks: int) -> Iterator[Server]:
    flags = ("--ranks", str(ranks), "--threads", "1", "--parallel", "2", "--kv-poison")
    window = ("--context", "4096", "--pool-tokens", "16384")
    learn = ("--learn-conversations", str(folder))
    with serving("nano", *flags, *window, *learn) as server:
        yield server


def bits(reply: dict[str, Any]) -> tuple[object, ...]:
    return reply["streamglm"]["token_sha"], reply["choices"][0]["logprobs"]


def test_two_ranks_resume_from_the_disk_and_one_does_not(tmp_path: Path) -> None:
    ask = {**greedy(12), "logprobs": 3}
    with life(tmp_path, 2) as server:
        server.complete(PROMPT, **ask)
        want = server.complete(NEXT, **ask, cache_salt="elsewhere", learn=False)
        assert cached(want) == 0
    with life(tmp_path, 1) as server:
        other = server.complete(NEXT, **ask, learn=False)
        assert cached(other) == 0
    with life(tmp_path, 2) as server:
        found = server.complete(NEXT, **ask, learn=False)
        assert cached(found) >= MARK
        assert any("from a disk state" in line for line in server.lines)
    assert bits(found) == bits(want)
