"""Sampling that a request leaves out is the checkpoint's own; a value of no use ends the start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamglm import nano
from streamglm.commands.checkpoint import read_checkpoint
from streamglm.config import Settings
from streamglm.errors import CheckpointError
from streamglm.request import SamplingParams


def folder_with(path: Path, generation: dict[str, Any]) -> str:
    """The built-in checkpoint with another `generation_config.json`."""
    for file in nano.folder().iterdir():
        if file.name != "generation_config.json":
            (path / file.name).symlink_to(file)
    (path / "generation_config.json").write_text(json.dumps(generation))
    return str(path)


def test_every_default_is_read(tmp_path: Path) -> None:
    own = {"temperature": 0.5, "top_k": 7, "top_p": 0.8, "min_p": 0.02, "repetition_penalty": 1.05}
    found = read_checkpoint(Settings(model=folder_with(tmp_path, own))).defaults
    assert found == SamplingParams(0.5, 7, 0.8, 0.02, repetition_penalty=1.05)


def test_what_is_left_out_changes_nothing(tmp_path: Path) -> None:
    found = read_checkpoint(Settings(model=folder_with(tmp_path, {"top_k": None}))).defaults
    assert found == SamplingParams()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", "1"),
        ("top_k", True),
        ("top_p", 0),
        ("top_p", 1.5),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("repetition_penalty", 1000),
    ],
)
def test_a_default_that_no_draw_can_use_is_refused_at_start(
    tmp_path: Path, name: str, value: object
) -> None:
    """Not at every request: a rank refuses such a draw, and would be lost with the first."""
    with pytest.raises(CheckpointError, match=rf"generation_config\.json: {name} is .* from"):
        read_checkpoint(Settings(model=folder_with(tmp_path, {name: value})))
