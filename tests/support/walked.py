"""One walk of steps over ranks that split latent rows: prompts, windows, a kept state, a carry.

Owns the steps and what an executor says of them. Owns no ranks: processes and threads walk alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from streamglm.model.executor import Executor
from streamglm.model.peers import Peers
from streamglm.model.spec import ModelSpec
from streamglm.ranks.collectives import Group
from streamglm.sampling.lane import LaneSampler
from streamglm.step import Begin, Carry, Chunk, Restore, Row, Save, Step
from streamglm.weights.checkpoint import load
from support.drafted import GREEDY, ids

PAGE = 64


class Walked(NamedTuple):
    """What one rank came to: a hash of every logit, and bytes sent by kind."""

    logits: str
    sent: dict[str, int]
    transport: dict[str, int]


def steps(world: int) -> Sequence[Step]:
    """Lane 0 of the last rank's pages keeps a state that lane 2 carries to rank 0; lane 1 is of
    rank 1. Row tokens are given, so that steps do not depend on what is drawn."""
    home = world - 1
    pages = [tuple(owner + world * at for at in order) for owner, order in _orders(world)]
    prompt, other = _tokens(1, 300), _tokens(2, 150)
    mark = 4 * PAGE
    return (
        Step(
            begins=(Begin(0, pages[0], GREEDY),),
            chunks=(Chunk(0, 0, prompt[:192], False),),
        ),
        Step(
            begins=(Begin(1, pages[1], GREEDY),),
            chunks=(Chunk(0, 192, prompt[192:mark], False), Chunk(1, 0, other[:128], False)),
            saves=(Save(3, 0, 0, host=False, at=mark),),
        ),
        Step(chunks=(Chunk(1, 128, other[128:], True),)),
        Step(
            begins=(Begin(2, pages[2], GREEDY, Restore(3, 0, mark)),),
            carries=(Carry(3, 2, home, 0, mark, pages[0][:4], pages[2][:4]),),
            chunks=(Chunk(0, mark, prompt[mark:], True),),
            rows=(Row(1, 150, 7),),
        ),
        Step(chunks=(Chunk(2, mark, prompt[mark:], True),), rows=(Row(1, 151, 9),)),
        Step(rows=(Row(0, 300, 11), Row(2, 300, 11), Row(1, 152, 5))),
    )


def _orders(world: int) -> list[tuple[int, tuple[int, ...]]]:
    return [(world - 1, (4, 0, 3, 1, 2)), (1, (9, 5, 7)), (0, (1, 4, 0, 2, 3))]


def _tokens(seed: int, length: int) -> tuple[int, ...]:
    return tuple(token % 97 + 2 for token in ids(seed, length))


def executor(folder: Path, peers: Peers, *, kv_split: bool) -> Executor:
    spec = ModelSpec.from_folder(folder)
    return Executor(
        spec,
        load(folder, spec, rank=peers.rank, world=peers.world).params,
        pages=12 * peers.world,
        lanes=3,
        slots=1,
        sampler=LaneSampler,
        poison=True,
        peers=peers,
        kv_split=kv_split,
    )


def walk(peers: Peers, folder: Path) -> tuple[str, dict[str, int]]:
    """Every step on this rank."""
    one = executor(folder, peers, kv_split=True)
    digest = hashlib.sha256()
    for step in steps(peers.world):
        _, tap = one.logits(step)
        for at in sorted(tap):
            digest.update(repr(at).encode() + tap[at].tobytes())
    assert one.exchange is not None
    return digest.hexdigest(), dict(one.exchange.sent)


def walk_grouped(group: Group, folder: Path) -> Walked:
    """The same over a transport."""
    return Walked(*walk(group, folder), dict(group.sent))
