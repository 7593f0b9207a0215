"""A rank of two is killed under a real server: the stream ends by name, and the server says so."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from support.alive import alive
from support.server import Server, serving_until_killed


def ranks_of(server: Server) -> list[int]:
    """Process ids of the server's ranks, in the order of their numbers."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    return sorted(pid for pid in map(int, children.split()) if b"spawn_main" in _command(pid))


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_rank_killed_in_decode_ends_the_stream_and_health_names_it() -> None:
    """The stream has its error event and then [DONE]; the other rank is ended; the server stays to
    say why, and leaves with status 1."""
    flags = ("--ranks", "2", "--context", "4096", "--pool-tokens", "16384", "--threads", "1")
    with serving_until_killed("nano", *flags, "--kv-split") as server:
        ranks = ranks_of(server)
        assert len(ranks) == 2
        body = {"prompt": [5, 6], "max_tokens": 3000, "ignore_eos": True, "stream": True}
        found: list[str] = []
        with server.client() as client:
            with client.stream("POST", "/v1/completions", json=body) as answer:
                for line in answer.iter_lines():
                    found += [line.removeprefix("data: ")] if line.startswith("data: ") else []
                    if len(found) == 10:
                        os.kill(ranks[1], signal.SIGKILL)
            killed = "rank 1 was killed by signal 9 (SIGKILL)"
            assert found[-1] == "[DONE]"
            error = json.loads(found[-2])["error"]
            assert (error["code"], error["message"]) == ("engine_failed", killed)
            health = client.get("/health")
            assert (health.status_code, health.json()["reason"]) == (503, killed)
            refused = client.post("/v1/completions", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (500, "engine_failed")
        deadline = time.monotonic() + 5.0
        while any(map(alive, ranks)) and time.monotonic() < deadline:
            time.sleep(0.02)  # a poll with a bound
        assert not any(map(alive, ranks))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 1
