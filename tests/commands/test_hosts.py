"""Which ranks a host starts, what it says of itself, and what it is refused for."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from streamglm import config, nano
from streamglm.commands import hosts, rank
from streamglm.commands.checkpoint import Checkpoint, read_checkpoint
from streamglm.commands.elsewhere import door_of
from streamglm.commands.hosts import Share, room_of, settled, share_of, threads_of
from streamglm.commands.joining import OWN, join_of, token_of
from streamglm.config import Settings
from streamglm.errors import CheckpointError, SettingError, StartError
from streamglm.ranks import gpu
from streamglm.ranks.dial import torchrun_address
from streamglm.ranks.network import interface_of, split
from streamglm.weights import packed
from streamglm.weights.packed import total_bytes

MASTER = "10.0.0.1:29500"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return read_checkpoint(Settings())


@pytest.mark.parametrize(("ranks", "nnodes"), [(2, 2), (5, 2), (7, 3), (4, 4), (8, 3)])
def test_every_rank_is_of_one_host(ranks: int, nnodes: int) -> None:
    settings = Settings(ranks=ranks, nnodes=nnodes, master=MASTER)
    shares = [share_of(replace(settings, node_rank=host)) for host in range(nnodes)]
    assert [one for share in shares for one in share.local] == list(range(ranks))
    sizes = [len(share.local) for share in shares]
    assert (sizes, sizes[0] - sizes[-1] in (0, 1)) == (sorted(sizes, reverse=True), True)
    assert [share.serves for share in shares] == [True] + [False] * (nnodes - 1)
    assert shares[0].elsewhere == frozenset(range(ranks)) - frozenset(shares[0].local)


def test_one_host_starts_all_and_with_an_address_none() -> None:
    assert share_of(Settings(ranks=3)) == Share(3, range(3), serves=True)
    assert share_of(Settings(ranks=3, master=MASTER)) == Share(3, range(0), serves=True)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"nnodes": 3, "ranks": 2, "master": MASTER}, "--nnodes is 3 and --ranks is 2"),
        (
            {"nnodes": 2, "ranks": 2, "node_rank": 2, "master": MASTER},
            "--node-rank is 2 and --nnodes is 2: hosts are 0 to 1",
        ),
        ({"nnodes": 2, "ranks": 2}, "--nnodes is 2 and --master is none"),
    ],
)
def test_hosts_that_cannot_be_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=f"^{says}"):
        share_of(Settings(**values))


def test_cores_and_memory_are_shared(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(9))
    threads = [threads_of(Settings(), 1), threads_of(Settings(), 2), threads_of(Settings(), 30)]
    assert threads == [8, 4, 1]
    assert threads_of(Settings(threads=3), 2) == 3
    monkeypatch.setattr(hosts, "available_bytes", lambda: 1 << 30)
    rooms = [room_of(checkpoint, Share(world, range(world), serves=True)) for world in (1, 2)]
    assert 2 * rooms[1] < rooms[0] < 1 << 29
    assert 2 * rooms[1] > 0.95 * rooms[0]


def test_a_setting_is_compared_unless_it_is_a_hosts_own(checkpoint: Checkpoint) -> None:
    """With a setting that is added, and not listed in `OWN`, ranks are compared by it."""
    named = {config.flag(field.name) for field in config.FIELDS if field.name not in OWN}
    assert join_of(Settings(), checkpoint, 0, 1).settings.keys() == named
    for flag in ("--context", "--drafts", "--ranks", "--kv-split", "--pool-tokens", "--device"):
        assert flag in named
    assert OWN <= config.NAMES


def test_a_token_comes_from_a_file_or_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a token of some length \nanother line\n")
    assert token_of(Settings(rank_token_file=str(file))) == b"a token of some length"
    assert token_of(Settings(rank_token="x" * 16)) == b"x" * 16
    with pytest.raises(SettingError, match=r"--rank-token-file, or set STREAMGLM_RANK_TOKEN"):
        token_of(Settings())
    with pytest.raises(SettingError, match="the secret has 15 characters, and 16 are the least"):
        token_of(Settings(rank_token="x" * 15))
    with pytest.raises(SettingError, match="cannot be read"):
        token_of(Settings(rank_token_file=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"learn_conversations": "x"}, "--learn-conversations works with ranks of one host"),
        ({"master": "0.0.0.0:29500"}, "--master is 0.0.0.0:29500: other hosts cannot reach that"),
        ({"rank_token": None}, "--master needs a secret"),
        ({"master": "192.0.2.1:29500"}, "--master 192.0.2.1:29500: .*an address of the host"),
    ],
)
def test_a_door_that_cannot_be_is_refused(
    checkpoint: Checkpoint, values: dict[str, Any], says: str
) -> None:
    settings = Settings(ranks=2, nnodes=2, master="127.0.0.1:1", rank_token="x" * 16)
    settings = replace(settings, **values)
    with (
        pytest.raises(StartError, match=says),
        door_of(settings, checkpoint, share_of(settings), 1),
    ):
        pass


def test_ranks_of_one_host_need_no_door(checkpoint: Checkpoint) -> None:
    settings = Settings(ranks=2)
    with door_of(settings, checkpoint, share_of(settings), 1) as door:
        assert door is None


TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def launched(monkeypatch: pytest.MonkeyPatch, settings: Settings, **more: str) -> Settings:
    for name, value in {**TORCHRUN, **more}.items():
        monkeypatch.setenv(name, value)
    return rank._launched(settings)


def test_a_launchers_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's own store listens at MASTER_PORT: the server is at the one after it."""
    found = launched(monkeypatch, Settings())
    assert (found.ranks, found.master) == (4, "10.0.0.1:29500")
    found = launched(monkeypatch, Settings(), TORCHELASTIC_USE_AGENT_STORE="True")
    assert found.master == "10.0.0.1:29501"
    assert launched(monkeypatch, Settings(master="a:1")).master == "a:1"
    assert (rank._number(None), rank._number("1")) == (3, 1)
    with pytest.raises(SettingError, match="--ranks is 2, and WORLD_SIZE is 4"):
        launched(monkeypatch, Settings(ranks=2))
    with pytest.raises(StartError, match="MASTER_PORT is 'x'"):
        launched(monkeypatch, Settings(), MASTER_PORT="x")


