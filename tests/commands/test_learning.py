"""Whose states a folder holds: whatever could change a bit of a state is another identity."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from streamglm import nano
from streamglm.commands.learning import identity_of
from streamglm.model.spec import ModelSpec
from streamglm.pool.identity import Identity
from streamglm.pool.layout import RowFormat
from streamglm.ranks.wire import Report, SpecNumbers

REPORT = Report(
    weight_bytes=1,
    pool_bytes=1,
    lane_bytes=1,
    slot_bytes=0,
    mtp=False,
    skipped_vision=0,
    exact_tiles=True,
    fingerprint="f",
    spec=SpecNumbers(64, 256, 64, 32, 512, 8),
    layout="1/4 | 2/4",
    numerics="torch 1, threads 1",
)
SPEC = ModelSpec.from_folder(nano.folder())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that turn messages into tokens."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(nano.folder() / name, tmp_path / name)
    return tmp_path


def of(
    folder: Path, report: Report = REPORT, *, world: int = 1, spec: ModelSpec = SPEC
) -> Identity:
    return identity_of(spec, folder, RowFormat.FP32, [report] * world)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("tokenizer.json", "tokenizer"),
        ("tokenizer_config.json", "tokenizer"),
        ("chat_template.jinja", "chat template"),
    ],
)
def test_a_changed_file_is_another_identity_and_is_named(
    folder: Path, name: str, part: str
) -> None:
    before = of(folder)
    with (folder / name).open("a") as file:
        file.write(" ")
    after = of(folder)
    assert before.key() != after.key()
    names = before.named()
    assert [one for one in names if names[one] != after.named()[one]] == [part]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"fingerprint": "g"}, "weights"),
        ({"layout": "1/4 | 3/4"}, "layout"),
        ({"numerics": "torch 1, threads 2"}, "numerics"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_rank_reports_counts(folder: Path, change: dict[str, str], part: str) -> None:
    before, after = of(folder), of(folder, msgspec.structs.replace(REPORT, **change))
    assert before.key() != after.key()
    names = before.named()
    assert [one for one in names if names[one] != after.named()[one]] == [part]


def test_world_and_spec_count_and_times_do_not(folder: Path) -> None:
    before = of(folder)
    assert of(folder, world=2).key() != before.key()
    assert of(folder, spec=replace(SPEC, rms_norm_eps=SPEC.rms_norm_eps * 2)).key() != before.key()
    for path in folder.iterdir():
        shutil.copyfile(path, folder / "copy")
        path.unlink()
        (folder / "copy").rename(path)
    assert of(folder).key() == before.key()
