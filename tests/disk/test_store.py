"""A folder of records: opened, repaired, rebuilt, locked, and kept to itself."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streamglm.disk.lock import Lock
from streamglm.disk.store import Store
from streamglm.disk.verify import verify
from streamglm.errors import DiskError, FolderForeign, FolderInUse
from support.records import Desk, records, tokens

ONE, TWO = tokens(80, 1), tokens(80, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two states of one conversation and one of another."""
    desk = Desk(tmp_path / "d")
    assert [desk.learn(ONE, 3), desk.learn(ONE, 6), desk.learn(TWO, 4)] == [4, 4, 5]
    desk.store.close()
    return tmp_path / "d"


def test_a_restart_finds_what_was_learned(folder: Path) -> None:
    desk = Desk(folder)
    assert (desk.found(ONE), desk.found(TWO)) == (6, 4)
    opened = desk.opened
    assert (opened.damaged, opened.leftovers, opened.rebuilt) == ([], 0, False)
    desk.index.check()
    desk.store.close()


def test_files_are_their_owners_alone(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path.name


def test_leftovers_are_removed_and_counted(folder: Path) -> None:
    temporary = folder / "tmp-dead"
    temporary.mkdir()
    (temporary / "7.0").write_bytes(b"half")
    (temporary / "8.0").write_bytes(b"")
    stray = records(folder)[0]
    (stray.parent / ("ab" * 16 + ".page.0-1")).write_bytes(b"whose?")
    (stray.parent / "note.txt").write_bytes(b"?")
    desk = Desk(folder)
    assert desk.opened.leftovers == 4
    assert not temporary.exists()
    assert (desk.found(ONE), desk.found(TWO)) == (6, 4)
    desk.store.close()


def _to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "x").touch()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "empty": lambda path: os.truncate(path, 0),
    "gone": Path.unlink,
    "folder": lambda path: _to_folder(path),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_record_that_is_not_whole_is_dropped_at_the_start(folder: Path, kind: str) -> None:
    for count, name in enumerate([path.name for path in records(folder)]):
        copy = folder.parent / f"{kind}{count}"
        shutil.copytree(folder, copy)
        (path,) = [path for path in records(copy) if path.name == name]
        DAMAGE[kind](path)
        desk = Desk(copy)
        assert len(desk.opened.damaged) == 1
        assert desk.opened.damaged[0].startswith(name[:12])
        desk.index.check()
        for prompt, depth in ((ONE, 3), (ONE, 6), (TWO, 4)):
            desk.learn(prompt, depth)
        assert (desk.found(ONE), desk.found(TWO)) == (6, 4), "saved anew"
        assert not verify(desk.store, desk.index).damaged
        desk.store.close()


@pytest.mark.parametrize("what", ["gone", "garbage", "cut"])
def test_a_lost_index_is_made_again_from_headers(folder: Path, what: str) -> None:
    index = folder / "index.sqlite"
    for path in folder.glob("index.sqlite?*"):
        path.unlink()
    if what == "gone":
        index.unlink()
    elif what == "garbage":
        index.write_bytes(os.urandom(20_000))
    else:
        os.truncate(index, 5000)
    desk = Desk(folder)
    assert desk.opened.rebuilt
    assert (desk.found(ONE), desk.found(TWO)) == (6, 4)
    depths = sorted([one.depth for one in talk.states] for talk in desk.index.conversations())
    assert depths == [[3, 6], [4]]
    desk.index.check()
    desk.store.close()


def test_a_rebuild_leaves_out_what_has_no_right_header(folder: Path) -> None:
    (folder / "index.sqlite").unlink()
    path = records(folder)[0]
    path.write_bytes(b"x" + path.read_bytes()[1:])
    desk = Desk(folder)
    assert not path.exists()
    assert desk.opened.leftovers == 1
    desk.index.check()
    desk.store.close()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not lose me")
    with pytest.raises(FolderForeign, match="1 files"):
        Store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_second_writer_is_refused_with_the_firsts_pid(folder: Path) -> None:
    code = "from streamglm.disk.lock import Lock\nfrom pathlib import Path\nimport time\n"
    code += f"lock = Lock(Path({str(folder)!r}))\nprint('held', flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FolderInUse, match=f"process {holder.pid};"):
            Store(folder)
        reading = Store(folder, write=False)
        assert len(reading.rows()[1]) == 3, "reading needs no lock"
        reading.close()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    Lock(folder).release()


def test_a_number_that_a_dead_server_left_blocks_nobody(folder: Path) -> None:
    (folder / "lock").write_text("1\n")
    desk = Desk(folder)
    assert (folder / "lock").read_text() == f"{os.getpid()}\n"
    desk.store.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="file"):
        Store(tmp_path / "file" / "d")


def test_removed_states_leave_no_file_and_no_folder(folder: Path) -> None:
    desk = Desk(folder)
    for stored in list(desk.index.states()):
        desk.store.remove(desk.index.remove(stored))
    assert not records(folder)
    assert [path for path in folder.iterdir() if path.is_dir()] == [desk.store.temporary]
    desk.store.close()
