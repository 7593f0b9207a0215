"""Where a lease goes: into which class of pages, and what it shares with the state it resumes from.

Owns the choice, and the carry that follows from it. Knows the book and the kept states; no queue
and no ranks. A lease lies in one class, whose rank owns the lane. In this order:

    home       the state's class, if it has the pages now: its pages are shared, nothing moves
    roomiest   the class with the most free pages, ties to the lower: what is kept is carried there
    home       once other kept states have made room in it
    roomiest   once kept states have made room in one class

With one class the second and fourth never help where the first and third do not. A resume off its
home leases every page anew, of its owner's class, since no page of another class could hold its
rows; the state's own pages stay as they are, and its borrow keeps them until the rows were carried.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamglm.pool.kept import KeptStates
from streamglm.pool.owners import owner_of
from streamglm.pool.pages import PageBook
from streamglm.step import Carry, Restore


@dataclass(frozen=True, slots=True)
class Placed:
    """A class with room: `count` pages of it are taken behind those that are `shared`."""

    home: int
    count: int
    shared: tuple[int, ...] = ()


def place(book: PageBook, kept: KeptStates, need: int, state: int | None) -> Placed | None:
    """Where a lease of `need` pages goes, which resumes from `state`; kept states have gone for it
    where they had to. None, with nothing evicted, when it must wait. `state` must be borrowed."""
    near: int | None = None
    shared: tuple[int, ...] = ()
    if state is not None:
        near, shared = kept.home(state), kept.shared_pages(state)
    count = need - len(shared)
    if near is not None and book.free_in(near) >= count:
        return Placed(near, count, shared)
    home = book.roomiest()
    if book.free_in(home) >= need:
        return Placed(home, need)
    if near is not None and kept.make_room(count, near):
        return Placed(near, count, shared)
    if (near is None or book.classes > 1) and kept.make_room(need, None):
        return Placed(book.roomiest(), need)
    return None


def carry_of(
    kept: KeptStates,
    restore: Restore,
    lane: int,
    pages: tuple[int, ...],
    page_rows: int,
    world: int,
) -> Carry | None:
    """What must be carried so that `lane` goes on in `pages` as `restore` says; None at home."""
    home, owner = kept.home(restore.state), owner_of(pages, world)
    if home == owner:
        return None
    return Carry(
        state=restore.state,
        lane=lane,
        home=home,
        owner=owner,
        at=restore.at,
        sources=kept.shared_pages(restore.state),
        pages=pages[: restore.at // page_rows],
    )
