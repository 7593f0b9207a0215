"""A checkpoint with a hole, a setting that cannot be had: one line, no open port (CO-36)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from streamglm import nano
from support.server import refused, serving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the built-in checkpoint, to be spoilt."""
    return Path(shutil.copytree(nano.folder(), tmp_path / "copy"))


def cut(folder: Path) -> str:
    path = folder / "model.safetensors"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1000)
    return "model.safetensors"


def without_a_tensor(folder: Path) -> str:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = "model.language_model.layers.2.self_attn.o_proj.weight"
    del tensors[name]
    save_file(tensors, path)
    return name


def misshapen(folder: Path) -> str:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = "model.language_model.norm.weight"
    tensors[name] = tensors[name][:-1].clone()
    save_file(tensors, path)
    return name


def missing_shard(folder: Path) -> str:
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    files = {name: f"model-0000{1 + (i % 2)}-of-00002.safetensors" for i, name in enumerate(names)}
    for shard in set(files.values()):
        save_file({n: tensors[n] for n in names if files[n] == shard}, folder / shard)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    (folder / "model-00002-of-00002.safetensors").unlink()
    return "model-00002-of-00002.safetensors"


def half_of_the_mtp_layer(folder: Path) -> str:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = next(n for n in tensors if n.endswith("layers.8.eh_proj.weight"))
    del tensors[name]
    save_file(tensors, path)
    return name


def vocabulary_one_lower(folder: Path) -> str:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    text = config.get("text_config", config)
    size = text["vocab_size"]
    text["vocab_size"] = size - 1
    path.write_text(json.dumps(config))
    return str(size - 1)


SPOILS: list[Callable[[Path], str]] = [
    cut,
    without_a_tensor,
    misshapen,
    missing_shard,
    half_of_the_mtp_layer,
    vocabulary_one_lower,
]


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_a_checkpoint_with_a_hole_is_refused_in_one_line_that_names_it(
    folder: Path, spoil: Callable[[Path], str]
) -> None:
    named = spoil(folder)
    ended = refused(folder)
    assert ended.returncode == 1
    assert "listening" not in ended.stdout
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1, ended.stderr
    assert named in lines[0]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--context", "99999999"], ["--context 99999999"[:9], "32768"]),
        (
            ["--pool-tokens", "99999999999"],
            ["--pool-tokens", "PoolTooLarge", "Start with `--pool-tokens "],
        ),
        (["--parallel", "65"], ["--parallel", "65", "1 to 64"]),
        (["--decode-share", "2"], ["--decode-share", "0 to 0.95"]),
    ],
    ids=["context", "pool-tokens", "parallel", "decode-share"],
)
def test_a_setting_that_cannot_be_had_is_refused_with_its_remedy(
    flags: list[str], words: list[str]
) -> None:
    ended = refused("nano", *flags)
    assert ended.returncode == 1
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1, ended.stderr
    assert all(word in lines[0] for word in words), lines[0]


def test_a_port_in_use_is_refused_before_anything_loads() -> None:
    with serving("nano") as server:
        port = server.url.rpartition(":")[2]
        ended = refused("nano", "--port", port)
    assert ended.returncode == 1
    assert port in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_a_checkpoint_without_its_mtp_layer_is_served_and_says_so(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = {n: t for n, t in load_file(path).items() if ".layers.8." not in n}
    save_file(tensors, path)
    with serving(folder) as server:
        assert server.complete([1, 2, 3], max_tokens=2)["usage"]["completion_tokens"] >= 1
        assert any("no next-token layer" in line for line in server.lines)