def test_a_rank_without_a_number_or_an_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    assert torchrun_address() is None
    with pytest.raises(SettingError, match="--rank is none"):
        rank._number(None)
    with pytest.raises(SettingError, match="--rank is 'one'"):
        rank._number("one")
    parser = argparse.ArgumentParser()
    rank.add_arguments(parser)
    with pytest.raises(SettingError, match="--master is none"):
        rank.run(parser.parse_args(["nano", "--rank", "1"]))


@pytest.mark.parametrize(
    ("number", "variables", "says"),
    [
        ("-1", {}, "--rank is '-1'; it may be 0 to --ranks less one"),
        ("4294967296", {}, "--rank is '4294967296'; it may be 0 to --ranks less one"),
        ("1", {"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'; it may be 1 or more"),
        ("1", {"WORLD_SIZE": "-2"}, "WORLD_SIZE is '-2'; it may be 1 or more"),
        ("1", {"LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE is '0'; it may be 1 or more"),
    ],
)
def test_a_rank_that_cannot_be_does_not_dial(
    monkeypatch: pytest.MonkeyPatch, number: str, variables: dict[str, str], says: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    parser = argparse.ArgumentParser()
    rank.add_arguments(parser)
    with pytest.raises(SettingError, match=says):
        rank.run(parser.parse_args(["nano", "--ranks", "2", "--master", MASTER, "--rank", number]))


def test_addresses_and_their_interfaces() -> None:
    assert split("10.0.0.1:29500") == ("10.0.0.1", 29500)
    assert split("[::1]:8080") == ("::1", 8080)
    assert (interface_of("127.0.0.1"), interface_of("127.9.9.9")) == ("lo", "lo")
    assert interface_of("192.0.2.77") is None


def test_a_system_that_hides_its_interfaces_is_told_what_to_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under systemd with fewer address families, of which the unit has what it takes."""

    def hidden() -> list[tuple[int, str]]:
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr(socket, "if_nameindex", hidden)
    with pytest.raises(StartError, match=r"AF_NETLINK belongs into RestrictAddressFamilies="):
        interface_of("127.0.0.1")
    unit = Path(__file__).parents[2] / "docs/deploy/streamglm.service"
    allowed = [line for line in unit.read_text().splitlines() if line.startswith("RestrictA")]
    assert "AF_NETLINK" in allowed[0].split()


def test_the_device_is_a_gpu_where_each_rank_finds_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = (gpu.Memory(free=60 << 30, total=64 << 30),)
    monkeypatch.setattr(gpu, "found", lambda **_: there)
    assert settled(Settings()).device == "cuda"
    assert settled(Settings(ranks=2)).device == "cpu"
    assert settled(Settings(device="cpu")).device == "cpu"
    with pytest.raises(SettingError, match=r"3 ranks .* finds 1 GPU here, .*: --ranks 1 on one"):
        settled(Settings(device="cuda", ranks=3))
    monkeypatch.setattr(gpu, "found", lambda **_: there * 2)
    assert settled(Settings(ranks=2)).device == "cuda"
    assert settled(Settings(ranks=3)).device == "cpu"
    assert settled(Settings(ranks=2, kv_split=True)).device == "cpu"
    assert settled(Settings(ranks=3, nnodes=2, master="h:1"), 1).device == "cuda"
    with pytest.raises(SettingError, match=r"3 ranks .* finds 2 GPUs here"):
        settled(Settings(device="cuda", ranks=3))
    with pytest.raises(SettingError, match=r"--kv-split with --device cuda: .*leave --kv-split"):
        settled(Settings(device="cuda", ranks=2, kv_split=True))
    monkeypatch.setattr(gpu, "found", lambda **_: ())
    assert settled(Settings()).device == "cpu"
    with pytest.raises(SettingError, match=r"--device is cuda, and torch finds no GPU"):
        settled(Settings(device="cuda"))


def test_a_gpu_that_cannot_run_the_kernels_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red where its compute capability is not asked: its first kernel would end the rank."""
    old = gpu.Memory(free=60 << 30, total=64 << 30, capability=(8, 0))
    monkeypatch.setattr(gpu, "found", lambda **_: (old,))
    assert settled(Settings()).device == "cpu"
    with pytest.raises(SettingError, match=r"capability 8\.0: the kernels need 9\.0; --device cpu"):
        settled(Settings(device="cuda"))
    new = gpu.Memory(free=60 << 30, total=64 << 30)
    monkeypatch.setattr(gpu, "found", lambda **_: (new, old))
    assert settled(Settings(ranks=1)).device == "cuda"
    assert settled(Settings(ranks=2)).device == "cpu"
    with pytest.raises(SettingError, match=r"GPU 1 has compute capability 8\.0"):
        settled(Settings(device="cuda", ranks=2))


def test_a_launcher_says_which_gpu_a_rank_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert rank._place(1) == 0
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert rank._place(3) == 2
    with pytest.raises(SettingError, match=r"LOCAL_RANK is '2'; it may be 0 to LOCAL_WORLD_SIZE"):
        rank._place(2)


def test_the_room_of_gpus_is_that_of_the_poorest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside each rank's own share of the weights. Red where the first GPU stands for all, and
    where columns that ranks divide count whole."""
    there = tuple(gpu.Memory(free=free << 30, total=32 << 30) for free in (8, 6, 7))
    monkeypatch.setattr(gpu, "found", lambda **_: there)
    checkpoint = read_checkpoint(Settings(model="nano", device="cuda"))
    reserve = 1 << 30
    read = [
        packed.read(nano.folder(), checkpoint.spec, CPU, rank=rank, world=2) for rank in range(2)
    ]
    held = [total_bytes(one.params.values()) for one in read]
    both = room_of(checkpoint, Share(2, range(2), serves=True), "cuda")
    assert both == min((8 << 30) - held[0], (6 << 30) - held[1]) - reserve
    third = room_of(checkpoint, Share(2, range(1, 2), serves=False), "cuda", gpu_of=2)
    assert third == (7 << 30) - held[1] - reserve
    poor = gpu.Memory(free=1000, total=32 << 30)
    monkeypatch.setattr(gpu, "found", lambda **_: (there[0], poor))
    with pytest.raises(CheckpointError, match=r"rank 1's share .* of GPU 1 as they lie, and 1000"):
        room_of(checkpoint, Share(2, range(2), serves=True), "cuda")


def test_what_torch_says_of_gpus_is_read_from_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, "[[5, 7, 9, 0], [6, 8, 8, 6]]\n", "")

    gpu._told.cache_clear()
    monkeypatch.setattr(subprocess, "run", run)
    first, second = gpu.found(asked=True)
    assert gpu.found(asked=True) == (first, second)
    gpu._told.cache_clear()
    assert len(asked) == 1
    assert first == gpu.Memory(free=5, total=7, capability=(9, 0))
    assert first.capable
    assert not second.capable


def test_caches_take_of_a_gpu_what_weights_and_the_reserve_leave() -> None:
    """A 32nd of the GPU is left alone, and a GiB at least."""
    memory = gpu.Memory(free=60 << 30, total=64 << 30)
    assert memory.room(40 << 30) == 18 << 30
    assert memory.room(61 << 30) == 0
    assert gpu.Memory(free=8 << 30, total=8 << 30).room(5 << 30) == 2 << 30
