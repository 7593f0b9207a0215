"""Ranks as processes over gloo: spawned, met at a port that the system chose, and ended.

Owns the processes. `calls` is one walk through all that `Peers` has; what it must give is known
without a transport.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch

from streamglm.kernels.arguments import Array
from streamglm.model.peers import Peers
from streamglm.ranks.collectives import Group, follow, lead

WIDTHS = (3, 1, 2)
ROWS = 4


LARGE = 1025
"""Rows of a partial that three ranks add in pieces, which are not of one size."""


class Found(NamedTuple):
    """What one rank got, as nested lists of floats."""

    added: tuple[Any, Any]
    large: str
    """A hash."""
    joined: tuple[Any, Any]
    traded: Any
    spread: Any


def partial(rank: int, rows: int = ROWS) -> Array:
    """Values whose float32 sum depends on the order."""
    noise = np.random.default_rng(rank)
    return noise.standard_normal((rows, 256), np.float32) * np.float32(10.0) ** (3 * rank)


def sequential(world: int, rows: int = ROWS) -> Array:
    total = partial(0, rows)
    for rank in range(1, world):
        total = total + partial(rank, rows)
    return total


def hashed(values: Array) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


def rounded(peers: Peers) -> tuple[bool, bool]:
    """Whether small and large partials, added into bfloat16, are their sum rounded once."""
    found = []
    for rows in (ROWS, LARGE):
        mine = torch.from_numpy(partial(peers.rank, rows))
        want = torch.from_numpy(sequential(peers.world, rows)).to(torch.bfloat16)
        found.append(torch.equal(peers.add(mine, torch.bfloat16), want))
    return found[0], found[1]


def calls(peers: Peers) -> Found:
    """Each call, with numpy and with torch."""
    rank, world = peers.rank, peers.world
    mine = partial(rank)
    added = peers.add(mine).tolist(), peers.add(torch.from_numpy(mine)).tolist()
    widths = WIDTHS[:world]
    part = np.full((ROWS, widths[rank]), rank, np.float32)
    joined = peers.join(part, widths).tolist(), peers.join(torch.from_numpy(part), widths).tolist()
    large = hashed(peers.add(partial(rank, LARGE)))
    return Found(added, large, joined, _traded(peers), _spread(peers))


def _traded(peers: Peers) -> list[Any]:
    """Two rows to the next rank and one to the one before; with two ranks that is the same one.
    Then rank 0 and 1 alone."""
    rank, world = peers.rank, peers.world
    after, before = (rank + 1) % world, (rank - 1) % world
    into = [torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bfloat16), torch.zeros(5)]
    peers.trade(
        [
            (after, torch.full((2, 3), float(rank))),
            (after, torch.full((2, 3), rank + 0.5, dtype=torch.bfloat16)),
            (before, torch.full((5,), rank + 100.0)),
        ],
        [(before, into[0]), (before, into[1]), (after, into[2])],
    )
    alone = torch.zeros(4)
    sends = [(1, torch.full((4,), 7.0))] if rank == 0 else []
    peers.trade(sends, [(0, alone)] if rank == 1 else [])
    return [one.tolist() for one in (*into, alone)]


def _spread(peers: Peers) -> Any:
    rows = torch.full((2, 2), float(peers.rank))
    peers.spread(rows, peers.world - 1)
    return rows.tolist()


Body = Callable[[Group, Any], Any]
"""What each process does; a function of a module, with one argument of its own."""


def _child(pipe: Connection, rank: int, world: int, body: Body, given: Any, timeout: float) -> None:
    torch.set_num_threads(1)
    pipe.send(None)  # what is imported is imported
    if rank == 0:
        pipe.recv()
        store, port = lead("127.0.0.1", timeout)
        pipe.send(port)
    else:
        store = follow("127.0.0.1", pipe.recv(), timeout)
    group = Group(store, rank, world, timeout=timeout)
    try:
        pipe.send(body(group, given))
    except Exception as error:
        pipe.send(error)
    pipe.recv()  # the store lives as long as rank 0
    group.close()


@contextmanager
def processes(world: int, body: Body, given: Any = None, timeout: float = 60.0) -> Iterator[Any]:
    """What `body` gave, or raised, in each of `world` processes, by rank."""
    context = multiprocessing.get_context("spawn")
    pipes, children = [], []
    for rank in range(world):
        ours, theirs = context.Pipe()
        child = context.Process(target=_child, args=(theirs, rank, world, body, given, timeout))
        child.start()
        theirs.close()
        pipes.append(ours)
        children.append(child)
    try:
        for pipe in pipes:
            pipe.recv()
        pipes[0].send(None)
        port = pipes[0].recv()
        for pipe in pipes[1:]:
            pipe.send(port)
        yield [_answer(pipe) for pipe in pipes]
        for pipe in pipes:
            with suppress(OSError):  # one that has ended
                pipe.send(None)
    finally:
        for child in children:
            child.join(10.0)
            if child.is_alive():
                child.kill()
                child.join()


def _answer(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return None
