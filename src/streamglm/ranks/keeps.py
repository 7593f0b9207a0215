"""A rank's own account of kept states: where each lies, at which mark, and which pages it shares.

Owns the states that a rank was told of, and what moves, restores and saves must fit. Knows no
lanes and no tensors. Everything here raises `StepRefused` and changes nothing; `mirror.py` follows
a step once all of it was checked. A step that passes means the same to server and rank:

    moves      of states that are here, as they are here
    restores   from a state that is here, at its mark, with its own pages in front
    saves      of a new state, into a slot that nothing is in
    writes     of a state that is here, and of its own pages
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamglm.errors import StepRefused
from streamglm.pool.pages import state_digest
from streamglm.step import Arrive, Begin, Demote, Move, Restore, Save, Write

_DEVICE, _HOST = -1, -2


@dataclass(frozen=True, slots=True)
class Kept:
    """One state: in a slot with pages that it shares, or in a buffer below 0 with none."""

    number: int
    place: int
    at: int
    pages: tuple[int, ...]

    @property
    def slot(self) -> int:
        return max(self.place, _DEVICE)

    @property
    def digest(self) -> int:
        return state_digest(self.number, self.place, self.at, self.pages)


States = Mapping[int, Kept]


def after_moves(states: States, moves: tuple[Move, ...]) -> States:
    """The states once `moves` are done, in their order."""
    if not moves:
        return states
    left = dict(states)
    for move in moves:
        kept = left.pop(move.state, None)
        if kept is None:
            raise StepRefused(f"state {move.state} is moved, but it is not kept here")
        if isinstance(move, Demote):
            _check_demote(move, kept)
            left[move.state] = Kept(move.state, _HOST, kept.at, ())
    return left


def check_restore(states: States, begin: Begin, restore: Restore, page_rows: int) -> int:
    """The pages of `begin` that it shares, its first; 0 where rows are copied."""
    name = f"lane {begin.lane} restores state {restore.state}"
    kept = states.get(restore.state)
    if kept is None:
        raise StepRefused(f"{name}, but it is not kept here")
    if (restore.slot, restore.at) != (kept.slot, kept.at):
        raise StepRefused(
            f"{name} of slot {restore.slot} at {restore.at}, but it is in {kept.slot} at {kept.at}"
        )
    if begin.pages[: len(kept.pages)] != kept.pages:
        raise StepRefused(f"{name}, but its first pages are not the state's")
    if len(begin.pages) * page_rows <= kept.at:
        raise StepRefused(f"{name} at {kept.at}, past its {len(begin.pages)} pages")
    return len(kept.pages)


def check_arrive(begin: Begin, arrive: Arrive, page_rows: int) -> None:
    """A lane that waits for the disk waits for a mark inside its pages."""
    name = f"lane {begin.lane} waits for the disk up to {arrive.at}"
    if arrive.at < 1 or arrive.at % page_rows:
        raise StepRefused(f"{name}, not a whole number of pages of {page_rows}")
    if len(begin.pages) * page_rows <= arrive.at:
        raise StepRefused(f"{name}, past its {len(begin.pages)} pages")


def check_writes(states: States, writes: tuple[Write, ...]) -> None:
    """Each write copies of a state that is here what it has here."""
    for write in writes:
        name = f"state {write.state} is written"
        kept = states.get(write.state)
        if kept is None:
            raise StepRefused(f"{name}, but it is not kept here")
        if write.slot != kept.slot:
            raise StepRefused(f"{name} from slot {write.slot}, but it is in {kept.slot}")
        for record in write.records:
            if kept.slot >= 0 and record.page >= 0 and record.page not in kept.pages:
                raise StepRefused(f"{name} with page {record.page}, which it does not share")


def check_saves(states: States, saves: tuple[Save, ...], slots: int) -> None:
    """Each save fills a new state, and a slot that is in range and empty."""
    known = set(states)
    filled = {kept.place for kept in states.values() if kept.place >= 0}
    for save in saves:
        name = f"lane {save.lane} is kept as state {save.state}"
        if save.state in known:
            raise StepRefused(f"{name}, which is kept already")
        known.add(save.state)
        if save.slot in filled:
            raise StepRefused(f"{name} in slot {save.slot}, which is full")
        if not _DEVICE <= save.slot < slots or (save.host and save.slot >= 0):
            raise StepRefused(f"{name} in slot {save.slot}; this rank has {slots} slots")
        if save.slot >= 0:
            filled.add(save.slot)


def saved(save: Save, pages: tuple[int, ...], page_rows: int) -> Kept:
    """What `save` makes of a lane with `pages`."""
    if save.slot >= 0:
        return Kept(save.state, save.slot, save.at, pages[: save.at // page_rows])
    return Kept(save.state, _HOST if save.host else _DEVICE, save.at, ())


def given_up(before: States, after: States) -> Iterable[int]:
    """Page ids that states of `before` share and in `after` do not, once for each state."""
    for number, kept in before.items():
        if after.get(number) != kept:
            yield from kept.pages


def _check_demote(move: Demote, kept: Kept) -> None:
    if kept.place == _HOST:
        raise StepRefused(f"state {move.state} is demoted, but it is in host memory")
    if (move.slot, move.at, move.pages) != (kept.slot, kept.at, kept.pages):
        raise StepRefused(
            f"state {move.state} is demoted from slot {move.slot} at {move.at} with pages "
            f"{move.pages[:8]}, but it is in {kept.slot} at {kept.at} with {kept.pages[:8]}"
        )
