"""`streamglm conversations` over a folder that nobody writes to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamglm.cli import main
from support.records import PAGE, Desk, records, tokens

ONE, TWO = tokens(80, 1), tokens(80, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two conversations, one of two turns."""
    desk = Desk(tmp_path / "d")
    for prompt, depth in ((ONE, 3), (ONE, 6), (TWO, 4)):
        desk.learn(prompt, depth, now=float(depth))
    desk.store.close()
    return tmp_path / "d"


def run(folder: Path, *arguments: str) -> int:
    return main(["conversations", "--learn-conversations", str(folder), *arguments])


def listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert run(folder, "ls", "--json") == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_conversations_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(folder, capsys)
    assert [(one["tokens"], one["pages"]) for one in found] == [(6 * PAGE, 6), (4 * PAGE, 4)]
    assert run(folder, "ls") == 0
    shown = capsys.readouterr().out
    assert all(str(one["id"]) in shown for one in found)
    assert "2 conversations" in shown


def test_one_is_shown_and_exported_by_the_beginning_of_its_id(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(listed(folder, capsys)[0]["id"])
    assert run(folder, "show", name[:7]) == 0
    assert f"tokens_on_disk: {6 * PAGE}" in capsys.readouterr().out
    assert run(folder, "export", name) == 0
    exported = json.loads(capsys.readouterr().out)
    assert exported["token_ids"] == list(ONE[: 6 * PAGE])
    assert exported["text"] is None
    assert run(folder, "export", name, "--model", "nano") == 0
    assert json.loads(capsys.readouterr().out)["text"]


def test_removal_takes_the_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = str(listed(folder, capsys)[0]["id"])
    assert run(folder, "rm", name) == 0
    assert "removed" in capsys.readouterr().out
    assert len(records(folder)) == 5
    assert run(folder, "rm", "--all") == 0
    assert not records(folder)


def test_verify_finds_and_repairs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "verify") == 0
    assert "13 records" in capsys.readouterr().out
    path = records(folder)[3]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert run(folder, "verify", "--json") == 1
    (damage,) = json.loads(capsys.readouterr().out)["damaged"]
    assert path.name.startswith(damage["key"])
    assert run(folder, "verify", "--repair") == 0
    assert not path.exists()
    assert run(folder, "verify") == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "zz"), "0 conversations have an id that begins with 'zz'"),
        (("show", ""), "2 conversations"),
        (("rm",), "name conversations, or --all"),
    ],
)
def test_what_cannot_be_done_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run(folder, *arguments) == 1
    assert said in capsys.readouterr().err


def test_a_folder_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "none", "ls") == 1
    assert "no such folder" in capsys.readouterr().err
    assert run(tmp_path, "ls") == 1
    assert "no conversations were learned there" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
