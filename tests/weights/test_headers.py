"""Weight files that are missing, cut or damaged are refused by name, before data is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from streamglm.errors import CheckpointError
from streamglm.weights.fit import check_files
from streamglm.weights.headers import INDEX, SINGLE, catalogue, read_header
from support.checkpoints import random_tensors, spec_of, tiny_config, write

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    config = tiny_config()
    return write(tmp_path / "sharded", config, random_tensors(spec_of(config)), shards=3)


def refusal(folder: Path) -> str:
    """The one line with which the folder is refused."""
    with pytest.raises(CheckpointError) as caught:
        check_files(folder)
    assert "\n" not in caught.value.message
    assert str(folder) not in caught.value.message
    return caught.value.message


def edit_index(folder: Path) -> dict[str, str]:
    listed: dict[str, str] = json.loads((folder / INDEX).read_text())["weight_map"]
    return listed


def put_index(folder: Path, listed: dict[str, str]) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": listed}))


def test_a_whole_checkpoint_passes(sharded: Path) -> None:
    assert check_files(sharded).mtp


def test_a_folder_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    assert refusal(tmp_path) == f"the folder holds neither {SINGLE} nor {INDEX}"


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / SHARD).unlink()
    assert refusal(sharded) == f"{SHARD}: the shard is named in {INDEX} and is not there"


def test_a_shard_cut_by_a_kilobyte_is_named_with_both_sizes(sharded: Path) -> None:
    whole = (sharded / SHARD).read_bytes()
    (sharded / SHARD).write_bytes(whole[:-1024])
    assert refusal(sharded) == (
        f"{SHARD}: the file has {len(whole) - 1024} bytes, and its header says {len(whole)}"
    )


@pytest.mark.parametrize("kept", [0, 7, 8, 100])
def test_a_shard_cut_inside_its_header_is_named(sharded: Path, kept: int) -> None:
    (sharded / SHARD).write_bytes((sharded / SHARD).read_bytes()[:kept])
    assert refusal(sharded).startswith(f"{SHARD}: not a safetensors file, or cut inside")


def test_a_shard_with_bytes_behind_its_end_is_named(sharded: Path) -> None:
    size = (sharded / SHARD).stat().st_size
    with (sharded / SHARD).open("ab") as file:
        file.write(b"x")
    assert refusal(sharded) == (
        f"{SHARD}: the file has {size + 1} bytes, and its header says {size}"
    )


def test_a_tensor_gone_from_its_shard_but_not_from_the_index(sharded: Path) -> None:
    tensors = load_file(sharded / SHARD)
    name = next(iter(tensors))
    del tensors[name]
    save_file(tensors, sharded / SHARD)
    assert refusal(sharded) == f"{name}: {INDEX} says it is in {SHARD}, and it is not"


def test_a_tensor_gone_from_the_index_but_not_from_its_shard(sharded: Path) -> None:
    listed = edit_index(sharded)
    name = next(n for n, file in listed.items() if file == SHARD)
    del listed[name]
    put_index(sharded, listed)
    assert refusal(sharded) == f"{name}: it is in {SHARD} and not in {INDEX}"


def test_an_index_that_names_the_wrong_shard(sharded: Path) -> None:
    listed = edit_index(sharded)
    name = next(n for n, file in listed.items() if file == SHARD)
    listed[name] = "model-00001-of-00003.safetensors"
    put_index(sharded, listed)
    assert refusal(sharded) == (
        f"{name}: {INDEX} says it is in model-00001-of-00003.safetensors, and it is in {SHARD}"
    )


def test_a_tensor_in_two_shards_is_named_with_both(sharded: Path) -> None:
    first, second = "model-00001-of-00003.safetensors", SHARD
    tensors = load_file(sharded / second)
    name, tensor = next(iter(load_file(sharded / first).items()))
    save_file(tensors | {name: tensor}, sharded / second)
    assert refusal(sharded) == f"{name}: the tensor is in {first} and {second}"


@pytest.mark.parametrize("place", ["../other.safetensors", "/etc/passwd", 3])
def test_an_index_cannot_lead_out_of_the_folder(sharded: Path, place: str | int) -> None:
    (sharded / INDEX).write_text(json.dumps({"weight_map": {"x": place}}))
    assert refusal(sharded) == f"{INDEX}: x names {place!r}, not a file of the folder"


def _file(path: Path, header: bytes, data: bytes = b"") -> Path:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"{]", "its header is not JSON"),
        (b"[]", "its header is not an object"),
        (b'{"a": 3}', "a: its entry in x.safetensors is damaged"),
        (
            b'{"a": {"dtype": "F12", "shape": [1], "data_offsets": [0, 4]}}',
            "a: F12 in x.safetensors is not a known number format",
        ),
        (
            b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
            "a: x.safetensors gives it 4 bytes, and [2] of F32 takes 8",
        ),
        (
            b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
            "a: its bytes in x.safetensors start at",
        ),
        (
            b'{"a": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}, "a": 3}',
            "a: the tensor is twice in x.safetensors",
        ),
    ],
    ids=["json", "list", "entry", "format", "length", "gap", "twice"],
)
def test_a_damaged_header_is_named(tmp_path: Path, header: bytes, said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_header(_file(tmp_path / "x.safetensors", header, b"\0" * 4))
    assert said in caught.value.message


def test_tensors_come_in_the_order_in_which_they_lie(tmp_path: Path) -> None:
    names = {name: torch.zeros(size) for name, size in (("b", 3), ("c", 1), ("a", 2))}
    save_file(names, tmp_path / SINGLE)
    starts = [stored.start for stored in catalogue(tmp_path).tensors.values()]
    assert starts == sorted(starts)
