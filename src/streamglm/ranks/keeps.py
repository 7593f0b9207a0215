"""A rank's own account of kept states: where each lies, at which mark, and which pages it shares.

Owns the states that a rank was told of, and what moves, restores and saves must fit. Knows no
lanes and no tensors. Everything here raises `BadStep` or `ResidueMismatch` and changes nothing;
`mirror.py` follows a step once all of it was checked. A step that passes means the same to server
and rank:

    moves      of states that are here, as they are here
    restores   from a state that is here, at its mark, with its own pages in front where they are
               of the lane's class
    carries    of what is restored in another class than it is kept in, and of nothing else
    saves      of a new state, into a slot that nothing is in
    writes     of a state that is here, and of its own pages
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from streamglm.errors import BadStep, ResidueMismatch
from streamglm.pool.owners import owner_of
from streamglm.pool.pages import state_digest
from streamglm.step import Arrive, Begin, Carry, Demote, Move, Restore, Save, Step, Write

_DEVICE, _HOST = -1, -2


@dataclass(frozen=True, slots=True)
class Kept:
    """One state: in a slot with pages that it shares, or in a buffer below 0 with none."""

    number: int
    place: int
    at: int
    pages: tuple[int, ...]
    home: int = 0
    """The class of the lane that it was kept from."""

    @property
    def slot(self) -> int:
        return max(self.place, _DEVICE)

    @property
    def digest(self) -> int:
        return state_digest(self.number, self.place, self.at, self.pages, self.home)


States = Mapping[int, Kept]


def after_moves(states: States, moves: tuple[Move, ...]) -> States:
    """The states once `moves` are done, in their order."""
    if not moves:
        return states
    left = dict(states)
    for move in moves:
        kept = left.pop(move.state, None)
        if kept is None:
            raise BadStep(f"state {move.state} is moved, but it is not kept here")
        if isinstance(move, Demote):
            _check_demote(move, kept)
            left[move.state] = Kept(move.state, _HOST, kept.at, (), kept.home)
    return left


def check_restore(
    states: States, begin: Begin, restore: Restore, page_rows: int, owner: int
) -> int:
    """The pages of `begin` that it shares, its first; 0 where rows are copied or carried."""
    name = f"lane {begin.lane} restores state {restore.state}"
    kept = states.get(restore.state)
    if kept is None:
        raise BadStep(f"{name}, but it is not kept here")
    if (restore.slot, restore.at) != (kept.slot, kept.at):
        raise BadStep(
            f"{name} of slot {restore.slot} at {restore.at}, but it is in {kept.slot} at {kept.at}"
        )
    shared = kept.pages if kept.home == owner else ()
    if begin.pages[: len(shared)] != shared:
        raise BadStep(f"{name}, but its first pages are not the state's")
    if len(begin.pages) * page_rows <= kept.at:
        raise BadStep(f"{name} at {kept.at}, past its {len(begin.pages)} pages")
    return len(shared)


def check_carries(states: States, step: Step, page_rows: int, classes: int) -> None:
    """Each restore off its state's home has its carry, exactly as both sides see it, and nothing
    else has one. The begins are checked."""
    wanted = dict(_carries(states, step.begins, page_rows, classes))
    for carry in step.carries:
        name = f"state {carry.state} is carried for lane {carry.lane}"
        own = wanted.pop(carry.lane, None)
        if own is None:
            raise BadStep(f"{name}, which does not restore it off its home")
        if (carry.home, carry.owner) != (own.home, own.owner):
            raise ResidueMismatch(
                f"{name} from rank {carry.home} to {carry.owner}, but its home is {own.home} and "
                f"the lane's pages are rank {own.owner}'s"
            )
        if carry != own:
            raise BadStep(
                f"{name}, {len(carry.sources)} pages to {len(carry.pages)} up to {carry.at}, but "
                f"this rank has state {own.state}, {len(own.sources)} pages to {len(own.pages)} up "
                f"to {own.at}, or they are others"
            )
    for lane, own in wanted.items():
        raise BadStep(
            f"lane {lane} restores state {own.state} of rank {own.home} in pages of rank "
            f"{own.owner}, and nothing is carried"
        )


def _carries(
    states: States, begins: tuple[Begin, ...], page_rows: int, classes: int
) -> Iterator[tuple[int, Carry]]:
    """By lane, what must be carried: this rank's own account of it."""
    for begin in begins:
        if not isinstance(begin.restore, Restore):
            continue
        kept, owner = states[begin.restore.state], owner_of(begin.pages, classes)
        if kept.home != owner:
            pages = begin.pages[: kept.at // page_rows]
            carry = Carry(kept.number, begin.lane, kept.home, owner, kept.at, kept.pages, pages)
            yield begin.lane, carry


def check_arrive(begin: Begin, arrive: Arrive, page_rows: int) -> None:
    """A lane that waits for the disk waits for a mark inside its pages."""
    name = f"lane {begin.lane} waits for the disk up to {arrive.at}"
    if arrive.at < 1 or arrive.at % page_rows:
        raise BadStep(f"{name}, not a whole number of pages of {page_rows}")
    if len(begin.pages) * page_rows <= arrive.at:
        raise BadStep(f"{name}, past its {len(begin.pages)} pages")


def check_writes(states: States, writes: tuple[Write, ...]) -> None:
    """Each write copies of a state that is here what it has here."""
    for write in writes:
        name = f"state {write.state} is written"
        kept = states.get(write.state)
        if kept is None:
            raise BadStep(f"{name}, but it is not kept here")
        if write.slot != kept.slot:
            raise BadStep(f"{name} from slot {write.slot}, but it is in {kept.slot}")
        for record in write.records:
            if kept.slot >= 0 and record.page >= 0 and record.page not in kept.pages:
                raise BadStep(f"{name} with page {record.page}, which it does not share")


def check_saves(states: States, saves: tuple[Save, ...], slots: int) -> None:
    """Each save fills a new state, and a slot that is in range and empty."""
    known = set(states)
    filled = {kept.place for kept in states.values() if kept.place >= 0}
    for save in saves:
        name = f"lane {save.lane} is kept as state {save.state}"
        if save.state in known:
            raise BadStep(f"{name}, which is kept already")
        known.add(save.state)
        if save.slot in filled:
            raise BadStep(f"{name} in slot {save.slot}, which is full")
        if not _DEVICE <= save.slot < slots or (save.host and save.slot >= 0):
            raise BadStep(f"{name} in slot {save.slot}; this rank has {slots} slots")
        if save.slot >= 0:
            filled.add(save.slot)


def saved(save: Save, pages: tuple[int, ...], page_rows: int, classes: int) -> Kept:
    """What `save` makes of a lane with `pages`."""
    home = owner_of(pages, classes)
    if save.slot >= 0:
        return Kept(save.state, save.slot, save.at, pages[: save.at // page_rows], home)
    return Kept(save.state, _HOST if save.host else _DEVICE, save.at, (), home)


def given_up(before: States, after: States) -> Iterable[int]:
    """Page ids that states of `before` share and in `after` do not, once for each state."""
    for number, kept in before.items():
        if after.get(number) != kept:
            yield from kept.pages


def _check_demote(move: Demote, kept: Kept) -> None:
    if kept.place == _HOST:
        raise BadStep(f"state {move.state} is demoted, but it is in host memory")
    if (move.slot, move.at, move.pages) != (kept.slot, kept.at, kept.pages):
        raise BadStep(
            f"state {move.state} is demoted from slot {move.slot} at {move.at} with pages "
            f"{move.pages[:8]}, but it is in {kept.slot} at {kept.at} with {kept.pages[:8]}"
        )
