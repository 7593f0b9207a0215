"""Ranks on two hosts: they serve a chat, and a cut cable ends what runs, by name and in time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.netns import Host, NoNamespaces, two_hosts
from support.server import Server, environment, serving_until_killed

PORT = 29500
SILENCE = 2.0
DOCUMENTED = 2 * SILENCE + 3.0
"""docs/ranks.md: from a cut cable to the end of every reply."""


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    try:
        with two_hosts() as both:
            yield both
    except NoNamespaces as error:
        pytest.skip(f"network namespaces cannot be made here (root is needed): {error}")


def flags(host: Host, token: Path) -> tuple[str, ...]:
    """What both hosts are started with."""
    return (
        *("--ranks", "2", "--nnodes", "2", "--master", f"{host.address}:{PORT}"),
        *("--rank-token-file", str(token), "--rank-silence-seconds", f"{SILENCE}"),
        *("--context", "4096", "--pool-tokens", "16384", "--threads", "1", "--kv-poison"),
    )


@contextmanager
def second_host(host: Host, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Its share of the ranks."""
    rank = subprocess.Popen(
        [*host.prefix, sys.executable, "-m", "streamglm", "serve", "nano", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )
    with rank:
        try:
            yield rank
        finally:
            rank.kill()


def events(answer: httpx.Response, cut: Any) -> list[str]:
    """The data of a stream to its end; `cut` is called after the tenth."""
    found = []
    for line in answer.iter_lines():
        if line.startswith("data: "):
            found.append(line.removeprefix("data: "))
            if len(found) == 10:
                cut()
    return found


def test_two_hosts_serve_a_chat_until_the_cable_is_pulled(
    hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    """Without the limits of the streams (`network.watch`) the other host's rank would wait for
    ever. On the server they and the signs of life notice both, and either would do."""
    first, second = hosts
    token = tmp_path / "token"
    token.write_text("a token of some length\n")
    same = flags(first, token)
    with (
        second_host(second, "--node-rank", "1", *same) as rank,
        serving_until_killed("nano", "--node-rank", "0", *same, prefix=first.prefix) as server,
    ):
        first.within(lambda: _chat(server))
        seconds, found = first.within(lambda: _cut(server, second))
        assert seconds < DOCUMENTED, f"{seconds:.1f} s from the cut to the end of the reply"
        error = json.loads(found[-2])["error"]
        assert found[-1] == "[DONE]"
        assert error["code"] == "engine_failed"
        assert "rank 1" in error["message"]
        health = first.within(lambda: _health(server))
        assert health.status_code == 503
        assert "rank 1" in health.json()["reason"]
        assert rank.wait(timeout=2 * DOCUMENTED) != 0
        assert "rank 1" in (rank.stdout.read() if rank.stdout else "")


def _chat(server: Server) -> None:
    says = [{"role": "user", "content": "Say something."}]
    replies = [server.chat(says, temperature=0, max_tokens=8) for _ in range(2)]
    assert replies[0]["streamglm"]["token_sha"] == replies[1]["streamglm"]["token_sha"]
    assert replies[0]["usage"]["completion_tokens"] == 8


def _cut(server: Server, host: Host) -> tuple[float, list[str]]:
    """Pull the cable in the middle of a reply: seconds to its end, and its events."""
    began = 0.0

    def cut() -> None:
        nonlocal began
        host.pull()
        began = time.monotonic()

    body = {"prompt": [5, 6, 7], "max_tokens": 3000, "ignore_eos": True, "stream": True}
    with server.client() as client:
        with client.stream("POST", "/v1/completions", json=body) as answer:
            found = events(answer, cut)
    return time.monotonic() - began, found


def _health(server: Server) -> httpx.Response:
    with server.client() as client:
        return client.get("/health")
