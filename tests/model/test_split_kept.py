"""Kept states where latent rows are split: resumed at home, carried to another owner, and fresh, a
lane is the same bit for bit.

Each rank keeps its own rows: the fixed part and pooled keys everywhere, latent rows at the state's
home alone. A carry is between home and owner, and a third rank posts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from streamglm import nano
from streamglm.kernels.arguments import Array
from streamglm.model import exchange as crossing
from streamglm.model.exchange import Exchange
from streamglm.pool.carry import carried, pieces
from streamglm.pool.tensors import PoolTensors, Raw
from streamglm.step import (
    Arrive,
    Begin,
    Carry,
    Chunk,
    Demote,
    Drop,
    Put,
    Record,
    Restore,
    Row,
    Save,
    Step,
    Write,
)
from support.drafted import GREEDY, ids
from support.peers import Mismatch
from support.ranked import Ranked
from support.tiny import Folder, TinyShape

SEVEN = TinyShape(num_attention_heads=7, linear_num_heads=7)
PAGE, MARK, LENGTH = 64, 256, 300
PAGES = 60
STATE = 7


Make = Callable[[int, int], "Ranks"]


@pytest.fixture(scope="module")
def make(tiny: Folder) -> Make:
    """(ranks, slot of the state) -> ranks as blank as when they were built."""
    built: dict[int, Ranked] = {}

    def ranks(world: int, slot: int) -> Ranks:
        if world not in built:
            built[world] = split_ranks(tiny(SEVEN, 0), world)
        built[world].blank()
        return Ranks(built[world], slot)

    return ranks


def split_ranks(folder: Path, world: int, *, drafts: bool = False) -> Ranked:
    return Ranked(folder, world, pages=PAGES, lanes=2, slots=1, drafts=drafts, kv_split=True)


@dataclass
class Lane:
    """What a lane came to, from the mark on."""

    logits: list[Array]
    tokens: list[int]
    drafts: list[tuple[int, ...]]
    state: list[torch.Tensor]

    def equals(self, other: Lane) -> bool:
        return (
            self.tokens == other.tokens
            and self.drafts == other.drafts
            and all(np.array_equal(a, b) for a, b in zip(self.logits, other.logits, strict=True))
            and all(torch.equal(a, b) for a, b in zip(self.state, other.state, strict=True))
        )


class Ranks:
    """Split ranks, and one prompt that lanes of any owner compute or resume."""

    def __init__(self, ranked: Ranked, slot: int, *, ahead: int = 0) -> None:
        self.ranked = ranked
        self.slot, self.ahead = slot, ahead
        self.world = world = len(ranked.executors)
        self.prompt = tuple(token % 97 + 2 for token in ids(4, LENGTH))
        shuffled = np.random.default_rng(world).permutation(PAGES - world).tolist()
        self._free = [[p for p in shuffled if p % world == owner] for owner in range(world)]
        self.state_pages: tuple[int, ...] = ()
        self.kept_home = -1

    def lease(self, owner: int, count: int = 6) -> tuple[int, ...]:
        mine = self._free[owner]
        return tuple(mine.pop() for _ in range(count))

    def begin(self, pages: Sequence[int], restore: Restore | None = None) -> Begin:
        return Begin(0, tuple(pages), GREEDY, restore, drafts=bool(self.ahead))

    def keep(self, home: int) -> None:
        """A donor of owner `home` keeps the state at the mark, and ends."""
        pages = self.lease(home)
        chunk = Chunk(0, 0, self.prompt[:MARK], last=False)
        save = Save(STATE, 0, self.slot, host=False, at=MARK)
        self.ranked.run(Step(begins=(self.begin(pages),), chunks=(chunk,), saves=(save,)))
        self.ranked.run(Step(ends=(0,)))
        self.kept_home = home
        self.state_pages = pages[: MARK // PAGE] if self.slot >= 0 else ()
        self._free[home][:0] = pages[MARK // PAGE :] if self.slot >= 0 else pages

    def fresh(self, owner: int) -> Lane:
        chunk = Chunk(0, 0, self.prompt[:MARK], last=False)
        pages = self.lease(owner)
        self.ranked.run(Step(begins=(self.begin(pages),), chunks=(chunk,)))
        return self._reply(pages)

    def resumed(self) -> Lane:
        """At home: the state's own pages, or others of the class that take its copy."""
        pages = self.state_pages + self.lease(self.kept_home, 6 - len(self.state_pages))
        self.ranked.run(Step(begins=(self.begin(pages, self.restore()),)))
        return self._reply(pages[len(self.state_pages) :])

    def carried(self, owner: int) -> Lane:
        pages = self.carry(owner)
        return self._reply(pages)

    def carry(self, owner: int) -> tuple[int, ...]:
        """The step that carries, which does nothing else; the pages of lane 0."""
        pages = self.lease(owner)
        carry = Carry(
            STATE, 0, self.kept_home, owner, MARK, self.state_pages, pages[: MARK // PAGE]
        )
        self.ranked.run(Step(begins=(self.begin(pages, self.restore()),), carries=(carry,)))
        return pages

    def restore(self) -> Restore:
        return Restore(STATE, self.slot, MARK)

    def _reply(self, pages: Sequence[int]) -> Lane:
        """The prompt's rest and four rows, two of them drafted where there are drafts."""
        ranked, drafts = self.ranked, list[tuple[int, ...]]()
        logits, tokens = list[Array](), list[int]()
        step = Step(chunks=(Chunk(0, MARK, self.prompt[MARK:], True, self.ahead),))
        position = LENGTH
        for _ in range(4):
            result, tap = ranked.logits(step)
            logits += [tap[at].copy() for at in sorted(tap)]
            (drawn,) = result.drawn
            position += len(drawn.tokens) if tokens else 0
            tokens += drawn.tokens
            drafts.append(drawn.drafts)
            step = Step(rows=(Row(0, position, tokens[-1], drawn.drafts, self.ahead),))
        states = ranked.states
        state = [part[:, 0].clone() for part in (states.kda, states.conv, states.tails)]
        ranked.run(Step(ends=(0,)))
        self._free[pages[0] % self.world][:0] = pages
        return Lane(logits, tokens, drafts, state)


@pytest.mark.parametrize("slot", [0, -1], ids=["shared", "copied"])
@pytest.mark.parametrize(("world", "home"), [(2, 0), (2, 1), (3, 1)])
def test_home_is_carried_is_fresh(make: Make, world: int, home: int, slot: int) -> None:
    ranks = make(world, slot)
    fresh = ranks.fresh((home + 1) % world)
    ranks.keep(home)
    assert ranks.resumed().equals(fresh)
    for owner in range(world):
        if owner != home:
            assert ranks.carried(owner).equals(fresh)
    assert ranks.resumed().equals(fresh)  # a carry leaves the state as it was


def test_drafts_too() -> None:
    """The next-token layer's rows are carried with the others'."""
    ranks = Ranks(split_ranks(nano.folder(), 3, drafts=True), 0, ahead=2)
    fresh = ranks.fresh(2)
    assert any(fresh.drafts)
    ranks.keep(0)
    assert ranks.resumed().equals(fresh)
    assert ranks.carried(1).equals(fresh)


@pytest.mark.parametrize("world", [2, 3])
def test_each_rank_keeps_its_own_rows_only(make: Make, world: int) -> None:
    """Latent rows of a copy are at home alone; elsewhere a copy is smaller by exactly those."""
    ranks = make(world, -1)
    ranks.keep(1)
    for rank, executor in enumerate(ranks.ranked.executors):
        shape = executor.pool.shape
        away = 0 if rank == 1 else MARK * shape.latent_token_bytes
        assert executor.bytes.buffers == shape.kept_bytes(MARK) - away
    ranks.ranked.run(Step(moves=(Demote(STATE, -1, MARK, ()),)))
    assert all(one.bytes.buffers == 0 for one in ranks.ranked.executors)
    assert ranks.resumed().equals(ranks.fresh(0))
    ranks.ranked.run(Step(moves=(Drop(STATE),)))
    assert all(one.bytes.host == 0 for one in ranks.ranked.executors)


@pytest.mark.parametrize("room", [1_000, 40_000, 5 << 20])
@pytest.mark.parametrize(("world", "home", "owner"), [(2, 1, 0), (3, 0, 2), (3, 2, 1)])
def test_what_a_carry_sends(make: Make, room: int, world: int, home: int, owner: int) -> None:
    """So many pieces in their order, from home to owner; no call names a third rank; and at the
    owner nothing changes but the lane's places."""
    ranks = make(world, 0)
    ranks.keep(home)
    exchanges = [one.exchange for one in ranks.ranked.executors]
    for exchange in exchanges:
        assert exchange is not None
        exchange.carry_bytes = min(room, exchange.bytes)
    before = [one.pool.latents.clone() for one in ranks.ranked.executors]
    pages = ranks.carry(owner)
    pool = ranks.ranked.executors[owner].pool
    limit = exchanges[0].carry_bytes if exchanges[0] else 0
    cut = list(pieces(pool.shape.caches, MARK // PAGE, pool.latents.shape[2], limit))
    assert [(one.call, one.source, one.target, one.bytes) for one in ranks.ranked.sent] == [
        ("trade", home, owner, piece.bytes) for piece in cut
    ]
    assert sum(piece.bytes for piece in cut) == MARK * pool.shape.latent_token_bytes
    for rank, (executor, was) in enumerate(zip(ranks.ranked.executors, before, strict=True)):
        assert executor.exchange is not None
        sent = sum(piece.bytes for piece in cut) if rank == home else 0
        assert executor.exchange.sent["carry"] == sent
        changed = (executor.pool.latents != was).any(2).any(0).nonzero().flatten().tolist()
        places = sorted(page // world for page in pages)
        assert set(changed) <= set(places if rank == owner else [])


class Shelf:
    """A rank's records, in memory: `model.executor.Records`."""

    def __init__(self) -> None:
        self.records: list[list[Raw]] = []
        self._taken = 0

    def stage(self, record: Record, sections: Sequence[Raw]) -> None:
        assert record.number == len(self.records)
        self.records.append([one.copy() for one in sections])

    def again(self) -> None:
        """The next job reads from the first record on."""
        self._taken = 0

    def take(self, job: int, count: int) -> list[list[Raw]]:
        start = self._taken
        self._taken += count
        return self.records[start : self._taken]


def _records(ranks: Ranks) -> tuple[Record, ...]:
    """Of the state's pages, in the pool or in its buffer, and of its fixed part."""
    pages = (*(ranks.state_pages or range(MARK // PAGE)), -1)
    return tuple(Record(at, page, at + 1, b"k", b"p", b"") for at, page in enumerate(pages))


@pytest.mark.parametrize("slot", [0, -1], ids=["shared", "copied"])
@pytest.mark.parametrize(("world", "home"), [(2, 1), (3, 0)])
def test_from_the_disk_to_any_owner(make: Make, world: int, home: int, slot: int) -> None:
    """The record of a page has its latent rows on the rank that owned it, and they go from there
    to whoever owns the page that it is read into."""
    ranks = make(world, slot)
    ranked = ranks.ranked
    shelves = [Shelf() for _ in ranked.executors]
    for executor, shelf in zip(ranked.executors, shelves, strict=True):
        executor._records = shelf
    fresh = ranks.fresh((home + 1) % world)
    ranks.keep(home)
    ranked.run(Step(writes=(Write(STATE, slot, _records(ranks)),)))
    ranked.run(Step(moves=(Drop(STATE),)))
    for rank, shelf in enumerate(shelves):
        assert [bool(len(latents)) for latents, _ in shelf.records[:-1]] == [rank == home] * 4
    for owner in range(world):
        for shelf in shelves:
            shelf.again()
        pages = ranks.lease(owner)
        begin = Begin(0, pages, GREEDY, Arrive(1, MARK))
        ranked.run(Step(begins=(begin,), puts=(Put(0, 1, 0, 3, seal=False),)))
        sent = [(one.source, one.target) for one in ranked.sent if one.call == "trade"]
        assert sent == ([] if owner == home else [(home, owner)] * 3)
        if slot < 0:  # the fixed part may come alone
            ranked.run(Step(puts=(Put(0, 1, 3, 4, seal=False),)))
        ranked.run(Step(puts=(Put(0, 1, 4 if slot < 0 else 3, 4, seal=True),)))
        assert ranks._reply(pages).equals(fresh)


# -- each piece counts


def _third_rank_acts(rank: int, home: int, owner: int, cut: Any) -> Any:
    return carried(home if rank not in (home, owner) else rank, home, owner, cut)


def _another_peer(rank: int, home: int, owner: int, cut: Any) -> Any:
    part = carried(rank, home, owner, cut)
    third = 3 - home - owner
    return part and type(part)(third, part.sends, part.pieces)


def _nothing_is_carried(rank: int, home: int, owner: int, cut: Any) -> None:
    return None


def _places_backwards(self: Exchange, part: Any, piece: Any, table: Any, rows: list[int]) -> None:
    _carry(self, part, piece, table, rows if part.sends else rows[::-1])


def _not_brought(self: Exchange, pages: Sequence[int], read: Any, size: int) -> Any:
    return read


def _nothing(self: object, *arguments: object) -> None:
    return None


_carry = Exchange._carry
PIECES = {
    "a third rank acts": (crossing, "carried", _third_rank_acts),
    "home and owner name another peer": (crossing, "carried", _another_peer),
    "nothing is carried": (crossing, "carried", _nothing_is_carried),
    "pages land in another order": (Exchange, "_carry", _places_backwards),
    "pooled keys are not copied": (PoolTensors, "copy_keys", _nothing),
}


@pytest.mark.parametrize("piece", PIECES)
def test_each_piece_counts(make: Make, piece: str) -> None:
    ranks = make(3, 0)
    fresh = ranks.fresh(1)
    ranks.keep(0)
    target, name, replacement = PIECES[piece]
    with mock.patch.object(target, name, replacement):
        try:
            found = ranks.carried(1)
        except (Mismatch, RuntimeError):  # no transport, or no memory, for what it does
            return
    assert not found.equals(fresh)


def test_rows_from_the_disk_are_brought(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exchange, "bring", _not_brought)
    with pytest.raises(AssertionError):
        test_from_the_disk_to_any_owner(make, 3, 0, 0)
