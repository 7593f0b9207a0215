"""Stopped after each system call of a write, a removal and an opening, and before each of them; and
each of them failing. Whatever is left opens, holds what was published, and nothing half.

The test fails for any order that is not files, then names, then rows: a publish that commits
before it renames leaves rows without files.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamglm.disk.store import Store
from streamglm.disk.system import System
from streamglm.disk.verify import verify
from support.records import Desk, records, tokens

ONE, TWO = tokens(32, 1), tokens(8, 1) + tokens(24, 2)
CALLS = (
    "make_folder",
    "create",
    "write",
    "sync",
    "close",
    "rename",
    "sync_folder",
    "remove",
    "remove_folder",
    "commit",
)


class Killed(BaseException):
    """The process is gone."""


class Fragile(System):
    """Dies at call number `at`: before it, or after it; or fails there with an `OSError`. A write
    dies half done."""

    def __init__(self, at: int, how: str) -> None:
        self.at = at
        self.how = how
        self.calls = 0

    def hit(self, real: Callable[..., Any], *args: Any) -> Any:
        self.calls += 1
        if self.calls != self.at:
            return real(*args)
        if self.how == "fails":
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.how == "after":
            real(*args)
        elif real.__name__ == "write":
            file, data = args
            real(file, data[: len(data) // 2])
        raise Killed


def _wrapped(name: str) -> Callable[..., Any]:
    real = getattr(System, name)

    def call(self: Fragile, *args: Any) -> Any:
        return self.hit(real.__get__(self), *args)

    return call


for _name in CALLS:
    setattr(Fragile, _name, _wrapped(_name))


def life(folder: Path, system: System) -> Desk:
    """Open, learn two prompts with a common beginning, forget the first one's long state."""
    desk = Desk(folder, system)
    desk.learn(ONE, 2)
    desk.learn(TWO, 3)
    desk.forget(ONE, 2)
    desk.learn(ONE, 3)
    return desk


def calls_of_a_life(folder: Path) -> int:
    system = Fragile(0, "never")
    desk = life(folder, system)
    calls = system.calls
    desk.store.close()
    return calls


def whole(folder: Path, prompts: tuple[array[int], ...] = (ONE, TWO)) -> None:
    """The folder opens, every record of it is whole, and it goes on."""
    desk = Desk(folder)
    assert not desk.opened.damaged, "a row without its files"
    desk.index.check()
    verdict = verify(desk.store, desk.index)
    assert not verdict.damaged
    kept = records(folder)
    assert len(kept) == verdict.records, "a file without a row"
    for prompt in prompts:
        desk.found(prompt)
        desk.learn(prompt, 4)
        assert desk.found(prompt) == 4
    assert not verify(desk.store, desk.index).damaged
    desk.store.close()


@pytest.mark.parametrize("how", ["before", "after"])
def test_killed_at_any_system_call_the_folder_is_whole(tmp_path: Path, how: str) -> None:
    total = calls_of_a_life(tmp_path / "count")
    assert total > 60
    for at in range(1, total + 1):
        folder = tmp_path / f"{how}{at}"
        try:
            life(folder, Fragile(at, how))
        except Killed as dead:
            _bury(dead)
        else:
            raise AssertionError(f"call {at} of {total} was not reached")
        whole(folder)


def _bury(dead: BaseException) -> None:
    """Close what the kernel would: the locks and indexes of the frames that the exception holds."""
    trace = dead.__traceback__
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            store = getattr(value, "store", None) if isinstance(value, Desk) else value
            if isinstance(store, Store):
                store._index.close()
                if store._lock is not None:
                    store._lock.release()
        trace = trace.tb_next


def test_killed_while_it_is_repaired_the_folder_is_whole(tmp_path: Path) -> None:
    for at in range(1, 12):
        folder = tmp_path / str(at)
        desk = life(folder, System())
        (desk.store.temporary / "99.0").write_bytes(b"half")
        desk.die()
        next(folder.rglob("*.page.*")).unlink()
        try:
            Desk(folder, Fragile(at, "before")).store.close()
        except Killed as dead:
            _bury(dead)
        desk = Desk(folder)
        desk.index.check()
        assert not verify(desk.store, desk.index).damaged
        desk.store.close()


def test_a_call_that_fails_leaves_nothing_of_its_write(tmp_path: Path) -> None:
    """ENOSPC at any call of a publish: none of its records is in place, and none is on its way."""
    system = Fragile(0, "fails")
    desk = Desk(tmp_path / "count", system)
    opening = system.calls
    desk.learn(ONE, 2)
    total = system.calls
    desk.store.close()
    for at in range(opening + 1, total + 1):
        folder = tmp_path / str(at)
        desk = Desk(folder, Fragile(at, "fails"))
        with pytest.raises(OSError, match="No space"):
            desk.learn(ONE, 2)
        assert not records(folder)
        desk.die()
        whole(folder)
