"""Every rank is started by torchrun, and the server starts none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.server import environment, serving
from support.talk import greedy, ids

PORT = 29610


@pytest.mark.slow
def test_torchrun_starts_the_ranks_of_a_server() -> None:
    """torchrun listens at MASTER_PORT itself; the ranks dial the port after it. When the server
    ends they do, and torchrun with status 0."""
    pid = os.getpid()
    host = f"127.200.{pid // 250 % 250}.{1 + pid % 250}"
    flags = ("--context", "4096", "--pool-tokens", "16384")
    env = environment() | {"STREAMGLM_RANK_TOKEN": "a token of some length"}
    launch = ("--nnodes", "1", "--nproc-per-node", "2", "--master-addr", host)
    torchrun = [sys.executable, "-m", "torch.distributed.run", *launch, "--master-port", f"{PORT}"]
    command = [*torchrun, "-m", "streamglm", "rank", "nano", *flags]
    with subprocess.Popen(command, stderr=-1, text=True, env=env) as ranks:
        try:
            token = ("--rank-token", "a token of some length")
            master = ("--ranks", "2", "--master", f"{host}:{PORT + 1}")
            with serving("nano", *master, *token, *flags) as server:
                assert len(ids(server.complete([5, 6, 7], **greedy(6)))) == 6
            assert ranks.wait(30) == 0
        finally:
            ranks.kill()
