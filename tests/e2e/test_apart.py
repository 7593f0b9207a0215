"""CO-36 through the commands: starts that must fail, on both sides, by one line, and in time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from streamglm import nano
from support.server import command, environment

SECONDS = 60.0
"""In which every rank has to have ended."""


def master(number: int) -> str:
    """An address of this machine that no other test has."""
    pid = os.getpid()
    return f"127.{1 + number}.{pid // 250 % 250}.{1 + pid % 250}:29500"


def both(one: list[str], other: list[str]) -> tuple[str, str]:
    """Two commands that must fail by themselves: what each has printed."""
    env = environment() | {"STREAMGLM_RANK_TOKEN": "a token of some length"}
    with subprocess.Popen(other, stdout=-1, stderr=-2, text=True, env=env) as second:
        first = subprocess.run(
            one, capture_output=True, text=True, env=env, timeout=SECONDS, check=False
        )
        said, _ = second.communicate(timeout=SECONDS)
    assert (first.returncode, second.returncode) == (1, 1), first.stderr + said
    assert "listening" not in first.stdout
    return first.stderr, said


def test_a_checkpoint_with_one_other_byte_ends_both_hosts_by_the_files_name(tmp_path: Path) -> None:
    """Headers, names and sizes are equal: only the bytes tell. Without `_prove` both ranks
    load, and talk nonsense together."""
    folder = tmp_path / "model"
    shutil.copytree(nano.folder(), folder)
    (weights,) = folder.glob("*.safetensors")
    with weights.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    flags = ("--ranks", "2", "--nnodes", "2", "--master", master(1), "--context", "4096")
    server, rank = both(command("nano", *flags), command(folder, *flags, "--node-rank", "1"))
    line = server.splitlines()[-1].removeprefix("streamglm: ")
    assert line.startswith(f"{weights.name}: rank 0: ")
    assert ", rank 1: " in line
    assert f"streamglm: rank 1: {line}" in rank.splitlines()


def test_another_context_ends_a_rank_that_was_started_by_hand() -> None:
    address = master(2)
    flags = ("--ranks", "2", "--master", address)
    rank = [sys.executable, "-m", "streamglm", "rank", "nano", *flags, "--rank", "1"]
    server, said = both(
        command("nano", *flags, "--nnodes", "2", "--context", "8192"), [*rank, "--context", "4096"]
    )
    line = "--context: rank 0: 8192, rank 1: 4096; start every rank with the same settings\n"
    assert server.endswith(f"streamglm: {line}")
    assert said == f"streamglm: rank 1: {line}"
